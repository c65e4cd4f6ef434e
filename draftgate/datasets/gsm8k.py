"""GSM8K's test part: 1,319 grade-school word problems (Cobbe et al. 2021, arXiv:2110.14168)."""

from collections.abc import Sequence

from draftgate.datasets import PUBLISHED
from draftgate.datasets.published import HubFile, Prompts, Published, one_turn
from draftgate.datasets.rows import Row


def _read(rows: Sequence[Row]) -> Prompts:
    """Return the questions as they are; answers are not sent."""
    return Prompts(
        tuple(one_turn("gsm8k", i, row.text("question")) for i, row in enumerate(rows, start=1))
    )


PUBLISHED.register("gsm8k")(
    Published(
        name="gsm8k",
        read=_read,
        hub=HubFile("openai/gsm8k", "main/test-00000-of-00001.parquet"),
        count=1319,
        sha256="dfb8edf4ae1a8f158d8b74d93aee42526f181837422c93ba7bee224138bd6223",
    )
)
