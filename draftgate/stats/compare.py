"""Comparison of two small samples of positive numbers, one number per run.

The one place that decides how uncertain a change is. Knows nothing of what the
numbers mean or what is done with the result: `draftgate.verdict` decides that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

METHOD = "Welch t on logs"
PAIRED_METHOD = "paired t on logs"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A statement about numbers: candidate over base, with an interval.

    Attributes:
        estimate_ratio: Geometric mean of the candidate over that of the base.
        low_ratio: Lower end of the two-sided interval of that ratio.
        high_ratio: Upper end.
        p_value: Two-sided, for "no change".
        method: How the interval was made.
        n_base: Runs on the base side.
        n_candidate: Runs on the candidate side.
    """

    estimate_ratio: float
    low_ratio: float
    high_ratio: float
    p_value: float
    method: str
    n_base: int
    n_candidate: int


def compare_runs(
    base: Sequence[float] | FloatArray,
    candidate: Sequence[float] | FloatArray,
    *,
    higher_is_better: bool,
    margin_ratio: float,
    confidence: float,
    paired: bool = False,
) -> Comparison:
    """Return the ratio of candidate to base with a t interval on the log scale.

    Runs of two sides that were taken in turn share the machine's slow spells:
    `paired` compares the runs of the same place in both sequences, and what
    hits both cancels. Otherwise the sides are two independent samples (Welch).

    Each value stands for one whole run: values of requests of one run are not
    independent and make the interval far too short. Without any spread the
    interval is the point estimate, with p 1 for equal sides and 0 otherwise: a
    statement about exact numbers (counts), no precision of rounded ones.

    Args:
        base: One value per run, all > 0; shape (n_base,), n_base >= 2.
        candidate: One value per run, all > 0; shape (n_candidate,), >= 2.
        higher_is_better: Direction of the metric. The interval of this method
            is two-sided and does not depend on it; a one-sided method may.
        margin_ratio: Tolerated relative loss, >= 0; not used by this method,
            it is what an equivalence test needs.
        confidence: Two-sided coverage, in (0, 1).
        paired: Whether value i of both sides were taken next to each other.

    Returns:
        The comparison, ratios on the raw scale.

    Raises:
        ValueError: If paired sides differ in length, a side has fewer than
            two values, a value is not a finite number above 0, or a setting is
            out of range.

    Source:
        B. L. Welch, Biometrika 34 (1947) 28-35, with Satterthwaite's degrees
        of freedom, applied to natural logarithms; paired: Student's t of the
        differences of logarithms (Biometrika 6 (1908) 1-25).
    """
    del higher_is_better  # part of the agreed signature; see the docstring
    _check_settings(margin_ratio, confidence)
    log_base, log_candidate = _logs(base, "base"), _logs(candidate, "candidate")
    change = _mean(log_candidate) - _mean(log_base)
    interval, method = (_student, PAIRED_METHOD) if paired else (_welch, METHOD)
    half, p_value = interval(log_base, log_candidate, change, confidence)
    return Comparison(
        estimate_ratio=_exp(change),
        low_ratio=_exp(change - half),
        high_ratio=_exp(change + half),
        p_value=p_value,
        method=method,
        n_base=log_base.size,
        n_candidate=log_candidate.size,
    )


def _check_settings(margin_ratio: float, confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if not margin_ratio >= 0.0:
        raise ValueError(f"margin_ratio must be >= 0, got {margin_ratio}")


def _logs(values: Sequence[float] | FloatArray, side: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{side}: expected one value per run, got shape {array.shape}")
    if array.size < 2:
        raise ValueError(
            f"{side}: expected at least 2 values, one per run, got {array.size}. "
            "One value says nothing about its own spread; take more runs."
        )
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{side}: expected finite numbers, got {array.tolist()}")
    if not np.all(array > 0.0):
        raise ValueError(
            f"{side}: expected values above 0, got {array.tolist()}. A relative change from or to "
            "0 is not defined."
        )
    return np.log(array)


def _welch(
    log_base: FloatArray, log_candidate: FloatArray, change: float, confidence: float
) -> tuple[float, float]:
    """Return half the interval's width on the log scale and the two-sided p-value."""
    from scipy import special  # noqa: PLC0415 - its import is slow, and pytest loads us everywhere

    parts = np.array([_mean_variance(log_base), _mean_variance(log_candidate)])
    total = float(parts.sum())
    if total == 0.0:
        return 0.0, 1.0 if change == 0.0 else 0.0
    sizes = np.array([log_base.size, log_candidate.size])
    # Weights first: squaring a variance of 1e-170 would underflow to 0 / 0.
    weights = parts / total
    degrees = float(1.0 / (weights**2 / (sizes - 1)).sum())
    error = math.sqrt(total)
    half = float(special.stdtrit(degrees, 0.5 + confidence / 2)) * error
    return half, float(2 * special.stdtr(degrees, -abs(change) / error))


def _student(
    log_base: FloatArray, log_candidate: FloatArray, change: float, confidence: float
) -> tuple[float, float]:
    """Return half the interval's width and the two-sided p-value of paired sides."""
    from scipy import special  # noqa: PLC0415 - as in `_welch`

    if log_base.size != log_candidate.size:
        raise ValueError(
            f"paired sides must be equally long, got {log_base.size} and {log_candidate.size}"
        )
    error = math.sqrt(_mean_variance(log_candidate - log_base))
    if error == 0.0:
        return 0.0, 1.0 if change == 0.0 else 0.0
    degrees = log_base.size - 1
    half = float(special.stdtrit(degrees, 0.5 + confidence / 2)) * error
    return half, float(2 * special.stdtr(degrees, -abs(change) / error))


def _exp(log: float) -> float:
    """Return e to the `log`, infinity where a float cannot hold it.

    Two runs on each side can have interval ends that far out.
    """
    try:
        return math.exp(log)
    except OverflowError:
        return math.inf


def _mean(logs: FloatArray) -> float:
    """Return the mean; exactly the common value where all are equal."""
    low = float(logs.min())
    return low if low == float(logs.max()) else float(logs.mean())


def _mean_variance(logs: FloatArray) -> float:
    """Return the squared standard error of the mean; exactly 0 for equal values."""
    if float(logs.min()) == float(logs.max()):
        return 0.0
    return float(logs.var(ddof=1)) / logs.size
