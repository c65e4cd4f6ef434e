"""Which lasting changes of the history a person should look at.

Change points of each series (docs/decisions/0010) become items: open until
somebody closes them with a reason. An item is a question, not a verdict;
nothing fails because of one. Opens no file and reads no clock.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from draftgate.codec import encode
from draftgate.history.records import Closure, Item, Series
from draftgate.stats.changepoint import MIN_SEGMENT, WINDOW, change_points, long_run_factor

MIN_NIGHTS = 2 * MIN_SEGMENT
"""Nights from which a series is looked at."""

CONFIDENCE = 0.95
"""Two-sided coverage of an item's interval, as if its place had been known before."""

SETTLING_NIGHTS = MIN_SEGMENT
"""How far the place of a change may move as nights are added, and it is the same item still."""

_ID_DIGITS = 12

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """A series with its items, in order of time.

    Attributes:
        series: The series.
        items: Its changes; closed ones included.
        levels: (first position, one past the last, level) of each segment: the
            mean of its values, geometric on the log scale.
    """

    series: Series
    items: tuple[Item, ...]
    levels: tuple[tuple[int, int, float], ...]


def judge_series(series: Series, closures: Iterable[Closure] = ()) -> Judged:
    """Return a series with the changes of its level.

    A series shorter than `MIN_NIGHTS` has none. Changes are looked for on the
    log scale unless a value is 0 or less.

    Args:
        series: What to look at.
        closures: What people closed; those of other series are passed over.

    Source:
        Change points: `draftgate.stats.changepoint`. Interval: B. L. Welch,
        Biometrika 34 (1947) 28-35, over up to 25 nights on either side, variance
        times the long-run factor of Newey and West, as in the local test there.
    """
    values = _scaled(series)
    cuts = [p.index for p in change_points(values)] if len(values) >= MIN_NIGHTS else []
    edges = [0, *cuts, len(values)]
    items = [
        _item(series, values, (low, cut, high))
        for low, cut, high in zip(edges, cuts, edges[2:], strict=False)
    ]
    mine = [closure for closure in closures if closure.series == series.key]
    return Judged(series, _closed(items, mine), _levels(series, values, edges))


def judge_all(series: Iterable[Series], closures: Iterable[Closure] = ()) -> tuple[Judged, ...]:
    """Return all series with the changes of their levels, in the order given."""
    by_key: dict[object, list[Closure]] = {}
    for closure in closures:
        by_key.setdefault(closure.series, []).append(closure)
    return tuple(judge_series(one, by_key.get(one.key, ())) for one in series)


def items_of(judged: Iterable[Judged]) -> tuple[Item, ...]:
    """Return the items of all series: open ones first, losses before gains, newest first."""
    found = [item for one in judged for item in one.items]
    order = {"worse": 0, "changed": 1, "better": 2}
    return tuple(
        sorted(
            found,
            key=lambda item: (
                not item.is_open,
                -item.after.time.timestamp(),
                order[item.direction],
                item.series.key,
            ),
        )
    )


def unmatched(judged: Iterable[Judged], closures: Iterable[Closure]) -> tuple[Closure, ...]:
    """Return the closures of changes that are not seen any more."""
    used = {item.closure.id for one in judged for item in one.items if item.closure is not None}
    return tuple(closure for closure in closures if closure.id not in used)


def item_id(series: Series, index: int, *, is_rise: bool) -> str:
    """Return the id of a change at a position of a series.

    A hash of what does not change from night to night: the series, the run at
    the new level's start, and whether it rose.
    """
    key = [encode(series.key), series.nights[index].run_id, is_rise]
    text = json.dumps(key, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS]


def _scaled(series: Series) -> FloatArray:
    values = np.asarray(series.values, dtype=np.float64)
    return np.log(values) if series.is_log else values


def _levels(
    series: Series, values: FloatArray, edges: Sequence[int]
) -> tuple[tuple[int, int, float], ...]:
    """Return each segment with its level in the unit of the series."""
    if not values.size:
        return ()
    return tuple(
        (low, high, _unscaled(series, float(values[low:high].mean())))
        for low, high in pairwise(edges)
    )


def _unscaled(series: Series, value: float) -> float:
    return math.exp(value) if series.is_log else value


def _item(series: Series, values: FloatArray, place: tuple[int, int, int]) -> Item:
    low, cut, high = place
    before, after = values[max(low, cut - WINDOW) : cut], values[cut : min(high, cut + WINDOW)]
    moved = float(after.mean() - before.mean())
    half = _half_width(before, after)
    ends = (moved - half, moved, moved + half)
    change_low, change, change_high = map(math.expm1, ends) if series.is_log else ends
    near = range(max(cut - SETTLING_NIGHTS, 0), min(cut + SETTLING_NIGHTS + 1, values.size))
    return Item(
        id=item_id(series, cut, is_rise=moved > 0.0),
        aliases=tuple(
            item_id(series, index, is_rise=moved > 0.0)
            for index in sorted(near, key=lambda index: abs(index - cut))
        ),
        series=series,
        index=cut,
        before=series.nights[cut - 1],
        after=series.nights[cut],
        level_before=_unscaled(series, float(before.mean())),
        level_after=_unscaled(series, float(after.mean())),
        change=change,
        low=change_low,
        high=change_high,
        direction=_direction(series.better, is_rise=moved > 0.0),
        nights=high - cut,
    )


def _half_width(before: FloatArray, after: FloatArray) -> float:
    """Return half the width of the interval of the difference of two means."""
    from scipy import special  # noqa: PLC0415 - its import is slow, and most series have no change

    residuals = np.concatenate([before - before.mean(), after - after.mean()])
    factor = long_run_factor(residuals)
    parts = [factor * float(side.var(ddof=1)) / side.size for side in (before, after)]
    variance = sum(parts)
    if variance == 0.0:
        return 0.0
    degrees = variance**2 / sum(
        part**2 / (side.size - 1) for part, side in zip(parts, (before, after), strict=True)
    )
    return float(special.stdtrit(degrees, 0.5 + CONFIDENCE / 2.0)) * math.sqrt(variance)


def _direction(better: str, *, is_rise: bool) -> str:
    if better not in ("higher", "lower"):
        return "changed"
    return "better" if (better == "higher") == is_rise else "worse"


def _closed(items: Sequence[Item], closures: Sequence[Closure]) -> tuple[Item, ...]:
    """Return the items, each with the closure that is nearest to it, if any.

    A closure closes one item, and an item has one closure: pairs are made from
    the nearest on. The item then bears the id under which it was closed.
    """
    distance = {
        (number, closure.id): item.aliases.index(closure.id)
        for number, item in enumerate(items)
        for closure in closures
        if closure.id in item.aliases
    }
    by_id = {closure.id: closure for closure in closures}
    found = list(items)
    used: set[str] = set()
    for number, closed_id in sorted(distance, key=lambda pair: (distance[pair], pair)):
        if found[number].is_open and closed_id not in used:
            found[number] = replace(found[number], id=closed_id, closure=by_id[closed_id])
            used.add(closed_id)
    return tuple(found)
