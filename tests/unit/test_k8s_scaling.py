"""What the HPA of the manifests does over time, by the model of the controller.

The pool is a toy: each sync is given a wait and the pods that are ready. It shows what the
rules do with such a course, not how long a real server takes or how many pods a load needs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from draftgate.clock import ManualClock
from draftgate.scaling import (
    SYNC_PERIOD_S,
    Controller,
    ExternalValue,
    HPASpec,
    Metric,
    Pods,
    Unreadable,
)
from tests.support import manifests
from tests.support.manifests import read
from tests.support.scaling import rules_of

QUIET_MS = 270.0
"""What a server without a queue reads: nine tenths of vLLM's first bucket."""

CLAMP_MS = 2000.0
NEAR_MS = 850.0
"""Below the target by more than the tolerance."""

LOST = None
"""A sync that finds no series."""

TARGET_MILLI = manifests.target_ms(read()) * 1000

Course = Iterable[tuple[float | None, int]]
"""Wait in milliseconds, and ready pods, of each sync."""


def committed() -> HPASpec:
    """Return the HPA of the base."""
    (hpa,) = manifests.of_kind(read().base, "HorizontalPodAutoscaler")
    spec = hpa["spec"]
    behavior = spec["behavior"]
    return HPASpec(
        spec["maxReplicas"],
        spec["minReplicas"],
        rules_of(behavior["scaleUp"]),
        rules_of(behavior["scaleDown"]),
    )


def with_default_window(spec: HPASpec) -> HPASpec:
    """Return an HPA that waits 300 s before it shrinks, as the API does by default."""
    return replace(spec, scale_down=replace(spec.scale_down, stabilization_window_s=300))


@dataclass
class Pool:
    """A count of replicas and the autoscaler that owns it, which has just started."""

    spec: HPASpec
    replicas: int

    def __post_init__(self) -> None:
        """Start the controller."""
        self.clock = ManualClock()
        self.controller = Controller(self.spec, self.clock)

    def sync(self, wait_ms: float | None, ready: int) -> int:
        """Let the controller look once; return the new count."""
        metric: Metric = Unreadable("FailedGetExternalMetric")
        if wait_ms is not LOST:
            metric = ExternalValue((round(wait_ms * 1000),), TARGET_MILLI)
        pods = Pods(self.replicas, self.replicas, ready)
        self.replicas = self.controller.sync(pods, (metric,)).replicas
        self.clock.advance(SYNC_PERIOD_S)
        return self.replicas

    def run(self, course: Course) -> list[int]:
        """Return the count after each sync."""
        return [self.sync(wait_ms, ready) for wait_ms, ready in course]


def syncs(seconds: float) -> range:
    """Return one number for each sync within a time."""
    return range(round(seconds / SYNC_PERIOD_S))


def load(needed: int, *, start_s: float, for_s: float) -> list[tuple[int, int]]:
    """Return count and ready pods at each sync of a load that `needed` pods can serve.

    It begins at one pod. A pod is ready `start_s` after it was ordered. With too few ready the
    wait reads the clamp, with enough that of a quiet server.
    """
    pool = Pool(committed(), 1)
    ordered_s = [-start_s]
    steps = []
    for number in syncs(for_s):
        now_s = number * SYNC_PERIOD_S
        ready = sum(now_s - at_s >= start_s for at_s in ordered_s)
        count = pool.sync(CLAMP_MS if ready < needed else QUIET_MS, ready)
        ordered_s = ordered_s[:count] + [now_s] * (count - len(ordered_s))
        steps.append((count, ready))
    return steps


def test_overload_adds_one_pod_at_a_time() -> None:
    """The second pod comes at once, the third when the second is ready: the wait is clamped."""
    steps = load(3, start_s=300, for_s=1500)
    added = [number for number, (one, two) in enumerate(pairwise(steps), 1) if two[0] > one[0]]

    assert steps[0] == (2, 1)
    assert all(count <= 2 * ready for count, ready in steps)
    assert [number * SYNC_PERIOD_S for number in added] == [300, 360]
    assert steps[-1][1] >= 3


def test_a_wait_says_nothing_about_spare_pods() -> None:
    """A pool that suffices reads as quiet, shrinks below what is needed, and grows again."""
    counts = [count for count, _ in load(2, start_s=300, for_s=7200)]
    changes = [(one, two) for one, two in pairwise(counts) if one != two]

    assert changes[:2] == [(2, 1), (1, 2)]


def eased(spec: HPASpec) -> list[int]:
    """Return the counts after a burst that eases while the pod it ordered loads."""
    return Pool(spec, 1).run([(CLAMP_MS, 1), *((NEAR_MS, 1) for _ in syncs(1170))])


def half_ready(spec: HPASpec) -> list[int]:
    """Return the counts while 2 of 4 pods restart and the wait is near the target."""
    return Pool(spec, 4).run((NEAR_MS, 2) for _ in syncs(900))


def test_a_pod_that_loads_is_kept() -> None:
    """The proposal counts ready pods alone and is too low; the window outlasts a start."""
    assert set(eased(committed())) == {2}
    assert set(half_ready(committed())) == {4}


def test_the_default_window_would_take_it_away() -> None:
    """With 300 s a pod goes that has not served yet, and restarting pods shrink the pool."""
    spec = with_default_window(committed())

    assert eased(spec)[-1] == 1
    assert half_ready(spec)[-1] < 4


def test_no_ready_pod_does_not_empty_the_pool() -> None:
    """With none ready the proposal is 0 however long requests wait, and the count stays."""
    assert set(Pool(committed(), 3).run((CLAMP_MS, 0) for _ in syncs(1200))) == {3}


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_lost_metric_freezes(replicas: int) -> None:
    """For an hour without the series nothing changes."""
    counts = Pool(committed(), replicas).run((LOST, replicas) for _ in syncs(3600))

    assert set(counts) == {replicas}


def test_a_metric_lost_in_the_idle_pool_stops_the_way_down() -> None:
    """Pods that would have gone stay until the series is back."""
    pool = Pool(committed(), 4)
    before = pool.run((0.0, 4) for _ in syncs(1215))[-1]
    lost = pool.run((LOST, before) for _ in syncs(1800))

    assert before == 3
    assert set(lost) == {3}
    assert pool.run([(0.0, 3)]) == [2]


def test_an_idle_pool_shrinks_one_by_one() -> None:
    """After the window, one pod per two minutes, down to one."""
    counts = Pool(committed(), 4).run((0.0, 4) for _ in syncs(1800))
    falls = [number for number, (one, two) in enumerate(pairwise(counts), 1) if two < one]

    assert [number * SYNC_PERIOD_S for number in falls] == [1200, 1320, 1440]
    assert counts[-1] == 1


def test_a_quiet_pool_shrinks_too() -> None:
    """Traffic that never queues reads 270 ms, far enough below the target for one pod."""
    pool = Pool(committed(), 4)
    for _ in syncs(7200):
        pool.sync(QUIET_MS, pool.replicas)

    assert pool.replicas == 1


def test_waits_near_the_target_change_nothing() -> None:
    """Between 0.9 and 1.1 of the target the count stays."""
    waits = [905.0, 1095.0] * 40

    assert set(Pool(committed(), 2).run((wait, 2) for wait in waits)) == {2}
