"""How many replicas the metrics ask for, before windows, policies and limits.

One pure function per kind of metric, and one that puts several together.
Values are in thousandths, whole numbers, as the controller has them
(`resource.Quantity.MilliValue`); ratios are double precision. Knows no history
and no clock.
"""

from dataclasses import dataclass
from math import ceil

from draftgate.errors import SpecError
from draftgate.scaling.spec import HPASpec


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of the scaled workload at one moment.

    Attributes:
        spec_replicas: What the scale subresource asks for.
        status_replicas: How many exist.
        ready: How many run and are ready.
    """

    spec_replicas: int
    status_replicas: int
    ready: int

    def __post_init__(self) -> None:
        """Check the counts.

        Raises:
            SpecError: If one is below 0.
        """
        if min(self.spec_replicas, self.status_replicas, self.ready) < 0:
            raise SpecError(
                f"pods: expected counts >= 0, got {self.spec_replicas} asked for, "
                f"{self.status_replicas} there and {self.ready} ready. Give counts of pods."
            )


@dataclass(frozen=True, slots=True)
class _External:
    """An External metric.

    Attributes:
        series_milli: The returned series, thousandths; their sum counts.
        target_milli: Target, thousandths, > 0.
    """

    series_milli: tuple[int, ...]
    target_milli: int

    def __post_init__(self) -> None:
        """Check the target.

        Raises:
            SpecError: If it is not above 0.
        """
        _check_target(self.target_milli)


@dataclass(frozen=True, slots=True)
class ExternalValue(_External):
    """An External metric with a target of type `Value`, for the sum: right for a latency."""


@dataclass(frozen=True, slots=True)
class ExternalAverageValue(_External):
    """An External metric with a target of type `AverageValue`, per replica: right for a count."""


@dataclass(frozen=True, slots=True)
class PodsMetric:
    """A Pods metric, with a target of type `AverageValue`.

    Attributes:
        samples_milli: Values of the running pods that report one, thousandths.
        missing: Running pods without a sample.
        pending: Pods that do not run yet; a value of theirs does not count.
        target_milli: Target of the mean, thousandths, > 0.
    """

    samples_milli: tuple[int, ...]
    missing: int
    pending: int
    target_milli: int

    def __post_init__(self) -> None:
        """Check target and counts.

        Raises:
            SpecError: If one is out of range.
        """
        _check_target(self.target_milli)
        if min(self.missing, self.pending) < 0:
            raise SpecError(
                f"Pods metric: expected counts >= 0, got {self.missing} missing and "
                f"{self.pending} pending. Give counts of pods."
            )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A metric that could not be read.

    Attributes:
        reason: Of the condition, such as `FailedGetExternalMetric`.
    """

    reason: str


Metric = ExternalValue | ExternalAverageValue | PodsMetric | Unreadable


def propose(spec: HPASpec, pods: Pods, metrics: tuple[Metric, ...]) -> int | Unreadable:
    """Return the replicas that all metrics together ask for.

    The largest proposal counts. A metric that can't be read might have asked
    for more, so with one missing nothing scales down; what the others ask for
    above the current count still happens.

    Args:
        spec: Whose tolerances count.
        pods: The workload now.
        metrics: One or more.

    Returns:
        A count >= 0, not yet stabilised or limited; the first unreadable metric
        if no decision can be made.

    Raises:
        SpecError: If there are no metrics.

    Source:
        `computeReplicasForMetrics` in pkg/controller/podautoscaler/horizontal.go.
    """
    if not metrics:
        raise SpecError("HPA: expected at least one metric, got none. Add one to spec.metrics.")
    proposals = [propose_one(spec, pods, metric) for metric in metrics]
    counts = [proposal for proposal in proposals if isinstance(proposal, int)]
    failures = [proposal for proposal in proposals if isinstance(proposal, Unreadable)]
    if failures and (not counts or max(counts) < pods.spec_replicas):
        return failures[0]
    return max(counts)


def propose_one(spec: HPASpec, pods: Pods, metric: Metric) -> int | Unreadable:
    """Return the replicas that one metric asks for, or the metric if it can't be read."""
    match metric:
        case ExternalValue():
            return external_value(spec, pods, metric)
        case ExternalAverageValue():
            return external_average_value(spec, pods, metric)
        case PodsMetric():
            return pods_metric(spec, pods, metric)
        case Unreadable():
            return metric


def external_value(spec: HPASpec, pods: Pods, metric: ExternalValue) -> int:
    """Return ceil(sum / target x ready pods), or the current count inside the tolerance.

    The factor is the ready pods, not the count asked for: with none ready the
    proposal is 0 however large the metric is. From 0 replicas it is the ratio
    alone.

    Source:
        `GetExternalMetricReplicas` and `getUsageRatioReplicaCount` in
        pkg/controller/podautoscaler/replica_calculator.go.
    """
    ratio = sum(metric.series_milli) / metric.target_milli
    if pods.spec_replicas == 0:
        return ceil(ratio)
    if spec.is_tolerated(ratio):
        return pods.spec_replicas
    return ceil(ratio * pods.ready)


def external_average_value(spec: HPASpec, pods: Pods, metric: ExternalAverageValue) -> int:
    """Return ceil(sum / target), or the count that exists inside the tolerance.

    Source:
        `GetExternalPerPodMetricReplicas` in
        pkg/controller/podautoscaler/replica_calculator.go.
    """
    usage_milli = sum(metric.series_milli)
    # Without replicas the controller divides by 0 in floating point: never inside the tolerance.
    if pods.status_replicas > 0 and spec.is_tolerated(
        usage_milli / (metric.target_milli * pods.status_replicas)
    ):
        return pods.status_replicas
    return ceil(usage_milli / metric.target_milli)


def pods_metric(spec: HPASpec, pods: Pods, metric: PodsMetric) -> int | Unreadable:
    """Return ceil(mean / target x pods), careful about pods that say nothing.

    A pod without a sample counts as the target where the others ask for fewer
    pods, and as 0 where they ask for more; a pending pod counts as 0 for more.
    If that turns the direction round, or lands inside the tolerance, nothing
    changes.

    Source:
        `calcPlainMetricReplicas` in
        pkg/controller/podautoscaler/replica_calculator.go.
    """
    samples = metric.samples_milli
    if not samples:
        return Unreadable("FailedGetPodsMetric")
    ratio = _mean_ratio(samples, metric.target_milli)
    fills_pending = metric.pending > 0 and ratio > 1.0
    if not fills_pending and not metric.missing:
        return pods.spec_replicas if spec.is_tolerated(ratio) else ceil(ratio * len(samples))
    filled = samples + (metric.target_milli if ratio < 1.0 else 0,) * metric.missing
    filled += (0,) * metric.pending if fills_pending else ()
    filled_ratio = _mean_ratio(filled, metric.target_milli)
    if spec.is_tolerated(filled_ratio) or _opposite(ratio - 1, filled_ratio - 1):
        return pods.spec_replicas
    proposal = ceil(filled_ratio * len(filled))
    turned = _opposite(filled_ratio - 1, proposal - pods.spec_replicas)
    return pods.spec_replicas if turned else proposal


def _mean_ratio(samples_milli: tuple[int, ...], target_milli: int) -> float:
    # The controller's mean is an integer division, in thousandths.
    return (sum(samples_milli) // len(samples_milli)) / target_milli


def _opposite(before: float, after: float) -> bool:
    return before < 0 < after or after < 0 < before


def _check_target(target_milli: int) -> None:
    if target_milli <= 0:
        raise SpecError(
            f"HPA: expected a metric's target > 0, got {target_milli} thousandths. Give a target "
            "above 0."
        )
