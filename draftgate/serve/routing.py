"""Where each request goes: the arm in force for its class, or another that lives.

Joins the fleet of engines with the fallback controllers: feeds them with what engines and
answers count, and tells when they switch. With a single arm there is nothing to decide.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from draftgate.clock import Clock
from draftgate.errors import SpecError
from draftgate.records import EngineCounters
from draftgate.serve.exchange import Exchange
from draftgate.serve.fallback.breakeven import BreakEven
from draftgate.serve.fallback.classes import Classes
from draftgate.serve.fallback.controller import Controller, Policy, Switch
from draftgate.serve.fleet import Fleet
from draftgate.serve.lines import switch_line
from draftgate.serve.metrics import ArmState, Metrics
from draftgate.serve.relay import Upstream
from draftgate.specs import Arm

PER_REQUEST_ARGS = ("--per-request-spec-decode-metrics", "summary")
"""vLLM 0.29 and later: answers carry what was drafted and accepted for them."""


@dataclass(frozen=True, slots=True)
class FallbackSpec:
    """A ladder of arms and how to go along it.

    Attributes:
        arms: Below the wanted one, in order; the last one has no speculation.
        policy: When to switch.
        break_even: From when an arm pays.
        class_header: Header that labels a request's class, in lower case; None to judge all
            traffic together, by the engines' own counters.
    """

    arms: tuple[Arm, ...]
    policy: Policy
    break_even: BreakEven
    class_header: str | None = None


def checked_ladder(arms: Sequence[Arm], *, per_request: bool) -> tuple[Arm, ...]:
    """Return the arms of a ladder as they have to be started.

    Args:
        arms: The wanted one first.
        per_request: Whether answers have to carry what was accepted for them.

    Raises:
        SpecError: If the last arm has speculation, or another one has none.
    """
    *upper, last = arms
    if last.engine.speculative is not None:
        raise SpecError(
            f"serve: the last arm of --fallback is {last.name!r} with method "
            f"{last.engine.speculative.method!r}, expected one without speculation. Add 'none'."
        )
    for arm in upper:
        if arm.engine.speculative is None:
            raise SpecError(
                f"serve: arm {arm.name!r} has no speculation and stands before others in the "
                "ladder, expected it last. Name it last in --fallback."
            )
    return (*(_counted(arm) for arm in upper), last) if per_request else tuple(arms)


def _counted(arm: Arm) -> Arm:
    """Return an arm whose answers carry what was accepted; others must do so by themselves."""
    engine = arm.engine
    if engine.engine != "vllm" or PER_REQUEST_ARGS[0] in engine.args:
        return arm
    return replace(arm, engine=replace(engine, args=(*engine.args, *PER_REQUEST_ARGS)))


class Router:
    """Where requests go, while a front runs.

    Args:
        fleet: The engines.
        fallback: How to choose among them; None with one arm.
        metrics: Counts.
        tell: Takes lines.
        clock: Of the dwell.
    """

    def __init__(
        self,
        fleet: Fleet,
        fallback: FallbackSpec | None,
        metrics: Metrics,
        tell: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._fleet, self._fallback, self._clock = fleet, fallback, clock
        self._metrics, self._tell = metrics, tell
        self._ladder = tuple(fleet.members)
        self._streams = 1.0
        self._classes: Classes | None = None
        if fallback is not None:
            self._classes = Classes(
                self._ladder, fallback.policy, fallback.break_even.tokens_per_step, self._now_s()
            )
        metrics.arms_of(self.states)

    def choose(self, exchange: Exchange | None) -> Upstream:
        """Return where a request goes, and note it there.

        Args:
            exchange: The request; None to ask whether there is an engine at all.

        Raises:
            EngineAwayError: If no engine is left that it has not tried.
        """
        if self._classes is None:
            return self._fleet.upstream(self._ladder[0])
        if exchange is None:
            alive = [arm for arm in self._ladder if self._fleet.is_there(arm)]
            return self._fleet.upstream(alive[0] if alive else self._ladder[0])
        exchange.kind, controller = self._classes.of(exchange.kind, self._now_s())
        while True:
            turn = controller.next(frozenset(exchange.tried))
            if turn is None:
                raise self._fleet.away(self._ladder[0])
            exchange.arm, exchange.probe = turn.arm, turn.probe
            if self._fleet.is_there(turn.arm):
                break
            exchange.tried.add(turn.arm)  # ended a moment ago
        if turn.probe:
            self._metrics.probed(exchange.kind, turn.arm)
        return self._fleet.upstream(turn.arm)

    def over(self, exchange: Exchange) -> None:
        """Take what an answer tells of its own drafts, where classes are judged apart."""
        fallback = self._fallback
        if fallback is None or self._classes is None or fallback.class_header is None:
            return
        if exchange.tokens is None or exchange.accepted is None or exchange.arm is None:
            return
        kind, controller = self._classes.of(exchange.kind, self._now_s())
        counted = (float(exchange.tokens), 1.0, float(exchange.accepted))
        self._take(kind, controller, exchange.arm, counted)

    def ran(self, streams: float) -> None:
        """Take how many requests ran at all engines together, mean since the last time."""
        self._streams = max(1.0, streams)

    def counted(self, arm: str, counters: EngineCounters) -> None:
        """Take what an arm's engine counted, where all traffic is judged together."""
        fallback, drafts = self._fallback, counters.speculation
        if self._classes is None or fallback is None or fallback.class_header is not None:
            return
        if drafts is None or counters.generation_tokens == 0:
            return
        counted = (
            float(counters.generation_tokens),
            float(counters.queue_time_count),
            float(drafts.num_accepted_tokens),
        )
        self._take("", self._classes.controllers[""], arm, counted)

    def changed(self, arm: str, *, alive: bool) -> None:
        """Take that an engine has ended, or is ready again."""
        if alive:
            self._metrics.restarted(arm)
        if self._classes is None:
            return
        self._classes.set_alive(arm, alive=alive)
        for kind, controller in self._classes.controllers.items():
            self._announce(kind, controller.set_alive(arm, self._now_s(), alive=alive))

    def states(self) -> Iterator[ArmState]:
        """Yield what metrics tell of each class and arm."""
        controllers = {} if self._classes is None else self._classes.controllers
        for arm in self._ladder:
            break_even = None
            if self._fallback is not None and arm != self._ladder[-1]:
                break_even = self._fallback.break_even.tokens_per_step(arm, self._streams)
            yield ArmState(
                arm=arm,
                up=self._fleet.is_there(arm),
                break_even=break_even,
                in_force={kind: one.in_force == arm for kind, one in controllers.items()},
                tokens_per_step={
                    kind: last.tokens_per_step
                    for kind, one in controllers.items()
                    if arm in one.evidence and (last := one.evidence[arm].last) is not None
                },
            )

    def _take(
        self, kind: str, controller: Controller, arm: str, counted: tuple[float, float, float]
    ) -> None:
        known = controller.evidence.get(arm)
        before = None if known is None else known.problem
        self._announce(kind, controller.take(arm, counted, self._streams, self._now_s()))
        problem = None if known is None else controller.evidence[arm].problem
        if problem is not None and problem != before:
            self._tell(f"[fallback] {arm}: no spread can be learned, {problem}; learning anew")

    def _announce(self, kind: str, switch: Switch | None) -> None:
        if switch is not None:
            self._metrics.switched(kind, switch.reason.value)
            self._tell(switch_line(kind, switch))

    def _now_s(self) -> float:
        return self._clock.now_ns() / 1e9
