"""A model of the HorizontalPodAutoscaler controller: one decision per sync.

Joins `proposal` and `behavior` and keeps what they need from one sync to the
next: proposals and scale events. Reads the clock it is given, never sleeps,
starts nothing. It does not model pods: who calls it says how many are ready.
"""

from dataclasses import dataclass, field

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.scaling.behavior import Limit, Past, Recent, limit, longest_period_s, stabilize
from draftgate.scaling.proposal import Metric, Pods, Unreadable, propose
from draftgate.scaling.spec import HPASpec

SYNC_PERIOD_S = 15.0
"""How often the controller looks: default of --horizontal-pod-autoscaler-sync-period."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What one sync decided, with the reasons of the conditions in the HPA's status.

    Attributes:
        replicas: What the scale subresource is set to.
        proposal: What the metrics asked for; None where they were not asked or
            could not be read.
        stabilized: The proposal behind the windows; None with `proposal`.
        able_to_scale: Reason of `AbleToScale`.
        scaling_active: Reason of `ScalingActive`; None where the sync did not touch it.
        scaling_limited: Reason of `ScalingLimited`; None where the sync did not touch it.
    """

    replicas: int
    proposal: int | None = None
    stabilized: int | None = None
    able_to_scale: str = "SucceededGetScale"
    scaling_active: str | None = None
    scaling_limited: Limit | None = None


@dataclass(slots=True)
class Controller:
    """The controller of one autoscaler, with its memory.

    Like the real one it forgets everything when it is made anew: the first sync
    enters the current count as a proposal, so a restart holds a scale-down back
    for a whole window.

    Attributes:
        spec: What the autoscaler is told.
        clock: Gives the ages of proposals and events.
    """

    spec: HPASpec
    clock: Clock = SYSTEM_CLOCK
    _proposals: list[tuple[int, int]] = field(default_factory=list)
    _added: list[tuple[int, int]] = field(default_factory=list)
    _removed: list[tuple[int, int]] = field(default_factory=list)

    def sync(self, pods: Pods, metrics: tuple[Metric, ...]) -> Decision:
        """Decide once, and remember it.

        Call it every `SYNC_PERIOD_S`. What it returns is taken as done: the next
        call should say so in `pods.spec_replicas`.

        Args:
            pods: The workload now.
            metrics: What the metrics API returned now, one or more.

        Returns:
            The decision.

        Raises:
            SpecError: If there are no metrics.

        Source:
            `reconcileAutoscaler` in pkg/controller/podautoscaler/horizontal.go.
        """
        now_ns = self.clock.now_ns()
        if not self._proposals:
            self._proposals.append((now_ns, pods.spec_replicas))
        decision = self._decide(now_ns, pods, metrics)
        change = decision.replicas - pods.spec_replicas
        if change:
            (self._added if change > 0 else self._removed).append((now_ns, abs(change)))
        return decision

    def _decide(self, now_ns: int, pods: Pods, metrics: tuple[Metric, ...]) -> Decision:
        current = pods.spec_replicas
        if current == 0 and self.spec.min_replicas > 0:
            return Decision(0, scaling_active="ScalingDisabled")
        inside = min(max(current, self.spec.min_replicas), self.spec.max_replicas)
        if inside != current:
            return Decision(inside, able_to_scale="SucceededRescale")
        proposal = propose(self.spec, pods, metrics)
        if isinstance(proposal, Unreadable):
            return Decision(current, scaling_active=proposal.reason)
        return self._behave(now_ns, current, proposal)

    def _behave(self, now_ns: int, current: int, proposal: int) -> Decision:
        recent = self._recall(now_ns)
        stabilized = stabilize(self.spec, current, proposal, recent.proposals)
        self._proposals.append((now_ns, proposal))
        limited = limit(self.spec, current, stabilized, recent)
        return Decision(
            limited.replicas,
            proposal,
            stabilized,
            _able_to_scale(current, proposal, stabilized, limited.replicas),
            "ValidMetricFound",
            limited.limit,
        )

    def _recall(self, now_ns: int) -> Recent:
        up, down = self.spec.scale_up, self.spec.scale_down
        window_s = max(up.stabilization_window_s, down.stabilization_window_s)
        # Either direction's limits count the events of both.
        period_s = max(longest_period_s(up), longest_period_s(down))
        return Recent(
            _keep(self._proposals, now_ns, window_s),
            _keep(self._added, now_ns, period_s),
            _keep(self._removed, now_ns, period_s),
        )


def _keep(entries: list[tuple[int, int]], now_ns: int, longest_s: float) -> tuple[Past, ...]:
    """Drop what no window can reach any more; return the rest with ages."""
    entries[:] = [entry for entry in entries if now_ns - entry[0] <= longest_s * 1e9]
    return tuple(Past((now_ns - at_ns) / 1e9, count) for at_ns, count in entries)


def _able_to_scale(current: int, proposal: int, stabilized: int, replicas: int) -> str:
    if replicas != current:
        return "SucceededRescale"
    if stabilized == proposal:
        return "ReadyForNewScale"
    return "ScaleUpStabilized" if proposal >= current else "ScaleDownStabilized"
