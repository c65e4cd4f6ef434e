"""Is the output still the target model's? Comparisons of answers, no servers.

`greedy` compares token by token, `sampling` compares how likely sampled text
is. Both take what `draftgate.checks.ask` brought back.
"""
