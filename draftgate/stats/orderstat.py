"""Exact order statistics of numbers that do not fit into memory.

Arrays in, numbers out; the numbers are read in several passes and never held
together. Knows nothing of what they measure or where they are stored.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Blocks = Callable[[], Iterable[NDArray[np.float64]]]
"""Starts one pass over the data; every pass yields the same numbers, in any blocks."""

_Keys = NDArray[np.uint64]

_KEY_BITS = 64

_RADIX_BITS = 16
"""Bits of a key settled per pass: four passes settle all 64."""

_RADIX = 1 << _RADIX_BITS

_CHUNK = 1 << 18
"""Numbers worked on at once, 2 MiB; larger blocks are cut."""

_GATHERED = 1 << 18
"""So few candidates left, over all ranks, are collected and sorted instead."""

_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class Summary:
    """What one look at all numbers tells.

    Attributes:
        count: How many there are.
        total: Their sum in float64; not finite where that cannot hold it.
        low: Smallest.
        high: Largest.
        quantiles: One measured value per share asked for.
    """

    count: int
    total: float
    low: float
    high: float
    quantiles: tuple[float, ...]


def peak_bytes(shares: int) -> int:
    """Return the bound on what `summarise` holds beside the caller's block, bytes.

    Two histograms per rank (counts and those of one chunk), the candidates
    that are sorted in the end, and six arrays of one chunk.
    """
    ranks = max(shares, 1)
    return 8 * (2 * ranks * _RADIX + 3 * _GATHERED + 6 * _CHUNK)


def quantiles(blocks: Blocks, shares: Sequence[float]) -> tuple[float, ...]:
    """Return the quantiles of `summarise` alone; arguments and errors as there."""
    return summarise(blocks, shares).quantiles


def summarise(blocks: Blocks, shares: Sequence[float]) -> Summary:
    """Return count, sum, extremes and exact quantiles of numbers read block by block.

    A quantile is the smallest number that at least that share of all numbers
    does not exceed. Selection by radix: a pass counts the numbers by the top
    16 bits of a key that sorts as they do, the next passes count by further
    bits inside the buckets that hold the wanted ranks, and once few numbers
    are left these are sorted. That takes two to five passes; memory is bounded
    by `peak_bytes`, however many numbers there are.

    Args:
        blocks: Called once per pass; yields arrays of shape (n,), any n.
        shares: In [0, 1]; 0.99 for the p99.

    Raises:
        ValueError: If there is no number, one is NaN or infinite, a share
            is outside [0, 1], or a later pass yields other numbers than the first.

    Source:
        Definition "inverted_cdf" of numpy's `quantile`, which is definition 1
        of R. Hyndman and Y. Fan, Am. Stat. 50 (1996) 361-365; selection over
        several passes: J. Munro and M. Paterson, Theor. Comput. Sci. 12 (1980)
        315-323.
    """
    for share in shares:
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"shares must be in [0, 1], got {share}")
    counts, summary = _first_pass(blocks)
    if not shares:
        return summary
    ranks = [_rank(share, summary.count) for share in shares]
    found = _select(blocks, sorted(set(ranks)), counts)
    return replace(summary, quantiles=tuple(found[rank] for rank in ranks))


def _rank(share: float, count: int) -> int:
    return max(math.ceil(share * count) - 1, 0)


def _chunks(blocks: Blocks) -> Iterator[NDArray[np.float64]]:
    for block in blocks():
        array = np.asarray(block, dtype=np.float64)
        if array.ndim != 1:
            raise ValueError(f"blocks must have shape (n,), got {array.shape}")
        for start in range(0, array.size, _CHUNK):
            yield array[start : start + _CHUNK]


def _keys(values: NDArray[np.float64]) -> _Keys:
    """Return unsigned integers that sort as `values` do, -0.0 just below 0.0."""
    bits = values.view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _value(key: int) -> float:
    bits = np.uint64(key)
    plain = bits ^ _SIGN if bits & _SIGN else ~bits
    return float(np.asarray(plain, dtype=np.uint64).view(np.float64))


def _first_pass(blocks: Blocks) -> tuple[NDArray[np.int64], Summary]:
    counts = np.zeros((1, _RADIX), dtype=np.int64)
    total, low, high = 0.0, math.inf, -math.inf
    for chunk in _chunks(blocks):
        if not np.isfinite(chunk).all():
            raise ValueError(
                "got NaN or infinity, expected finite numbers; leave out what was not measured"
            )
        counts[0] += _histogram(_keys(chunk) >> np.uint64(_KEY_BITS - _RADIX_BITS), _RADIX)
        with np.errstate(over="ignore", invalid="ignore"):  # told by the total itself
            total += float(chunk.sum())
        low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
    count = int(counts.sum())
    if count == 0:
        raise ValueError("got no numbers, expected at least one")
    return counts, Summary(count, total, low, high, ())


def _histogram(slots: _Keys, size: int) -> NDArray[np.int64]:
    return np.bincount(slots.astype(np.int64), minlength=size)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Where a rank lies: among the numbers whose key starts with `prefix`.

    Attributes:
        prefix: Leading bits of the key.
        within: Rank among the bucket's numbers, from 0.
        size: How many numbers the bucket holds.
    """

    prefix: int
    within: int
    size: int


