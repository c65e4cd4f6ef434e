"""Prompt lookup: drafts are what followed the same last tokens earlier in the text.

Needs no model. A step without a match carries no drafts, so acceptance is
counted over the other steps only.
"""

from collections.abc import Iterator

from draftgate.specs import SpeculativeConfig
from draftgate.speculation import METHODS
from draftgate.speculation.method import COMMON_OPTIONS, Method, Problem, integer, vllm_form


def order_problems(config: SpeculativeConfig) -> Iterator[Problem]:
    """Yield what is wrong if the shortest run that is looked up is above the longest."""
    options = dict(config.options)
    low, high = options.get("prompt_lookup_min"), options.get("prompt_lookup_max")
    if low is not None and high is not None and low > high:
        yield Problem(
            "prompt_lookup_min",
            repr(low),
            f"at most prompt_lookup_max = {high}",
            "Swap or correct the two.",
        )


LOOKUP_OPTIONS = {
    **COMMON_OPTIONS,
    "prompt_lookup_min": integer(1),
    "prompt_lookup_max": integer(1),
}
"""Keys of an arm whose drafts are looked up in the prompt."""

METHODS.register("ngram")(
    Method(
        name="ngram",
        title="n-gram lookup",
        lossless=True,
        needs_model=False,
        drafts_with_target=False,
        options=LOOKUP_OPTIONS,
        renderers={"fake": vllm_form, "vllm": vllm_form},
        checks=(order_problems,),
    )
)
