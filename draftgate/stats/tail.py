"""How well a run's tail percentile is known, and from how many requests on.

Arrays of request times in, numbers out. A p99 is the plain order statistic of
one run (glossary, "Percentiles"); nothing here interpolates or assumes a law.
"""

import math
from collections.abc import Sequence

import numpy as np

from draftgate.stats.compare import FloatArray

TAIL_CONFIDENCE = 0.95
"""Confidence of the distribution-free bound that a tail verdict must be able to give."""


def requests_for_bound(share: float, *, confidence: float = TAIL_CONFIDENCE) -> int:
    """Return the fewest requests whose maximum bounds the quantile from above.

    The maximum of n lies above the quantile unless all n lie under it:
    1 - share^n >= confidence. 299 for the p99 at 95 %, since 0.99^299 < 0.05;
    59 for the p95. With fewer there is no upper bound at all, so no verdict.

    Args:
        share: Of the quantile, in (0, 1); 0.99 for the p99.
        confidence: One-sided, in (0, 1).

    Raises:
        ValueError: If an argument is out of range.

    Source:
        S. S. Wilks, Ann. Math. Stat. 12 (1941) 91-96.
    """
    _check_share(share)
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    needed = max(1, math.ceil(math.log1p(-confidence) / math.log(share)))
    while 1 - share**needed < confidence:  # the quotient of logarithms may round down
        needed += 1
    return needed


def upper_quantile_bound(
    values: Sequence[float] | FloatArray, share: float, *, confidence: float = TAIL_CONFIDENCE
) -> float:
    """Return a measured value that the true quantile exceeds in at most 1 - confidence.

    The smallest order statistic X_(r) with P(Binomial(n, share) < r) >=
    confidence. Holds for independent requests of any law.

    Args:
        values: One per request; shape (n,).
        share: Of the quantile, in (0, 1).
        confidence: One-sided, in (0, 1).

    Raises:
        ValueError: If there are fewer values than `requests_for_bound`, one is
            not finite, or a setting is out of range.

    Source:
        Wilks, as above; H. A. David and H. N. Nagaraja, Order Statistics
        (2003), section 7.1.
    """
    from scipy import special  # noqa: PLC0415 - its import is slow, and pytest loads us everywhere

    needed = requests_for_bound(share, confidence=confidence)
    array = _sorted(values)
    if array.size < needed:
        raise ValueError(
            f"too few requests for an upper bound of the p{share * 100:g}: got {array.size}, "
            f"expected at least {needed}. Send more requests or gate a lower percentile."
        )
    ranks = np.arange(1, array.size + 1)
    reached = special.bdtr(ranks - 1, array.size, share) >= confidence
    return float(array[int(np.argmax(reached))])


def quantile_sd_log(values: Sequence[float] | FloatArray, share: float) -> float:
    """Return the standard deviation of the log of a run's quantile, from its requests.

    The exact bootstrap of the order statistic, without resampling: X_(k) of a
    resample is the i-th smallest value with the chance I_{i/n}(k, n - k + 1) -
    I_{(i-1)/n}(k, n - k + 1). Requests of one run are taken as independent; what
    they share (the start) is the other part of the noise.

    Args:
        values: One per request, all > 0; shape (n,), n >= 2.
        share: Of the quantile, in (0, 1).

    Returns:
        Natural-log units, about a relative error.

    Raises:
        ValueError: If there are fewer than two values, or one is not a finite
            number above 0.

    Source:
        J. S. Maritz and R. G. Jarrett, J. Am. Stat. Assoc. 73 (1978) 194-196;
        A. D. Hutson and M. D. Ernst, J. R. Stat. Soc. B 62 (2000) 89-94.
    """
    from scipy import special  # noqa: PLC0415 - as above

    _check_share(share)
    array = _sorted(values)
    if array.size < 2 or array[0] <= 0.0:
        raise ValueError(f"expected at least 2 values above 0, got {array[:5].tolist()} smallest")
    if array[0] == array[-1]:
        return 0.0
    n = array.size
    rank = math.ceil(share * n)
    weights = np.diff(special.betainc(rank, n - rank + 1, np.arange(n + 1) / n))
    logs = np.log(array)
    centred = logs - weights @ logs
    return math.sqrt(float(weights @ centred**2))


def _sorted(values: Sequence[float] | FloatArray) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"expected one value per request, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("got NaN or infinity, expected finite values; leave out failed requests")
    return np.sort(array)


def _check_share(share: float) -> None:
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must be in (0, 1), got {share}")
