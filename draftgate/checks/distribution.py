"""Is sampled text still the target's? The run of a distribution check, round by round.

Asks, scores and judges in turn until the evidence or the budget ends it. It is handed
functions that ask and a reference that scores, so it opens no socket and knows no
engine. Every e-process may be stopped at any time.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from draftgate.checks.budget import Budget
from draftgate.checks.collect import Ask, Asked, Round, rounds
from draftgate.checks.conditions import Condition, share
from draftgate.checks.exact import Finding, Terms, answer_findings
from draftgate.checks.ledger import Ledger
from draftgate.checks.outcome import Findings, JointEvidence
from draftgate.clock import Clock
from draftgate.laws.answer import Answer
from draftgate.laws.reference import Reference
from draftgate.stats.directions import directions
from draftgate.stats.scores import Scores

AA_ALPHA = 1e-2
"""Bound on false alarms of the A/A arm. Looser than the check's own: what rounding does
to one arm it does to the other, so an A/A arm that comes near its bound is reason to
doubt; its false alarm costs a verdict and accuses nobody."""


class Joint(Protocol):
    """Evidence of accept flags and tokens together, where proposals are known."""

    def add(self, index: int, answers: Sequence[Answer]) -> None:
        """Take further answers of condition `index`."""
        ...

    def entries(self) -> tuple[JointEvidence, ...]:
        """Return what is to be reported, in order of the conditions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """How one check goes.

    Attributes:
        conditions: Settings of sampling; every round holds all of them.
        alpha: Bound on the chance that any condition of a faultless server alarms.
        budget: When it ends without an alarm.
        k: Draft tokens per verify step of the server under test; None if not known.
        vocabulary: Number of tokens; a larger number is safe and weaker.
        special: Number of special tokens; 0 if they are not known.
        seed: From which requests' seeds are made.
    """

    conditions: tuple[Condition, ...]
    alpha: float
    budget: Budget
    k: int | None
    vocabulary: int
    special: int
    seed: int

    def alpha_each(self, *, joint: bool) -> float:
        """Return the bound of each e-process; a joint one comes beside each condition's own."""
        return share(self.alpha, len(self.conditions) * (2 if joint else 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """Whom a check asks.

    Attributes:
        checked: Asks the server under test.
        plain: Asks the same build without speculation, the A/A arm; None if there is none.
        reference: Scores the answers of both.
        joint: Looks at drafts as well; None where proposals are not known.
    """

    checked: Ask
    plain: Ask | None
    reference: Reference
    joint: Joint | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a check is.

    Attributes:
        tokens: Tokens of the server under test so far.
        log_e: Log e-value of the condition nearest to its bound.
        bound: That bound, log(1/alpha).
        detectable_kl: Size of a fault that would have been found by now, nats a token.
        elapsed_s: Seconds since the first request.
    """

    tokens: int
    log_e: float
    bound: float
    detectable_kl: float
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What a check brought together.

    Attributes:
        findings: The evidence.
        checked: Answers and scores of the server under test.
        plain: Those of the A/A arm; None if there was none.
        requests: Answers received, both arms.
        failures: Requests without an answer.
        mismatches: What had to hold exactly of the checked server's answers and does not.
        interrupted: Whether Ctrl-C ended it.
        elapsed_s: Seconds from the first request.
    """

    findings: Findings
    checked: Ledger
    plain: Ledger | None
    requests: int
    failures: tuple[str, ...]
    interrupted: bool
    elapsed_s: float
    mismatches: tuple[Finding, ...] = ()


def gather(
    plan: CheckPlan,
    arms: Arms,
    prompts: Sequence[tuple[str, tuple[int, ...]]],
    clock: Clock,
    tell: Callable[[Progress], None],
) -> Gathered:
    """Ask and score until an e-process alarms, the budget is spent, or Ctrl-C.

    A round is a few requests of each condition; the A/A arm gets the same ones right
    after, so an alarm is always held against as many tokens without speculation.

    Args:
        plan: What to ask, and for how long.
        arms: Whom.
        prompts: Pairs of id and token ids.
        clock: Times the budget.
        tell: Called after each round.

    Raises:
        EngineError: If a server answers none of a round's requests.
    """
    run = _Run(plan, arms, clock)
    wanted = [condition.parameters for condition in plan.conditions]
    interrupted = False
    try:
        for asked in rounds(prompts, wanted, plan.seed):
            run.round(asked)
            tell(run.progress())
            if run.over():
                break
    except KeyboardInterrupt:  # the round that was open is left out as a whole
        interrupted = True
    return run.gathered(interrupted=interrupted)


class _Run:
    """State of one check."""

    def __init__(self, plan: CheckPlan, arms: Arms, clock: Clock) -> None:
        self._plan = plan
        self._arms = arms
        self._clock = clock
        self._start_ns = clock.now_ns()
        family, count = directions(plan.vocabulary, plan.special), len(plan.conditions)
        alpha = plan.alpha_each(joint=arms.joint is not None)
        self._checked = Ledger(plan.conditions, family, alpha)
        self._plain = Ledger(plan.conditions, family, share(AA_ALPHA, count))
        self._requests = 0
        self._failures: list[str] = []
        self._mismatches: list[Finding] = []

    def round(self, asked: Sequence[Asked]) -> None:
        """Take one round through both arms; nothing is kept of it unless all of it is there."""
        plan, arms = self._plan, self._arms
        found = arms.checked(asked)
        scores = arms.reference.score(found.answers, plan.k)
        if arms.plain is not None:
            plain = arms.plain(asked)
            plain_scores = arms.reference.score(plain.answers, None)
            _enter(self._plain, asked, plain, plain_scores)
            self._count(plain)
        _enter(self._checked, asked, found, scores)
        if arms.joint is not None:
            for index, answers in _by_condition(asked, found.answers).items():
                arms.joint.add(index, answers)
        self._mismatches += _mismatches(asked, found)
        self._count(found)

    def _count(self, found: Round) -> None:
        self._requests += len(found.answers)
        self._failures += found.failures

    def over(self) -> bool:
        """Return whether nothing more is to be asked."""
        spent = self._plan.budget.spent(self._checked.tokens, self._elapsed_s())
        return spent or self._findings().alarm

    def progress(self) -> Progress:
        """Return how far it is."""
        findings = self._findings()
        nearest = findings.strongest
        return Progress(
            tokens=findings.tokens,
            log_e=nearest.peak_log_e,
            bound=self._bound(),
            detectable_kl=findings.detectable_kl,
            elapsed_s=self._elapsed_s(),
        )

    def gathered(self, *, interrupted: bool) -> Gathered:
        """Return all of it."""
        return Gathered(
            findings=self._findings(),
            checked=self._checked,
            plain=self._plain if self._arms.plain is not None else None,
            requests=self._requests,
            failures=tuple(self._failures),
            interrupted=interrupted,
            elapsed_s=self._elapsed_s(),
            mismatches=tuple(self._mismatches),
        )

    def _findings(self) -> Findings:
        return Findings(
            checked=self._checked.entries(),
            plain=self._plain.entries() if self._arms.plain is not None else (),
            joint=self._arms.joint.entries() if self._arms.joint is not None else (),
        )

    def _bound(self) -> float:
        return -math.log(self._checked.alpha)

    def _elapsed_s(self) -> float:
        return (self._clock.now_ns() - self._start_ns) / 1e9


def _enter(ledger: Ledger, asked: Sequence[Asked], found: Round, scores: Scores) -> None:
    """Enter a round's answers, each with its rows, under their conditions."""
    ends = np.cumsum([max(len(answer.token_ids) - 1, 0) for answer in found.answers])
    assert len(scores) == ends[-1], "a row per token but the first"
    rows = dict(
        zip(
            (answer.request for answer in found.answers),
            np.split(np.arange(len(scores)), ends[:-1]),
            strict=True,
        )
    )
    for index, answers in _by_condition(asked, found.answers).items():
        picked = np.concatenate([rows[answer.request] for answer in answers])
        ledger.add(index, answers, scores.take(picked))


def _mismatches(asked: Sequence[Asked], found: Round) -> list[Finding]:
    """Return what does not hold exactly of a round's answers.

    How many tokens a chunk holds is left out: a server under load may put steps together.
    """
    lengths = {entry.request: entry.max_tokens for entry in asked}
    return [*found.mismatches] + [
        finding
        for answer in found.answers
        for finding in answer_findings(answer, Terms(max_tokens=lengths[answer.request]))
    ]


def _by_condition(asked: Sequence[Asked], answers: Sequence[Answer]) -> dict[int, list[Answer]]:
    """Return answers by the index of their condition, in order."""
    conditions = {entry.request: entry.condition for entry in asked}
    found: dict[int, list[Answer]] = {}
    for answer in answers:
        found.setdefault(conditions[answer.request], []).append(answer)
    return found
