"""What law should a token have come from? Requests, answers and the sampling rules between.

A law here is the probability of every token of the vocabulary given the prompt and the
output so far, after all that the request asked for. `parameters` and `answer` are what is
passed around, `processors` the single rules, `tables` each engine's order of them,
`orders` the law that results, `edges` filters under rounding, `structure` the masks of
structured output; where the model's own law comes from begins in `reference`. Opens no
sockets.
"""
