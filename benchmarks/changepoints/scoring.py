"""Scores of found changes against annotations, as TCPDBench defines them.

Positions are 0-based and name the first value of a new segment. Knows nothing
of files or methods. Definitions: G. van den Burg and C. Williams, "An Evaluation
of Change Point Detection Algorithms", arXiv:2003.06222, section 4.
"""

from collections.abc import Collection, Sequence

MARGIN = 5
"""Largest distance of a hit, in values."""


def hits(truth: Collection[int], found: Collection[int], margin: int = MARGIN) -> int:
    """Return how many of `truth` have a found change within the margin, each used once.

    In ascending order every true change takes the nearest free one, the earlier of two.
    """
    free = set(found)
    count = 0
    for true in sorted(truth):
        near = [(abs(true - cut), cut) for cut in free if abs(true - cut) <= margin]
        if near:
            free.remove(min(near)[1])
            count += 1
    return count


def f1_score(annotations: Sequence[Collection[int]], found: Collection[int]) -> float:
    """Return F1: precision against all annotators together, recall as their mean.

    Position 0 counts as a change that everybody sees, so no score is 0 / 0.
    """
    cuts = {0, *found}
    truths = [{0, *one} for one in annotations]
    precision = hits(set().union(*truths), cuts) / len(cuts)
    recall = sum(hits(one, cuts) / len(one) for one in truths) / len(truths)
    return 2.0 * precision * recall / (precision + recall)


def cover_score(
    annotations: Sequence[Collection[int]], found: Collection[int], count: int
) -> float:
    """Return the covering of the annotators' segments by the found ones, their mean.

    Per annotator: the length-weighted mean, over their segments, of the largest
    Jaccard index with a found segment.
    """
    ours = _segments(found, count)
    total = 0.0
    for one in annotations:
        for segment in _segments(one, count):
            size = segment[1] - segment[0]
            total += size * max(_jaccard(segment, other) for other in ours)
    return total / (count * len(annotations))


def _segments(cuts: Collection[int], count: int) -> list[tuple[int, int]]:
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < count}), count]
    return list(zip(edges, edges[1:], strict=False))  # noqa: RUF007 - read as the cuts' edges


def _jaccard(one: tuple[int, int], other: tuple[int, int]) -> float:
    common = max(0, min(one[1], other[1]) - max(one[0], other[0]))
    return common / (one[1] - one[0] + other[1] - other[0] - common)
