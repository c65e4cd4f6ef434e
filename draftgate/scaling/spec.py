"""Vocabulary of a HorizontalPodAutoscaler, `autoscaling/v2`: what it is told to do.

Names follow the Kubernetes API, in snake case, with the unit at the end
(`stabilizationWindowSeconds` is `stabilization_window_s`). Knows no metrics'
values, no history and no clock. Everything is checked when it is built.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from draftgate.errors import SpecError

_LONGEST_WINDOW_S = 3600
"""Largest stabilizationWindowSeconds that the API accepts (pkg/apis/autoscaling/validation)."""

_LONGEST_PERIOD_S = 1800
"""Largest periodSeconds that the API accepts (pkg/apis/autoscaling/validation)."""


class PolicyType(StrEnum):
    """What the value of a scaling policy counts."""

    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(StrEnum):
    """Which of several policies counts: the one that allows most, least, or none at all."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


class ControllerRules(StrEnum):
    """Whose rules the model follows.

    `CURRENT` looks at both stabilisation windows in every step, counts recent
    changes in both directions against a limit, and may have a tolerance for
    each direction. `V1_20` is the controller of Kubernetes 1.20: one tolerance,
    the window of the proposal's own direction alone, and limits that forget
    recent changes in the other direction. A low proposal is then lifted to the
    highest of the window even above the current count.
    """

    CURRENT = "current"
    V1_20 = "1.20"


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """How far the replica count may move within a period.

    Attributes:
        type: `Pods` or `Percent`.
        value: Pods, or per cent of the count at the start of the period; > 0.
        period_s: Length of the period (`periodSeconds`), in 1 to 1800 s.
    """

    type: PolicyType
    value: int
    period_s: int

    def __post_init__(self) -> None:
        """Check the ranges that the API checks.

        Raises:
            SpecError: If a value is out of range.
        """
        if self.value <= 0:
            raise SpecError(
                f"scaling policy {self.type}: expected a value > 0, got {self.value}. To forbid "
                "the direction, set selectPolicy to Disabled."
            )
        if not 1 <= self.period_s <= _LONGEST_PERIOD_S:
            raise SpecError(
                f"scaling policy {self.type}: expected periodSeconds in 1 to {_LONGEST_PERIOD_S}, "
                f"got {self.period_s}. Give a period inside the range."
            )


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """The behaviour in one direction (`behavior.scaleUp` or `behavior.scaleDown`).

    Attributes:
        stabilization_window_s: How far back proposals are looked at, 0 to 3600 s.
        select_policy: Which policy counts where several are given.
        policies: One or more.
        tolerance: Relative distance of the metric from its target that changes
            nothing in this direction, >= 0; 0.1 is the controller's default.
    """

    stabilization_window_s: int
    policies: tuple[ScalingPolicy, ...]
    select_policy: SelectPolicy = SelectPolicy.MAX
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        """Check the ranges that the API checks.

        Raises:
            SpecError: If a value is out of range or no policy is given.
        """
        if not 0 <= self.stabilization_window_s <= _LONGEST_WINDOW_S:
            raise SpecError(
                "scaling rules: expected stabilizationWindowSeconds in 0 to "
                f"{_LONGEST_WINDOW_S}, got {self.stabilization_window_s}. Give a window inside "
                "the range."
            )
        if not self.policies:
            raise SpecError(
                "scaling rules: expected at least one policy, got none. To forbid the direction, "
                "give one and set selectPolicy to Disabled."
            )
        if not (isfinite(self.tolerance) and self.tolerance >= 0):
            raise SpecError(
                f"scaling rules: expected a tolerance >= 0, got {self.tolerance}. 0.1 is the "
                "controller's default."
            )


DEFAULT_SCALE_UP = ScalingRules(
    stabilization_window_s=0,
    policies=(
        ScalingPolicy(PolicyType.PODS, 4, 15),
        ScalingPolicy(PolicyType.PERCENT, 100, 15),
    ),
)
"""What the API fills in for `behavior.scaleUp` (pkg/apis/autoscaling/v2/defaults.go)."""

DEFAULT_SCALE_DOWN = ScalingRules(
    stabilization_window_s=300,
    policies=(ScalingPolicy(PolicyType.PERCENT, 100, 15),),
)
"""What holds where `behavior.scaleDown` says nothing (the same file); the window is the default of
--horizontal-pod-autoscaler-downscale-stabilization."""


@dataclass(frozen=True, slots=True)
class HPASpec:
    """What one autoscaler is told.

    `behavior` is always there, with the API's defaults where nothing is said. A
    manifest without any takes an older path in the controller, which is not
    modelled.

    Attributes:
        max_replicas: Upper limit, >= 1.
        min_replicas: Lower limit, 0 to `max_replicas`. 0 holds for External and
            Object metrics only, which the API checks and the model does not.
        scale_up: Behaviour upwards.
        scale_down: Behaviour downwards.
        rules: Whose rules to follow.
    """

    max_replicas: int
    min_replicas: int = 1
    scale_up: ScalingRules = DEFAULT_SCALE_UP
    scale_down: ScalingRules = DEFAULT_SCALE_DOWN
    rules: ControllerRules = ControllerRules.CURRENT

    def __post_init__(self) -> None:
        """Check the limits against each other.

        Raises:
            SpecError: If they contradict each other, or ask 1.20 for two tolerances.
        """
        if not 0 <= self.min_replicas <= self.max_replicas or self.max_replicas < 1:
            raise SpecError(
                "HPA: expected 0 <= minReplicas <= maxReplicas and maxReplicas >= 1, got "
                f"{self.min_replicas} and {self.max_replicas}. Give limits in this order."
            )
        if self.rules is ControllerRules.V1_20 and self._tolerances_differ():
            raise SpecError(
                "HPA: controller 1.20 has one tolerance for both directions, got "
                f"{self.scale_up.tolerance} up and {self.scale_down.tolerance} down. Give one, or "
                "follow the current rules."
            )

    def _tolerances_differ(self) -> bool:
        return self.scale_up.tolerance != self.scale_down.tolerance

    def is_tolerated(self, ratio: float) -> bool:
        """Say whether a metric at `ratio` times its target changes nothing."""
        return 1.0 - self.scale_down.tolerance <= ratio <= 1.0 + self.scale_up.tolerance
