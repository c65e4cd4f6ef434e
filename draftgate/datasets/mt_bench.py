"""MT-Bench: 80 questions in 8 categories (Zheng et al. 2023, arXiv:2306.05685).

Only the first of the two turns is sent: the second needs the answer that the
server under test gave to the first, and no published answer is that.
"""

from collections.abc import Sequence

from draftgate.datasets import PUBLISHED
from draftgate.datasets.published import HubFile, Prompts, Published, one_turn
from draftgate.datasets.rows import Row
from draftgate.errors import SpecError


def first_turns(name: str, rows: Sequence[Row]) -> Prompts:
    """Return the first turn of each question; its category is the kind of traffic.

    Raises:
        SpecError: If a row has no list of turns.
    """
    return Prompts(
        tuple(
            one_turn(name, i, _first_turn(row), row.text("category"))
            for i, row in enumerate(rows, start=1)
        )
    )


def _first_turn(row: Row) -> str:
    turns = row.fields.get("turns")
    if not isinstance(turns, list) or not turns:
        raise SpecError(
            f"{row.place}: expected a list 'turns' that is not empty, got {repr(turns)[:60]}. "
            "Check that the file is of this data set."
        )
    return Row(row.place, {"first turn": turns[0]}).text("first turn")


def _read(rows: Sequence[Row]) -> Prompts:
    return first_turns("mt_bench", rows)


PUBLISHED.register("mt_bench")(
    Published(
        name="mt_bench",
        read=_read,
        hub=HubFile("philschmid/mt-bench", "question.jsonl"),
        count=80,
        sha256="7d603c84c12f092ee1e6af25f6c00f8bd4de0888354853cf3feddaaa90709b60",
    )
)
