"""Quantiles over several passes: numpy's, whatever the data, in bounded memory."""

import math
import tracemalloc
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from draftgate.stats import orderstat
from draftgate.stats.orderstat import Blocks, peak_bytes, quantiles, summarise

SHARES = (0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0)


def blocks_of(values: Sequence[float] | NDArray[np.float64], size: int = 1000) -> Blocks:
    """Return a source that yields `values` in blocks of `size`."""
    array = np.asarray(values, dtype=np.float64)
    return lambda: (array[start : start + size] for start in range(0, array.size, size))


def literal(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least `share` of all do not exceed, by counting."""
    ordered = sorted(values)
    return next(
        candidate
        for candidate in ordered
        if sum(value <= candidate for value in ordered) >= share * len(ordered)
    )


def data(kind: str) -> NDArray[np.float64]:
    """Return 60,000 numbers of a named shape."""
    rng = np.random.default_rng(5)
    shapes: dict[str, NDArray[np.float64]] = {
        "normal": rng.normal(0.0, 1.0, 60_000),
        "latencies": rng.lognormal(-4.6, 0.3, 60_000),
        "nanoseconds": np.round(rng.normal(1e7, 1e5, 60_000)),
        "ties": rng.integers(-2, 3, 60_000).astype(float),
        "all equal": np.full(60_000, 0.1),
        "neighbours": 1.0 + np.spacing(1.0) * rng.integers(0, 4000, 60_000),
        "all scales": np.sign(rng.normal(size=60_000)) * 10.0 ** rng.uniform(-300, 300, 60_000),
    }
    return shapes[kind]


@pytest.mark.parametrize("gathered", [0, 100, 1 << 18])
@pytest.mark.parametrize(
    "kind",
    ["normal", "latencies", "nanoseconds", "ties", "all equal", "neighbours", "all scales"],
)
def test_quantiles_are_those_of_numpy(
    kind: str, gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of numpy's numbers, whether the end is reached by sorting or by the last bit."""
    monkeypatch.setattr(orderstat, "_GATHERED", gathered)
    values = data(kind)

    found = quantiles(blocks_of(values), SHARES)

    assert list(found) == np.quantile(values, SHARES, method="inverted_cdf").tolist()


@settings(deadline=None, max_examples=150)  # a busy machine is no failure
@given(
    values=st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.integers(-3, 3).map(float),
        min_size=1,
        max_size=30,
    ),
    share=st.floats(0.0, 1.0) | st.sampled_from(SHARES),
    size=st.integers(1, 7),
)
def test_quantile_is_the_literal_one(values: list[float], share: float, size: int) -> None:
    """Any finite numbers, signed zeros and the smallest floats included, in any blocks."""
    (found,) = quantiles(blocks_of(values, size), [share])

    assert found == literal(values, share)


def test_summary_counts_adds_and_bounds() -> None:
    """Count, sum and extremes come along, over empty blocks too."""
    values = data("normal")
    empty = np.array([])

    found = summarise(lambda: [empty, values[:7], empty, values[7:]], [0.5])

    assert found.count == 60_000
    assert found.total == pytest.approx(math.fsum(values), abs=1e-9)
    assert (found.low, found.high) == (values.min(), values.max())
    assert found.quantiles[0] == np.quantile(values, 0.5, method="inverted_cdf")


def test_sum_that_overflows_is_told() -> None:
    """Numbers too large to add up have quantiles all the same, and an infinite sum."""
    found = summarise(blocks_of([1.7e308, 1.7e308, 1.0]), [0.5])

    assert (found.total, found.quantiles) == (math.inf, (1.7e308,))


def test_no_share_asked_gives_none() -> None:
    """Without shares the first pass is enough."""
    assert summarise(blocks_of([3.0, 1.0]), []).quantiles == ()


def test_one_value_is_every_quantile() -> None:
    """A single number stands for all shares."""
    assert quantiles(blocks_of([2.5]), [0.0, 0.5, 1.0]) == (2.5, 2.5, 2.5)


def test_shares_keep_their_order() -> None:
    """Results stand in the order asked for, repeats included."""
    assert quantiles(blocks_of([1.0, 2.0, 3.0]), [1.0, 0.0, 1.0]) == (3.0, 1.0, 3.0)


def test_memory_stays_below_the_stated_bound() -> None:
    """16 million numbers from a generator, three quantiles: peak below `peak_bytes`.

    Numbers alike to 16 bits or more make the most work: no bucket rules them out early.
    """
    block = 10_000_000.0 + np.arange(200_000, dtype=np.float64)

    def source() -> Iterable[NDArray[np.float64]]:
        return (block for _ in range(80))

    tracemalloc.start()
    try:
        found = summarise(source, [0.5, 0.9, 0.99])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found.quantiles == (10_099_999.0, 10_179_999.0, 10_197_999.0)
    assert found.count * 8 > 4 * peak_bytes(3)
    assert peak < peak_bytes(3)


@pytest.mark.parametrize(
    ("values", "shares", "said"),
    [
        ([1.0, math.nan], [0.5], "got NaN or infinity"),
        ([math.inf], [0.5], "got NaN or infinity"),
        ([], [0.5], "got no numbers"),
        ([1.0], [1.1], "shares must be in"),
        ([1.0], [math.nan], "shares must be in"),
        ([[1.0]], [0.5], r"shape \(n,\)"),
    ],
)
def test_senseless_input_is_refused(values: object, shares: list[float], said: str) -> None:
    """What has no quantile is an error, never a number."""
    with pytest.raises(ValueError, match=said):
        quantiles(lambda: [np.array(values)], shares)


@pytest.mark.parametrize("second", [[1.0], [1.0, 2.0, 2.0], [5.0, 6.0]])
@pytest.mark.parametrize("gathered", [0, 10])
def test_data_that_changes_between_passes_is_refused(
    second: list[float], gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that yields other numbers the second time is an error, not a wrong quantile."""
    monkeypatch.setattr(orderstat, "_GATHERED", gathered)
    passes = iter([[1.0, 2.0], second])

    with pytest.raises(ValueError, match="must yield the same numbers"):
        quantiles(lambda: [np.array(next(passes))], [0.0, 1.0])
