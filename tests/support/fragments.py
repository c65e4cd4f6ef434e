"""Hypothesis strategies that cut and damage byte streams; they know no format."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st


@st.composite
def fragments(draw: st.DrawFn, stream: bytes, marks: Sequence[int] = ()) -> list[bytes]:
    """Draw pieces that add up to `stream`, some of them perhaps empty.

    Args:
        draw: Given by Hypothesis.
        stream: What to cut.
        marks: Offsets, at most the length, at which a cut is likelier than elsewhere.
    """
    offset = st.integers(0, len(stream))
    some = st.lists(offset | st.sampled_from(marks) if marks else offset, max_size=12)
    everywhere = st.just(list(range(1, len(stream))))
    cuts = draw(some | st.just(list(marks)) | everywhere)
    return [stream[start:end] for start, end in pairwise([0, *sorted(cuts), len(stream)])]


@st.composite
def damaged(draw: st.DrawFn, stream: bytes, pool: Sequence[bytes]) -> bytes:
    """Draw `stream` with one to three places overwritten, cut out or added to.

    Args:
        draw: Given by Hypothesis.
        stream: What to damage.
        pool: What to put in; single bytes of any value are put in too.
    """
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(stream)))
        end = start + draw(st.integers(0, 3))
        stream = stream[:start] + draw(st.sampled_from(pool) | st.binary(max_size=1)) + stream[end:]
    return stream
