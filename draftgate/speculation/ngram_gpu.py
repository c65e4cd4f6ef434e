"""Prompt lookup on the GPU: as `ngram`, with the search beside the model, so no step waits for it.

Source: vLLM's `ngram_gpu` (`vllm/config/speculative.py`), since 0.18.
"""

from draftgate.speculation import METHODS
from draftgate.speculation.method import Method, vllm_form
from draftgate.speculation.ngram import LOOKUP_OPTIONS, order_problems

METHODS.register("ngram_gpu")(
    Method(
        name="ngram_gpu",
        title="n-gram lookup on the GPU",
        lossless=True,
        needs_model=False,
        drafts_with_target=False,
        options=LOOKUP_OPTIONS,
        renderers={"vllm": vllm_form},
        checks=(order_problems,),
    )
)