def _select(blocks: Blocks, ranks: Sequence[int], counts: NDArray[np.int64]) -> dict[int, float]:
    """Return the number of each rank; `counts` is the first pass's, by the top bits."""
    whole = _Bucket(0, 0, int(counts.sum()))
    buckets = {rank: _narrowed(replace(whole, within=rank), counts[0]) for rank in ranks}
    for bits in range(_RADIX_BITS, _KEY_BITS, _RADIX_BITS):
        sizes = {bucket.prefix: bucket.size for bucket in buckets.values()}
        prefixes = np.array(sorted(sizes), dtype=np.uint64)
        left = sum(sizes.values())
        if left <= _GATHERED:
            return _sorted_out(buckets, _gather(blocks, prefixes, bits, left), bits)
        counts = _count(blocks, prefixes, bits)
        _check_same(int(counts.sum()), left)
        rows = {int(prefix): row for prefix, row in zip(prefixes, counts, strict=True)}
        buckets = {rank: _narrowed(b, rows[b.prefix]) for rank, b in buckets.items()}
    return {rank: _value(bucket.prefix) for rank, bucket in buckets.items()}


def _narrowed(bucket: _Bucket, counts: NDArray[np.int64]) -> _Bucket:
    """Return the part of `bucket`, by the next bits of the key, that holds the rank."""
    upto = np.cumsum(counts)
    part = int(np.searchsorted(upto, bucket.within, side="right"))
    size = int(counts[part])
    before = int(upto[part]) - size
    return _Bucket(bucket.prefix << _RADIX_BITS | part, bucket.within - before, size)


def _inside(keys: _Keys, prefixes: _Keys, bits: int) -> tuple[_Keys, NDArray[np.intp]]:
    """Return the keys that start with one of `prefixes`, and which one it is."""
    heads = keys >> np.uint64(_KEY_BITS - bits)
    which = np.minimum(np.searchsorted(prefixes, heads), prefixes.size - 1)
    hit = prefixes[which] == heads
    return keys[hit], which[hit]


def _count(blocks: Blocks, prefixes: _Keys, bits: int) -> NDArray[np.int64]:
    """Return how many keys of each prefix continue with each of the next bits' values."""
    counts = np.zeros(prefixes.size * _RADIX, dtype=np.int64)
    shift = np.uint64(_KEY_BITS - bits - _RADIX_BITS)
    for chunk in _chunks(blocks):
        keys, which = _inside(_keys(chunk), prefixes, bits)
        part = (keys >> shift) & np.uint64(_RADIX - 1)
        counts += _histogram(which.astype(np.uint64) * np.uint64(_RADIX) + part, counts.size)
    return counts.reshape(prefixes.size, _RADIX)


def _gather(blocks: Blocks, prefixes: _Keys, bits: int, left: int) -> _Keys:
    """Return the `left` keys that start with one of `prefixes`, sorted."""
    gathered = np.empty(left, dtype=np.uint64)
    filled = 0
    for chunk in _chunks(blocks):
        keys, _ = _inside(_keys(chunk), prefixes, bits)
        if filled + keys.size > left:
            _check_same(filled + keys.size, left)
        gathered[filled : filled + keys.size] = keys
        filled += keys.size
    _check_same(filled, left)
    gathered.sort()
    return gathered


def _sorted_out(buckets: dict[int, _Bucket], keys: _Keys, bits: int) -> dict[int, float]:
    heads = keys >> np.uint64(_KEY_BITS - bits)
    found = {}
    for rank, bucket in buckets.items():
        first = int(np.searchsorted(heads, np.uint64(bucket.prefix)))
        found[rank] = _value(int(keys[first + bucket.within]))
    return found


def _check_same(got: int, expected: int) -> None:
    if got != expected:
        raise ValueError(
            f"a later pass found {got} numbers where the first counted {expected}; every call of "
            "`blocks` must yield the same numbers"
        )
