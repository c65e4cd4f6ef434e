"""Repairs non-greedy sampling under speculation in vLLM's CPU build, in two places.

The CPU fall-back of `expand_kernel` (`vllm/utils/cpu_triton_utils.py`, 0.26 to
0.33) fills a converted copy and drops it whenever the output is not int64, so
temperature, top-k and top-p of the draft positions stay uninitialised memory
and sampled text is garbage (vllm-project/vllm#55005). This replaces that one
function by the Triton kernel's own rule. And top-k without top-p fails, and ends
the server, in a step that verifies no drafts (docs/findings/0002); there is nothing
to filter there.
"""

import functools
from collections.abc import Callable
from typing import Any

from draftgate.vllm_plugins import announce, enabled

NAME = "cpu_sampling"


def register() -> None:
    """Install the repair if it is switched on; called by vLLM in each process.

    Raises:
        AttributeError: If this vLLM has no such function, or holds it in an unknown
            way, so that a server never runs unrepaired while its profile says that it
            is repaired.
    """
    if not enabled(NAME):
        return
    import vllm.utils.cpu_triton_utils as fallbacks  # noqa: PLC0415 - only inside a vLLM server

    if not hasattr(fallbacks, "_expand_kernel_impl"):
        raise AttributeError("vllm.utils.cpu_triton_utils has no _expand_kernel_impl to repair")
    # From 0.31 on the function is looked up late; before, a wrapper took it when it was loaded.
    if hasattr(fallbacks, "expand_kernel"):
        if not hasattr(fallbacks.expand_kernel, "func"):
            raise AttributeError("vllm.utils.cpu_triton_utils.expand_kernel has no func to repair")
        fallbacks.expand_kernel.func = expand
    fallbacks._expand_kernel_impl = expand  # noqa: SLF001 - the fault is in this private function
    from vllm.v1.sample.ops import (  # noqa: PLC0415 - only inside a vLLM server
        topk_topp_sampler as filters,
    )

    if hasattr(filters, "apply_top_k_only"):
        filters.apply_top_k_only = of_no_rows(filters.apply_top_k_only)
    announce(NAME)


def of_no_rows(filtered: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return vLLM's top-k filter with logits of no rows let through as they are."""

    @functools.wraps(filtered)
    def checked(logits: Any, k: Any) -> Any:
        return filtered(logits, k) if len(logits) else logits

    return checked


def expand(
    output: Any,
    input_val: Any,
    cu_num_tokens: Any,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,  # noqa: N803, ARG001 - the name is vLLM's
) -> None:
    """Write each request's value to all of its draft positions, in place.

    Args:
        output: Receives the values in its own dtype; shape (num_tokens,).
        input_val: One value a request; shape (batch,).
        cu_num_tokens: Cumulative numbers of draft tokens; shape (batch,).
        replace_from: Value to be replaced, for example temperature 0.
        replace_to: What replaces it.
        MAX_NUM_TOKENS: Compile-time bound of the Triton kernel; not needed.

    Source:
        `expand_kernel` in `vllm/v1/sample/rejection_sampler.py`.
    """
    import torch  # noqa: PLC0415 - only inside a vLLM server

    ends = cu_num_tokens.to(torch.int64)
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    values = torch.where(input_val == replace_from, replace_to, input_val)
    expanded = torch.repeat_interleave(values, counts)
    output[: expanded.shape[0]].copy_(expanded)
