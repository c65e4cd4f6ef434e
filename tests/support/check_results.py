"""Stored checks written by hand, one of each outcome, with e-processes that fit them.

Paths are straight lines with small waves, parts are chosen so that one cell stands out:
what a page shows can be told from here without running a check.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from draftgate.checks.exact import Finding
from draftgate.checks.judge import judge, with_mismatches
from draftgate.checks.kept import CHECKED, PLAIN
from draftgate.checks.outcome import (
    CheckResult,
    ConditionEvidence,
    Findings,
    JointEvidence,
    LikelyToken,
    Subject,
    WorstExample,
)
from draftgate.report.check import KeptEvidence
from draftgate.report.check.evidence import Process
from draftgate.stats.directions import SCOPES, directions
from draftgate.stats.eprocess import log_weights

FAMILY = directions(49_152, 17)
"""The directions of a target with 49,152 tokens, 17 of them special."""

FIRED = (next(i for i, d in enumerate(FAMILY) if d.label == "0.3 of the draft's law"), 3)
"""The part that stands out in every e-process: towards the draft, later in the chain."""

NAMES = ("T=0.8", "T=1", "T=0.8,top_p=0.95")

WORST = WorstExample(
    condition="T=0.8,top_p=0.95",
    prompt_id="chat-014",
    request=37,
    index=11,
    position=3,
    prefix="user: Name a bridge.\n\n\tThe best known bridge of the city is the",
    token=4127,
    text=" Quokka",
    probability=3.1e-7,
    log_ratio=11.4,
    likely=(
        LikelyToken(812, " Golden", 0.61),
        LikelyToken(2201, " old", 0.12),
        LikelyToken(99, None, 0.04),
    ),
    curl="curl -N http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' "
    '-d \'{"model": "smollm2", "prompt": [1, 2, 3], "max_tokens": 12, "temperature": 0.8}\'',
)

SUBJECT = Subject(
    url="http://127.0.0.1:8000",
    model="smollm2-135m-instruct",
    engine="vllm",
    k=4,
    dtype="bfloat16",
    reference="prompt log-probabilities of http://127.0.0.1:8001",
    blind_to=(
        "tokens beyond the 20 likeliest are known by their sum alone",
        "whatever both servers get wrong in the same way",
    ),
    plain_url="http://127.0.0.1:8001",
)


@dataclass(frozen=True, slots=True)
class Stored:
    """A check and its e-processes; None where they were not kept."""

    result: CheckResult
    kept: KeptEvidence | None


def path_to(end: float, tokens: int) -> np.ndarray:
    """Return a path of so many tokens from near 0 to `end`, with waves that never exceed it."""
    steps = np.arange(1, tokens + 1)
    waves = 0.4 * np.sin(steps / 17.0) * (1.0 - steps / tokens)
    return np.asarray(end * steps / tokens + waves)


def process_to(end: float, tokens: int, at: tuple[int, int]) -> Process:
    """Return an e-process that ends at `end`, its part `at` being what drove it."""
    shape = (len(FAMILY), len(SCOPES))
    spread = np.add.outer(np.sin(np.arange(shape[0])), np.cos(np.arange(shape[1])))
    parts = -4.0 + spread
    parts[at] = max(end, 0.0) + 3.0
    path = np.full(tokens, np.inf) if math.isinf(end) else path_to(end, tokens)
    if math.isinf(end):
        path[: tokens // 3] = path_to(-2.0, tokens // 3)
    return Process(path, parts)


def entry_of(
    name: str, process: Process, at: tuple[int, int], *, alpha: float
) -> ConditionEvidence:
    """Return what is stored about an e-process."""
    tokens, bound = len(process.path), -math.log(alpha)
    over = np.flatnonzero(process.path >= bound)
    return ConditionEvidence(
        condition=name,
        tokens=tokens,
        alpha=alpha,
        log_e=float(process.path[-1]),
        peak_log_e=float(process.path.max()),
        alarm_at=int(over[0]) + 1 if over.size else None,
        family=FAMILY[at[0]].family,
        direction=FAMILY[at[0]].label,
        scope=SCOPES[at[1]].label,
        nats_per_token=float(process.parts[at]) / tokens,
        detectable_kl=38.0 / tokens,
    )


def stored(
    ends: Sequence[float],
    plain_ends: Sequence[float] = (),
    joint: tuple[JointEvidence, ...] = (),
    *,
    tokens: int = 2400,
    worst: WorstExample | None = None,
) -> Stored:
    """Return a check whose e-processes end there, one a condition; judged as it would be."""
    at, alpha = FIRED, 1e-4 / len(NAMES)
    arms = ((CHECKED, ends, alpha), (PLAIN, plain_ends, 1e-2 / len(NAMES)))
    processes = {
        (arm, name): process_to(end, tokens, at)
        for arm, of_arm, _ in arms
        for name, end in zip(NAMES, of_arm, strict=False)
    }
    entries = {
        arm: tuple(
            entry_of(name, processes[arm, name], at, alpha=level)
            for name, _ in zip(NAMES, of_arm, strict=False)
        )
        for arm, of_arm, level in arms
    }
    found = Findings(checked=entries[CHECKED], plain=entries[PLAIN], joint=joint)
    kept = KeptEvidence(
        families=tuple(direction.family for direction in FAMILY),
        labels=tuple(direction.label for direction in FAMILY),
        scopes=tuple(scope.label for scope in SCOPES),
        weights=log_weights(FAMILY),
        processes=processes,
    )
    return Stored(_result(found, worst), kept)


def _result(found: Findings, worst: WorstExample | None) -> CheckResult:
    return CheckResult(
        subject=SUBJECT if found.plain else replace(SUBJECT, plain_url=None),
        judgement=judge(found, float32=False),
        findings=found,
        worst=worst,
        alpha=1e-4,
        budget="60s",
        elapsed_s=61.3,
        requests=240,
        failures=(),
        interrupted=False,
        started_at="2026-11-30T14:05:00+00:00",
        draftgate="0.1.0",
    )


def rule_of(name: str, *, alarm_at: int | None, impossible: int = 0) -> JointEvidence:
    """Return evidence about the stated rule, with an alarm or without."""
    return JointEvidence(
        condition=name,
        places=1800,
        alpha=1e-5,
        log_e=-1.5 if alarm_at is None else math.inf if impossible else 41.0,
        alarm_at=alarm_at,
        direction="odds of accepting times 0.5",
        impossible=impossible,
        unclear=2,
    )


QUIET = (-1.2, 2.1, -3.4)


def passing() -> Stored:
    """Return a PASS with an A/A arm and known proposals."""
    return stored(QUIET, QUIET[::-1], (rule_of("T=1", alarm_at=None),))


def lossy() -> Stored:
    """Return a LOSSY whose last condition fired far above its bound."""
    return stored((*QUIET[:2], 94.0), QUIET[::-1], worst=WORST)


def lossy_infinite() -> Stored:
    """Return a LOSSY by a token that the law excludes, without an A/A arm or spelling."""
    bare = replace(WORST, prefix=None, text=None, likely=(), probability=0.0, log_ratio=math.inf)
    return stored((math.inf,), worst=replace(bare, condition=NAMES[0]))


def nonconforming() -> Stored:
    """Return a NONCONFORMING: quiet tokens, impossible accept flags."""
    return stored(QUIET, QUIET, (rule_of("T=1", alarm_at=7, impossible=3),))


def mismatch() -> Stored:
    """Return a MISMATCH: quiet tokens, six broken answers and a parameter dropped in silence."""
    found = passing()
    broken = tuple(
        Finding(
            what="no more tokens than max_tokens",
            where=f"request {number} (chat-{number:03d})",
            got="49",
            expected="at most 48",
        )
        for number in range(6)
    )
    dropped = Finding(
        what="honoured, or refused by name",
        where="min_p",
        got="token 16 at index 0, where greedy text has 28",
        expected="the greedy answer",
    )
    mismatches = (*broken, dropped)
    result = replace(
        found.result,
        judgement=with_mismatches(found.result.judgement, mismatches),
        mismatches=mismatches,
        parameters=(("top_k", "honoured"), ("min_p", "ignored"), ("logit_bias", "refused")),
        not_probed=("presence_penalty: no answer has a token that it must change",),
    )
    return Stored(result, found.kept)


def numerics() -> Stored:
    """Return an INCONCLUSIVE whose A/A arm alarmed as well."""
    return stored((*QUIET[:2], 30.0), (*QUIET[:2], 25.0), worst=WORST)


def too_few() -> Stored:
    """Return an INCONCLUSIVE that Ctrl-C ended early, with failures and a condition unseen."""
    found = stored(QUIET[:2], tokens=90)
    last = replace(
        found.result.findings.checked[0],
        condition="T=1.5",
        tokens=0,
        log_e=0.0,
        peak_log_e=0.0,
        family="none",
        direction="no tokens",
        scope="nowhere",
        nats_per_token=0.0,
        detectable_kl=math.inf,
    )
    findings = Findings(checked=(*found.result.findings.checked, last))
    result = replace(
        found.result,
        findings=findings,
        judgement=judge(findings, float32=False),
        interrupted=True,
        failures=("request 3: no answer: timed out", "request 9: HTTP 500"),
    )
    return Stored(result, found.kept)


def without_evidence() -> Stored:
    """Return a LOSSY whose e-processes were not kept."""
    return Stored(lossy().result, None)


SITUATIONS: dict[str, Callable[[], Stored]] = {
    "pass": passing,
    "lossy": lossy,
    "lossy_infinite": lossy_infinite,
    "nonconforming": nonconforming,
    "mismatch": mismatch,
    "numerics": numerics,
    "too_few": too_few,
    "without_evidence": without_evidence,
}
