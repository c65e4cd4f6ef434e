"""What law should a token have come from? Requests, answers and the sampling rules between.

A law here is the probability of every token of the vocabulary given the prompt and the
output so far, after all that the request asked for. `parameters` and `answer` are what is
passed around, `processors` the single rules, `orders` each engine's order of them,
`structure` the masks of structured output. Knows no servers.
"""
