"""Prompt lookup on the GPU: as `ngram`, with the search beside the model, so no step waits for it.

Source: vLLM's `ngram_gpu` (`vllm/config/speculative.py`), since 0.18.
"""

from draftgate.speculation import METHODS
from draftgate.speculation.method import COMMON_OPTIONS, Method, integer, vllm_form

METHODS.register("ngram_gpu")(
    Method(
        name="ngram_gpu",
        title="n-gram lookup on the GPU",
        lossless=True,
        needs_model=False,
        drafts_with_target=False,
        options={
            **COMMON_OPTIONS,
            "prompt_lookup_min": integer(1),
            "prompt_lookup_max": integer(1),
        },
        renderers={"vllm": vllm_form},
    )
)
