"""The fallback of one class of traffic: a ladder of arms and which of them is in force.

A state machine. It is told what steps gave, which engines live and what time it is, and
says which arm the next request goes to and when that changes. It opens nothing, waits for
nothing and reads no clock. The first arm is the one wanted; the last one has no
speculation and is always good enough.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from draftgate.errors import SpecError
from draftgate.serve.fallback.evidence import Evidence, Reading, Rule, forgotten, reading, take


class Reason(Enum):
    """Why another arm is in force."""

    BELOW = "below_break_even"
    RETURN = "probes_above_break_even"
    GONE = "engine_gone"
    BACK = "engine_back"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a controller acts.

    Attributes:
        rule: When windows are evidence.
        dwell_s: Shortest time between two switches by evidence, >= 0; an engine that is gone
            does not wait.
        probe_share: Share of requests that go to an arm further up while one is fallen back
            from, in (0, 1).

    Raises:
        SpecError: If a number is out of its range.
    """

    rule: Rule = field(default_factory=Rule)
    dwell_s: float = 60.0
    probe_share: float = 0.05

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0 <= self.dwell_s < math.inf:
            raise SpecError(f"fallback: --dwell must be 0 or more seconds, got {self.dwell_s:g}.")
        if not 0 < self.probe_share < 1:
            raise SpecError(
                f"fallback: --probe-share must be above 0 and below 1, got {self.probe_share:g}. "
                "Without probes there is no way back."
            )


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of the arm in force.

    Attributes:
        before: The arm until then.
        after: The arm from now on.
        reason: Why.
        judged: The arm that the reason is about.
        window: Its latest window; None where engines came or went.
        windows: Windows behind the evidence; 0 likewise.
        held_s: How long the arm before was in force, seconds.
    """

    before: str
    after: str
    reason: Reason
    judged: str
    window: Reading | None
    windows: int
    held_s: float


@dataclass(frozen=True, slots=True)
class Turn:
    """Where one request goes: the arm, and whether it goes there to measure it."""

    arm: str
    probe: bool


BreakEvenOf = Callable[[str, float], float]
"""Returns break-even tokens per step of an arm at a number of running requests."""


class Controller:
    """One class of traffic.

    Args:
        ladder: Arms, the wanted one first, the one without speculation last; >= 2, no two alike.
        policy: How it acts.
        break_even: Says from when an arm pays.
        now_s: Time, by a clock that never jumps, seconds.

    Raises:
        SpecError: If the ladder is none.

    Attributes:
        ladder: As given.
        in_force: The arm that new requests go to.
        evidence: What is known of each arm.
    """

    def __init__(
        self, ladder: tuple[str, ...], policy: Policy, break_even: BreakEvenOf, now_s: float
    ) -> None:
        if len(ladder) < 2 or len(set(ladder)) < len(ladder):
            raise SpecError(
                f"fallback: got the arms {', '.join(ladder)}, expected two or more different ones."
            )
        self.ladder = ladder
        self.in_force = ladder[0]
        self.evidence = {arm: Evidence() for arm in ladder[:-1]}
        self._policy = policy
        self._break_even = break_even
        self._chosen = ladder[0]
        self._since_s = now_s
        self._gone: set[str] = set()
        self._requests = 0
        self._probes = 0

    def next(self, without: frozenset[str] = frozenset()) -> Turn | None:
        """Return where the next request goes; None if no arm is left.

        Args:
            without: Arms that this request has tried in vain.
        """
        alive = [arm for arm in self.ladder if arm not in self._gone | without]
        if not alive:
            return None
        if without:
            return Turn(self._nearest(alive), probe=False)
        above = [arm for arm in self._above() if arm in alive]
        self._requests += 1
        due = math.floor(self._requests * self._policy.probe_share)
        if due > math.floor((self._requests - 1) * self._policy.probe_share) and above:
            self._probes += 1
            return Turn(above[self._probes % len(above)], probe=True)
        return Turn(self.in_force, probe=False)

    def take(
        self, arm: str, counted: tuple[float, float, float], streams: float, now_s: float
    ) -> Switch | None:
        """Take what decode steps of an arm gave; return the switch that follows, if any.

        Args:
            arm: Which; what the last one and arms below the one in force give says nothing.
            counted: Output tokens, requests whose first token is among them, and accepted draft
                tokens, each >= 0.
            streams: Requests that ran at all engines together, mean.
            now_s: Time, seconds.
        """
        above = arm in self._above()
        if arm not in self.evidence or not (above or arm == self.in_force):
            return None
        rule = self._policy.rule
        more = reading(*counted, self._break_even(arm, streams), streams)
        steps = rule.probe_steps if above else rule.window_steps
        self.evidence[arm] = found = take(self.evidence[arm], more, steps, rule)
        below_share, above_share = found.shares(rule)
        if now_s - self._since_s < self._policy.dwell_s:
            return None
        if above and above_share >= 1:
            return self._choose(arm, arm, Reason.RETURN, now_s)
        if not above and below_share >= 1:
            return self._choose(self._further_down(arm), arm, Reason.BELOW, now_s)
        return None

    def set_alive(self, arm: str, now_s: float, *, alive: bool) -> Switch | None:
        """Take that an engine has ended, or is ready again; return the switch that follows."""
        (self._gone.discard if alive else self._gone.add)(arm)
        if arm in self.evidence:
            self.evidence[arm] = forgotten(self.evidence[arm])
        return self._moved(arm, Reason.BACK if alive else Reason.GONE, now_s)

    def _above(self) -> tuple[str, ...]:
        return self.ladder[: self.ladder.index(self.in_force)]

    def _further_down(self, arm: str) -> str:
        """Return the next living arm below; the last one if none of them lives."""
        below = self.ladder[self.ladder.index(arm) + 1 :]
        return next((one for one in below if one not in self._gone), below[-1])

    def _nearest(self, alive: list[str]) -> str:
        """Return the chosen arm if it is there, else the next one down, else the next one up."""
        at = self.ladder.index(self._chosen)
        order = (*self.ladder[at:], *reversed(self.ladder[:at]))
        return next(arm for arm in order if arm in alive)

    def _choose(self, arm: str, judged: str, reason: Reason, now_s: float) -> Switch | None:
        self._chosen = arm
        return self._moved(judged, reason, now_s)

    def _moved(self, judged: str, reason: Reason, now_s: float) -> Switch | None:
        """Put the arm in force that should be; evidence begins anew if that is another one."""
        alive = [arm for arm in self.ladder if arm not in self._gone]
        after = self._nearest(alive) if alive else self.in_force
        if after == self.in_force:
            return None
        known = self.evidence.get(judged)
        by_evidence = known if reason in (Reason.BELOW, Reason.RETURN) else None
        switch = Switch(
            before=self.in_force,
            after=after,
            reason=reason,
            judged=judged,
            window=None if by_evidence is None else by_evidence.last,
            windows=0 if by_evidence is None else by_evidence.windows,
            held_s=now_s - self._since_s,
        )
        self.in_force, self._since_s, self._requests = after, now_s, 0
        self.evidence = {arm: forgotten(one) for arm, one in self.evidence.items()}
        return switch
