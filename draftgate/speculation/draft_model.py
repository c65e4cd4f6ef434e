"""A smaller model with the target's vocabulary drafts token by token.

The target itself may be its draft: useless for speed, but a full acceptance
that a test can rely on.
"""

from draftgate.speculation import METHODS
from draftgate.speculation.method import DRAFTER_OPTIONS, Method, boolean, vllm_form

METHODS.register("draft_model")(
    Method(
        name="draft_model",
        title="draft model",
        lossless=True,
        needs_model=True,
        drafts_with_target=True,
        options={**DRAFTER_OPTIONS, "use_heterogeneous_vocab": boolean()},
        renderers={"fake": vllm_form, "vllm": vllm_form},
    )
)
