"""What windows, policies and limits make of a proposal: `behavior` of an autoscaler.

Pure functions of the proposal and of what happened lately, each entry with its
age. Knows no metrics and no clock; `hpa.py` keeps the history.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from draftgate.scaling.spec import (
    ControllerRules,
    HPASpec,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)


class Limit(StrEnum):
    """What kept the count from the stabilised proposal: reasons of `ScalingLimited`."""

    WITHIN_RANGE = "DesiredWithinRange"
    SCALE_UP = "ScaleUpLimit"
    SCALE_DOWN = "ScaleDownLimit"
    TOO_MANY = "TooManyReplicas"
    TOO_FEW = "TooFewReplicas"


@dataclass(frozen=True, slots=True)
class Past:
    """A count of some time ago: replicas proposed, or pods added or removed.

    Attributes:
        age_s: Seconds before now, >= 0.
        count: Replicas or pods.
    """

    age_s: float
    count: int


@dataclass(frozen=True, slots=True)
class Recent:
    """What the controller remembers.

    Attributes:
        proposals: Replicas proposed, before windows and limits.
        added: Pods added by each scale-up, counts > 0.
        removed: Pods removed by each scale-down, counts > 0.
    """

    proposals: tuple[Past, ...] = ()
    added: tuple[Past, ...] = ()
    removed: tuple[Past, ...] = ()


@dataclass(frozen=True, slots=True)
class Limited:
    """A count inside all limits, and which limit it ran into."""

    replicas: int
    limit: Limit


def stabilize(spec: HPASpec, current: int, proposal: int, proposals: tuple[Past, ...]) -> int:
    """Return the count that the stabilisation windows let through.

    Up it goes to the lowest proposal of the scale-up window, down to the highest
    of the scale-down window; between the two the current count stays. An entry
    exactly as old as the window no longer counts.

    Args:
        spec: Whose windows and rules count.
        current: Replicas now.
        proposal: What the metrics ask for now.
        proposals: What they asked for before, in any order.

    Returns:
        Replicas, not yet limited.

    Source:
        `stabilizeRecommendationWithBehaviors` in
        pkg/controller/podautoscaler/horizontal.go.
    """
    low = min([proposal, *_younger(proposals, spec.scale_up.stabilization_window_s)])
    high = max([proposal, *_younger(proposals, spec.scale_down.stabilization_window_s)])
    if spec.rules is ControllerRules.V1_20:
        return low if proposal >= current else high
    return min(max(current, low), high)


def limit(spec: HPASpec, current: int, desired: int, recent: Recent) -> Limited:
    """Return `desired` cut to what policies, minReplicas and maxReplicas allow.

    Policies never push the count in the other direction: where more was added
    lately than a policy allows, the count stays.

    Args:
        spec: Whose policies and limits count.
        current: Replicas now.
        desired: Stabilised proposal.
        recent: Scale events; proposals do not count here.

    Returns:
        The count, and what it ran into.

    Source:
        `convertDesiredReplicasWithBehaviorRate` in
        pkg/controller/podautoscaler/horizontal.go.
    """
    if desired > current:
        allowed = max(scale_up_limit(spec, current, recent), current)
        top = min(spec.max_replicas, allowed)
        reason = Limit.SCALE_UP if spec.max_replicas > allowed else Limit.TOO_MANY
        return Limited(top, reason) if desired > top else Limited(desired, Limit.WITHIN_RANGE)
    if desired < current:
        allowed = min(scale_down_limit(spec, current, recent), current)
        bottom = max(spec.min_replicas, allowed)
        reason = Limit.SCALE_DOWN if spec.min_replicas < allowed else Limit.TOO_FEW
        return Limited(bottom, reason) if desired < bottom else Limited(desired, Limit.WITHIN_RANGE)
    return Limited(desired, Limit.WITHIN_RANGE)


def scale_up_limit(spec: HPASpec, current: int, recent: Recent) -> int:
    """Return the largest count that the scale-up policies allow; may be below `current`.

    A percentage rounds up, so that a small count can grow at all.

    Source:
        `calculateScaleUpLimitWithScalingRules` in
        pkg/controller/podautoscaler/horizontal.go.
    """
    rules = spec.scale_up
    if rules.select_policy is SelectPolicy.DISABLED:
        return current
    select = min if rules.select_policy is SelectPolicy.MIN else max
    removed = () if spec.rules is ControllerRules.V1_20 else recent.removed
    return select(
        _raised(policy, _period_start(policy, current, recent.added, removed))
        for policy in rules.policies
    )


def scale_down_limit(spec: HPASpec, current: int, recent: Recent) -> int:
    """Return the smallest count that the scale-down policies allow; may be above `current`.

    A percentage of what stays is truncated, so the change rounds up here too.

    Source:
        `calculateScaleDownLimitWithBehaviors` in
        pkg/controller/podautoscaler/horizontal.go.
    """
    rules = spec.scale_down
    if rules.select_policy is SelectPolicy.DISABLED:
        return current
    # The policy that allows the largest change gives the smallest count.
    select = max if rules.select_policy is SelectPolicy.MIN else min
    added = () if spec.rules is ControllerRules.V1_20 else recent.added
    return select(
        _lowered(policy, _period_start(policy, current, added, recent.removed))
        for policy in rules.policies
    )


def _raised(policy: ScalingPolicy, start: int) -> int:
    if policy.type is PolicyType.PODS:
        return start + policy.value
    return ceil(start * (1 + policy.value / 100))


def _lowered(policy: ScalingPolicy, start: int) -> int:
    if policy.type is PolicyType.PODS:
        return start - policy.value
    return int(start * (1 - policy.value / 100))


def _period_start(
    policy: ScalingPolicy, current: int, added: tuple[Past, ...], removed: tuple[Past, ...]
) -> int:
    return current - sum(_younger(added, policy.period_s)) + sum(_younger(removed, policy.period_s))


def _younger(entries: tuple[Past, ...], window_s: float) -> list[int]:
    return [entry.count for entry in entries if entry.age_s < window_s]


def longest_period_s(rules: ScalingRules) -> int:
    """Return how long a scale event can still count, seconds."""
    return max(policy.period_s for policy in rules.policies)
