"""P-EAGLE: an EAGLE-3 head trained to draft all K tokens in one pass.

vLLM knows it as `eagle3` with `parallel_drafting`; of the engines here it
alone can run it.
"""

from typing import Any

from draftgate.specs import SpeculativeConfig
from draftgate.speculation import METHODS
from draftgate.speculation.method import DRAFTER_OPTIONS, Method, boolean, vllm_form


def _vllm(config: SpeculativeConfig, model: str | None) -> dict[str, Any]:
    return vllm_form(config, model, method="eagle3", parallel_drafting=True)


METHODS.register("peagle")(
    Method(
        name="peagle",
        title="P-EAGLE",
        lossless=True,
        needs_model=True,
        drafts_with_target=False,
        options={**DRAFTER_OPTIONS, "disable_eagle_block_drop": boolean()},
        renderers={"fake": _vllm, "vllm": _vllm},
    )
)
