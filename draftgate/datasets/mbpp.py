"""MBPP's sanitised part as functions to complete: 427 (Austin et al. 2021, arXiv:2108.07732).

In HumanEval's form, as `mbpp_sanitized_for_code_generation.jsonl` of CodeT has it.
"""

from collections.abc import Sequence

from draftgate.datasets import PUBLISHED
from draftgate.datasets.published import Prompts, Published, one_turn
from draftgate.datasets.rows import Row


def _read(rows: Sequence[Row]) -> Prompts:
    """Return each function's head with the request to complete it."""
    return Prompts(
        tuple(
            one_turn("mbpp", i, f"Complete this Python function.\n\n{row.text('prompt')}")
            for i, row in enumerate(rows, start=1)
        )
    )


PUBLISHED.register("mbpp")(
    Published(
        name="mbpp",
        read=_read,
        hub=None,
        count=427,
        sha256="a21ce56fb4e9eaaeb998ddbb73bcc4a9a3763595c3779c65f6057ceb3cfeff94",
    )
)
