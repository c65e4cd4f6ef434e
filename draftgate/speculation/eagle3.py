"""EAGLE-3: a one-layer head drafts from the target's hidden states, token by token.

Source: Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large
Language Models via Training-Time Test", arXiv:2503.01840.
"""

from draftgate.speculation import METHODS
from draftgate.speculation.method import DRAFTER_OPTIONS, Method, boolean, vllm_form

METHODS.register("eagle3")(
    Method(
        name="eagle3",
        title="EAGLE-3",
        lossless=True,
        needs_model=True,
        drafts_with_target=False,
        options={**DRAFTER_OPTIONS, "disable_eagle_block_drop": boolean()},
        renderers={"fake": vllm_form, "vllm": vllm_form},
    )
)
