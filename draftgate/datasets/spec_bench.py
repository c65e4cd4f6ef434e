"""Spec-Bench: 480 questions in 13 categories (Xia et al. 2024, arXiv:2401.07851).

MT-Bench's format; its 80 MT-Bench items have two turns, of which the first is sent.
"""

from collections.abc import Sequence

from draftgate.datasets import PUBLISHED
from draftgate.datasets.mt_bench import first_turns
from draftgate.datasets.published import Prompts, Published
from draftgate.datasets.rows import Row


def _read(rows: Sequence[Row]) -> Prompts:
    return first_turns("spec_bench", rows)


PUBLISHED.register("spec_bench")(
    Published(
        name="spec_bench",
        read=_read,
        hub=None,
        count=480,
        sha256="e070afee75fcc0728c1860e3cafad6103f3ea83cbfe599275ef5f2ec3a71771c",
    )
)
