"""HumanEval: 164 Python functions to complete (Chen et al. 2021, arXiv:2107.03374)."""

from collections.abc import Sequence

from draftgate.datasets import PUBLISHED
from draftgate.datasets.published import HubFile, Prompts, Published, one_turn
from draftgate.datasets.rows import Row


def completions(name: str, rows: Sequence[Row]) -> Prompts:
    """Return each function's head with the request to complete it."""
    return Prompts(
        tuple(
            one_turn(name, i, f"Complete this Python function.\n\n{row.text('prompt')}")
            for i, row in enumerate(rows, start=1)
        )
    )


def _read(rows: Sequence[Row]) -> Prompts:
    return completions("humaneval", rows)


PUBLISHED.register("humaneval")(
    Published(
        name="humaneval",
        read=_read,
        hub=HubFile("openai/openai_humaneval", "openai_humaneval/test-00000-of-00001.parquet"),
        count=164,
        sha256="237bf4108cca4d40dff7a9e5720c5fd0923676be41a5d695b96b6c58cbff1995",
    )
)
