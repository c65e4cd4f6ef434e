"""What a distribution check found: the records that are judged, stored and reported.

`CheckResult` is all of it. Knows no servers and no files; how evidence becomes an
outcome is in `draftgate.checks.judge`.
"""

import math
from dataclasses import dataclass
from enum import Enum

from draftgate.checks.exact import Finding

SCHEMA = 2
"""Version of `CheckResult` on disk. 1: first; 2: exact checks and probes of parameters."""


class CheckOutcome(Enum):
    """What a check says about a server."""

    PASS = "pass"  # noqa: S105 - an outcome, no password
    """No evidence against the target's law, and enough tokens to have found some."""
    LOSSY = "lossy"
    """The tokens do not follow the target's law."""
    NONCONFORMING = "nonconforming"
    """The tokens may follow the law, but drafts were not accepted by the stated rule."""
    MISMATCH = "mismatch"
    """Nothing speaks against the law, but something that must hold exactly does not."""
    INCONCLUSIVE = "inconclusive"
    """It can't be said; `Why` says why."""


class Why(Enum):
    """Why a check is inconclusive."""

    NUMERICS = "numerics"
    """Rounding explains what was seen, or can't be ruled out."""
    TOO_FEW_TOKENS = "too few tokens"
    """A fault of a size that matters could have been missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionEvidence:
    """What one condition's tokens say about one server.

    Attributes:
        condition: Name of the condition.
        tokens: Tokens looked at; first tokens of requests are not among them.
        alpha: Bound on false alarms of this e-process.
        log_e: Natural log of the e-value after the last token.
        peak_log_e: Its largest value on the way.
        alarm_at: Tokens after which it reached 1/alpha; None if never.
        family: Family of the direction with the most evidence.
        direction: What the tokens look like if that direction is the true law.
        scope: The part of the chain in which it was looked for.
        nats_per_token: That direction's log e-value / tokens; not above the fault's
            Kullback-Leibler divergence, up to chance.
        detectable_kl: Size of a fault that would have been found with probability .9,
            nats a token, if it lies along the lightest of the directions; a reference that
            knows bounds alone sees less (`Subject.blind_to`).
    """

    condition: str
    tokens: int
    alpha: float
    log_e: float
    peak_log_e: float
    alarm_at: int | None
    family: str
    direction: str
    scope: str
    nats_per_token: float
    detectable_kl: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JointEvidence:
    """What accept flags and tokens say together, where proposals are known.

    Attributes:
        condition: Name of the condition.
        places: Tokens of verify steps looked at.
        alpha: Bound on false alarms of this e-process.
        log_e: Natural log of the e-value after the last token.
        alarm_at: Tokens after which it reached 1/alpha; None if never.
        direction: The alternative with the most evidence.
        impossible: Tokens that the stated rule excludes.
        unclear: Chunks left out, since they can't be the yield of one step.
    """

    condition: str
    places: int
    alpha: float
    log_e: float
    alarm_at: int | None
    direction: str
    impossible: int
    unclear: int


@dataclass(frozen=True, slots=True)
class LikelyToken:
    """A token that was likely at some place; `text` is None where nobody can spell it."""

    token: int
    text: str | None
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstExample:
    """The token that speaks most for the direction that fired.

    Attributes:
        condition: Name of the condition.
        prompt_id: Which prompt it was.
        request: Running number of the request.
        index: Place of the token in the output, from 0.
        position: Place in its chunk, from 0.
        prefix: Last part of the text before it; None where nobody can spell it.
        token: Its id.
        text: Its text; None likewise.
        probability: Under the reference law.
        log_ratio: What it adds to the direction's log e-value.
        likely: What was likely instead, the likeliest first; empty where the reference
            can't tell.
        curl: A command that sends the request again.
    """

    condition: str
    prompt_id: str
    request: int
    index: int
    position: int
    prefix: str | None
    token: int
    text: str | None
    probability: float
    log_ratio: float
    likely: tuple[LikelyToken, ...]
    curl: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All evidence of one check.

    Attributes:
        checked: The server under test, one entry a condition.
        plain: The A/A arm, the server without speculation; empty if there is none.
        joint: Where proposals are known; empty otherwise.
    """

    checked: tuple[ConditionEvidence, ...]
    plain: tuple[ConditionEvidence, ...] = ()
    joint: tuple[JointEvidence, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of the server under test."""
        return sum(entry.tokens for entry in self.checked)

    @property
    def detectable_kl(self) -> float:
        """Size of a fault that would have been found in whichever condition it sits."""
        return max(entry.detectable_kl for entry in self.checked)

    @property
    def strongest(self) -> ConditionEvidence:
        """The condition whose evidence rose highest above its bound."""
        return max(self.checked, key=lambda entry: entry.peak_log_e + math.log(entry.alpha))

    @property
    def alarm(self) -> bool:
        """Whether any e-process has reached its bound, so that more tokens add nothing."""
        marginal = any(entry.alarm_at is not None for entry in (*self.checked, *self.plain))
        return marginal or any(entry.alarm_at is not None for entry in self.joint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """An outcome with its reasons, the decisive one first; `why` only where inconclusive."""

    outcome: CheckOutcome
    why: Why | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was checked against what.

    Attributes:
        url: Base address of the server under test.
        model: Name by which it serves its model.
        engine: Name of the engine whose API was spoken.
        k: Draft tokens per verify step; None if not known.
        dtype: What the server computes in, as the user says.
        reference: Name of the reference law.
        blind_to: What that reference can't see.
        plain_url: Base address of the A/A arm; None where there is none.
    """

    url: str
    model: str
    engine: str
    k: int | None
    dtype: str
    reference: str
    blind_to: tuple[str, ...]
    plain_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check as it is stored and reported.

    Attributes:
        subject: What was checked against what.
        judgement: What it means.
        findings: The numbers behind it.
        worst: The worst example; None unless some e-process reached its bound.
        alpha: Bound on the chance that any condition of a faultless server alarms.
        budget: As the user gave it, for example `60s`.
        elapsed_s: Seconds from the first request to the last judgement.
        requests: Requests that brought an answer, both arms.
        failures: Requests that brought none, each with the reason; they are no evidence.
        interrupted: Whether Ctrl-C ended it before its budget.
        started_at: Time of day, ISO 8601, UTC.
        draftgate: Version.
        mismatches: What had to hold exactly of answers and parameters and does not.
        parameters: (field, what the server did with it) of each probe: honoured, refused,
            ignored, broken, gone, or untold where the answer could not tell.
        not_probed: Why others were not probed, a sentence each.
        schema: Version of this record.
    """

    subject: Subject
    judgement: Judgement
    findings: Findings
    worst: WorstExample | None
    alpha: float
    budget: str
    elapsed_s: float
    requests: int
    failures: tuple[str, ...]
    interrupted: bool
    started_at: str
    draftgate: str
    mismatches: tuple[Finding, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    not_probed: tuple[str, ...] = ()
    schema: int = SCHEMA
