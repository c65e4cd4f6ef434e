"""MBPP's sanitised part as functions to complete: 427 (Austin et al. 2021, arXiv:2108.07732).

In HumanEval's form, as `mbpp_sanitized_for_code_generation.jsonl` of CodeT has it.
"""

from collections.abc import Sequence

from draftgate.datasets import PUBLISHED
from draftgate.datasets.humaneval import completions
from draftgate.datasets.published import Prompts, Published
from draftgate.datasets.rows import Row


def _read(rows: Sequence[Row]) -> Prompts:
    return completions("mbpp", rows)


PUBLISHED.register("mbpp")(
    Published(
        name="mbpp",
        read=_read,
        hub=None,
        count=427,
        sha256="a21ce56fb4e9eaaeb998ddbb73bcc4a9a3763595c3779c65f6057ceb3cfeff94",
    )
)
