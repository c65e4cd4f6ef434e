"""From evidence to a verdict: each outcome, its reasons, its words and its file."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.checks.exact import Finding
from draftgate.checks.judge import (
    FLOOR_NATS,
    LARGEST_DETECTABLE_KL,
    judge,
    with_mismatches,
)
from draftgate.checks.outcome import (
    CheckOutcome,
    CheckResult,
    ConditionEvidence,
    Findings,
    JointEvidence,
    Judgement,
    LikelyToken,
    Subject,
    Why,
    WorstExample,
)
from draftgate.checks.words import lines, title
from draftgate.cli.exits import Exit, exit_for_check
from draftgate.codec import decode, encode
from draftgate.errors import BaselineError

QUIET = ConditionEvidence(
    condition="T=1",
    tokens=3000,
    alpha=1e-4,
    log_e=-2.0,
    peak_log_e=1.0,
    alarm_at=None,
    family="greedy",
    direction="5% most likely",
    scope="everywhere",
    nats_per_token=0.001,
    detectable_kl=0.008,
)
ALARM = replace(QUIET, log_e=30.0, peak_log_e=31.0, alarm_at=900, nats_per_token=0.01)
JOINT = JointEvidence(
    condition="T=1",
    places=500,
    alpha=1e-4,
    log_e=math.inf,
    alarm_at=7,
    direction="odds of accepting times 0.5",
    impossible=3,
    unclear=0,
)


def outcome_of(found: Findings, *, float32: bool = False) -> tuple[CheckOutcome, Why | None]:
    """Return the outcome alone."""
    judged = judge(found, float32=float32)
    return judged.outcome, judged.why


def test_quiet_is_a_pass() -> None:
    """No alarm and enough tokens pass, and the size that would have been found is stated."""
    judged = judge(Findings(checked=(QUIET,), plain=(QUIET,)), float32=False)

    assert judged.outcome is CheckOutcome.PASS
    assert "a fault of 0.008 nats a token" in judged.reasons[0]
    assert len(judged.reasons) == 1


def test_alarm_is_lossy() -> None:
    """An alarm beside a quiet A/A arm is LOSSY and says where and how."""
    judged = judge(Findings(checked=(QUIET, ALARM), plain=(QUIET, QUIET)), float32=False)

    assert judged.outcome is CheckOutcome.LOSSY
    assert "alarm after 900 of 3000 tokens" in judged.reasons[0]
    assert "'5% most likely' (greedy), everywhere" in judged.reasons[0]
    assert "follows the same reference" in judged.reasons[1]


def test_alarm_without_an_aa_arm_says_so() -> None:
    """LOSSY without a second server names what was not ruled out."""
    judged = judge(Findings(checked=(ALARM,)), float32=False)

    assert judged.outcome is CheckOutcome.LOSSY
    assert "no A/A arm could run" in judged.reasons[1]


@pytest.mark.parametrize("checked", [QUIET, ALARM])
def test_alarm_of_the_aa_arm_is_numerics(checked: ConditionEvidence) -> None:
    """Whatever the server under test shows, a reference that fits nobody accuses nobody."""
    found = Findings(checked=(checked,), plain=(ALARM,), joint=(JOINT,))

    assert outcome_of(found, float32=True) == (CheckOutcome.INCONCLUSIVE, Why.NUMERICS)


def test_alarm_below_the_floor_is_numerics_unless_float32() -> None:
    """What rounding could do is no fault in bfloat16 and one in float32."""
    found = Findings(checked=(replace(ALARM, nats_per_token=FLOOR_NATS / 2),), plain=(QUIET,))

    assert outcome_of(found) == (CheckOutcome.INCONCLUSIVE, Why.NUMERICS)
    assert "--dtype float32" in judge(found, float32=False).reasons[1]
    assert outcome_of(found, float32=True) == (CheckOutcome.LOSSY, None)


def test_alarm_ahead_of_the_aa_arm_waits() -> None:
    """An alarm at a token that the A/A arm has not reached is not held against the server."""
    found = Findings(checked=(ALARM,), plain=(replace(QUIET, tokens=800),))

    assert outcome_of(found) == (CheckOutcome.INCONCLUSIVE, Why.TOO_FEW_TOKENS)


def test_joint_alarm_is_nonconforming_unless_the_law_broke_too() -> None:
    """The rule is judged after the law: LOSSY says more."""
    judged = judge(Findings(checked=(QUIET,), joint=(JOINT,)), float32=False)

    assert judged.outcome is CheckOutcome.NONCONFORMING
    assert "3 of them are impossible" in judged.reasons[0]
    assert outcome_of(Findings(checked=(ALARM,), joint=(JOINT,)))[0] is CheckOutcome.LOSSY


def test_too_few_tokens_do_not_pass() -> None:
    """A condition in which a fault that matters could hide makes the check inconclusive."""
    weak = replace(QUIET, tokens=100, detectable_kl=2 * LARGEST_DETECTABLE_KL)
    none = replace(QUIET, condition="T=2", tokens=0, detectable_kl=math.inf)

    assert outcome_of(Findings(checked=(QUIET, weak)))[1] is Why.TOO_FEW_TOKENS
    assert "2.0 times" in judge(Findings(checked=(weak,)), float32=True).reasons[0]
    assert "T=2" in judge(Findings(checked=(QUIET, none)), float32=True).reasons[0]


def test_pass_below_the_floor_says_what_it_can_not_say() -> None:
    """A budget that reaches sizes of rounding is told so, and offered float32."""
    fine = replace(QUIET, detectable_kl=FLOOR_NATS / 2)
    said = " ".join(judge(Findings(checked=(fine,), plain=(fine,)), float32=False).reasons)
    exact = judge(Findings(checked=(fine,), plain=(fine,)), float32=True).reasons

    assert "can't tell a fault from rounding" in said
    assert "--dtype float32" in said
    assert len(exact) == 1


MISMATCHES = tuple(
    Finding(what="a rule", where=f"request {number}", got="1", expected="2") for number in range(7)
)


@pytest.mark.parametrize("outcome", list(CheckOutcome))
def test_mismatch_decides_unless_the_law_is_broken(outcome: CheckOutcome) -> None:
    """Exact checks have no chance in them: nothing passes beside one, and few are told."""
    judged = Judgement(outcome=outcome, why=None, reasons=("as it was",))

    found = with_mismatches(judged, MISMATCHES)

    accused = outcome in (CheckOutcome.LOSSY, CheckOutcome.NONCONFORMING)
    assert found.outcome is (outcome if accused else CheckOutcome.MISMATCH)
    assert "as it was" in found.reasons
    assert "request 0: a rule: got 1, expected 2 (the first of 7)" in found.reasons
    assert with_mismatches(judged, ()) == judged


RESULT = CheckResult(
    subject=Subject(
        url="http://host:1",
        model="target",
        engine="vllm",
        k=4,
        dtype="bfloat16",
        reference="forward pass",
        blind_to=("the first token",),
        plain_url=None,
    ),
    judgement=judge(Findings(checked=(ALARM,), joint=(JOINT,)), float32=False),
    findings=Findings(checked=(ALARM,), joint=(JOINT,)),
    worst=WorstExample(
        condition="T=1",
        prompt_id="chat-001",
        request=17,
        index=5,
        position=2,
        prefix="once upon",
        token=11,
        text=" frog",
        probability=1e-7,
        log_ratio=9.0,
        likely=(LikelyToken(3, " a", 0.9),),
        curl="curl -N http://host:1/v1/completions",
    ),
    alpha=1e-4,
    budget="60s",
    elapsed_s=12.0,
    requests=75,
    failures=("request 3: stalled: no byte for 120 s",),
    interrupted=True,
    started_at="2026-01-01T00:00:00+00:00",
    draftgate="0",
)


def test_words_hold_what_a_person_needs() -> None:
    """Verdict first; then reference and its blind spots, numbers, failures and the example."""
    said = "\n".join(lines(RESULT))

    assert said.startswith("LOSSY: target at http://host:1\n")
    for part in (
        "stopped by Ctrl-C",
        "can't see: the first token",
        "T=1: 3000 tokens, log e-value 31.0 of 9.2",
        "ALARM after 900",
        "1 of 76 requests brought no answer",
        "token 11 ' frog' with probability 1e-07",
        "after: 'once upon'",
        "' a' with probability 0.9",
        "again: curl -N",
    ):
        assert part in said


def test_evidence_of_nearly_nothing_is_zero() -> None:
    """Numbers that round to zero from below are printed without a sign."""
    quiet = replace(QUIET, log_e=-0.01, peak_log_e=-0.01)
    found = Findings(checked=(quiet,), joint=(replace(JOINT, log_e=-0.04),))
    said = "\n".join(lines(replace(RESULT, findings=found)))

    assert "T=1: 3000 tokens, log e-value 0.0 of 9.2" in said
    assert "verify steps, log e-value 0.0 of 9.2" in said


def test_title_names_why() -> None:
    """An inconclusive verdict carries its reason in its name."""
    judged = judge(Findings(checked=(QUIET,), plain=(ALARM,)), float32=False)

    assert title(judged) == "INCONCLUSIVE (numerics)"


def test_result_is_read_back_as_written() -> None:
    """JSON keeps every field, infinite evidence included."""
    assert decode(CheckResult, encode(RESULT), "check") == RESULT


@pytest.mark.parametrize("outcome", CheckOutcome)
def test_every_outcome_has_a_code(outcome: CheckOutcome) -> None:
    """Only PASS is green; lack of evidence is told apart from a fault."""
    expected = {CheckOutcome.PASS: Exit.OK, CheckOutcome.INCONCLUSIVE: Exit.INCONCLUSIVE}

    assert exit_for_check(outcome) is expected.get(outcome, Exit.REGRESSION)


@pytest.mark.parametrize("text", [None, "{", '{"schema": 99}', '{"schema": 1}', "[]"])
def test_damaged_file_is_one_error(tmp_path: Path, text: str | None) -> None:
    """An absent, damaged, older or half check is refused and never read in part."""
    from draftgate.checks.kept import RESULT as NAME
    from draftgate.checks.kept import read_check

    if text is not None:
        (tmp_path / NAME).write_text(text)

    with pytest.raises(BaselineError, match="check"):
        read_check(tmp_path)
