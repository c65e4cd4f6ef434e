"""The run of a distribution check against a model of known law, without a server."""

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from draftgate.checks.collect import Ask, Asked, Round
from draftgate.checks.distribution import Arms, Gathered, Progress, gather
from draftgate.checks.example import Witness, worst_example, worst_of
from draftgate.checks.judge import judge
from draftgate.checks.kept import CHECKED, PLAIN, SCORES, read_scores, write_check
from draftgate.checks.outcome import CheckOutcome, Why
from draftgate.clock import ManualClock
from draftgate.errors import BaselineError
from draftgate.laws.answer import Answer
from draftgate.stats.eprocess import evidence
from tests.support.scripted_law import PROMPTS, ScriptedReference, model_ask, plan, rule_of
from tests.unit.test_checks_outcome import RESULT

WITNESS = Witness(
    text=lambda ids: " ".join(map(str, ids)),
    likely=lambda answer, index: ((answer.token_ids[index], 0.5),),
    curl=lambda answer: f"curl {answer.request}",
)


def taken(
    checked: Ask, plain: Ask | None = None, budget: str = "700", *names: str, alpha: float = 1e-4
) -> Gathered:
    """Take a check with a clock that stands still."""
    arms = Arms(checked=checked, plain=plain, reference=ScriptedReference())
    return gather(plan(budget, *names, alpha=alpha), arms, PROMPTS, ManualClock(), lambda _: None)


def test_faultless_model_passes() -> None:
    """Speculation by the rule leaves no alarm in either arm."""
    found = taken(model_ask(), model_ask(k=0, seed=1), "1400")

    assert judge(found.findings, float32=True).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("fault", ["greedy", "hot", "recovered_from_target"])
def test_fault_is_caught(fault: str) -> None:
    """Each planted fault of the law alarms within 3,000 tokens, and stops the check there."""
    found = taken(model_ask(fault=fault), model_ask(k=0, seed=1), "3000")

    assert judge(found.findings, float32=True).outcome is CheckOutcome.LOSSY
    assert found.findings.tokens < 3000
    assert found.findings.checked[0].peak_log_e >= -math.log(1e-4)


def test_conditions_go_on_together_and_share_alpha() -> None:
    """Every round has tokens of each condition, and its e-process has its part of alpha."""
    found = taken(model_ask(), None, "900", "T=1", "T=0.8")

    assert [entry.tokens for entry in found.findings.checked] == [681, 729]
    assert {entry.alpha for entry in found.findings.checked} == {5e-5}


def test_time_budget_ends_after_the_round() -> None:
    """A time that is up ends the check with whole rounds only."""
    clock = ManualClock()
    ask = model_ask()

    def slow(requests: Sequence[Asked]) -> Round:
        clock.advance(25)
        return ask(requests)

    arms = Arms(checked=slow, plain=None, reference=ScriptedReference())
    found = gather(plan("60s"), arms, PROMPTS, clock, lambda _: None)

    assert found.elapsed_s == 75
    assert found.findings.tokens == 211 + 2 * 705


def test_ctrl_c_keeps_whole_rounds() -> None:
    """What an interrupted round brought is left out, since fast answers are not a fair sample."""
    told: list[Progress] = []
    ask = model_ask()

    def interrupted(requests: Sequence[Asked]) -> Round:
        if told:
            raise KeyboardInterrupt
        return ask(requests)

    arms = Arms(checked=model_ask(), plain=interrupted, reference=ScriptedReference())
    found = gather(plan("9000"), arms, PROMPTS, ManualClock(), told.append)

    assert found.interrupted
    assert [entry.tokens for entry in found.findings.checked + found.findings.plain] == [211, 211]
    assert told[0].tokens == 211


def test_failures_are_counted_and_no_evidence() -> None:
    """Requests without an answer are told and leave no row."""
    ask = model_ask()

    def failing(requests: Sequence[Asked]) -> Round:
        return Round(ask(requests[:4]).answers, ("request 4: stalled",))

    found = taken(failing, None, "100")

    assert found.failures == ("request 4: stalled",)
    assert found.requests == 4


def test_progress_tells_size_and_evidence() -> None:
    """The size that would be found falls with tokens, and the bound is that of one condition."""
    told: list[Progress] = []
    arms = Arms(checked=model_ask(), plain=None, reference=ScriptedReference())
    gather(plan("2800", "T=1", "T=0.8"), arms, PROMPTS, ManualClock(), told.append)

    sizes = [at.detectable_kl for at in told]
    assert len(sizes) > 2
    assert sizes == sorted(sizes, reverse=True)
    assert told[0].bound == pytest.approx(-math.log(5e-5))


def test_condition_without_answers_is_seen() -> None:
    """A condition whose requests all fail keeps the check from passing."""
    ask = model_ask()

    def half(requests: Sequence[Asked]) -> Round:
        return ask([entry for entry in requests if entry.condition == 0])

    found = taken(half, None, "2000", "T=1", "T=0.8")
    judged = judge(found.findings, float32=True)

    assert math.isinf(found.findings.detectable_kl)
    assert judged.why is Why.TOO_FEW_TOKENS
    assert "T=0.8" in judged.reasons[0]


def test_worst_example_points_at_the_planted_token() -> None:
    """One impossible token among hundreds is the one that is shown, with its place and text."""
    ask = model_ask()

    def planting(requests: Sequence[Asked]) -> Round:
        return Round(tuple(_with_token(answer, 30) for answer in ask(requests).answers))

    found = taken(planting, None, "700", "T=1,top_k=3")
    worst = worst_example(found.checked, 0, WITNESS)

    assert worst is not None
    assert (worst.request, worst.index, worst.probability) == (4, 20, 0.0)
    assert worst.text == "30"
    assert worst.prefix is not None
    assert worst.prefix.split()[0] == "3"
    assert worst.curl == "curl 4"
    assert judge(found.findings, float32=False).outcome is CheckOutcome.LOSSY


@pytest.mark.parametrize(
    ("faults", "points_at"),
    [((None, "hot"), "plain"), (("hot", "hot"), "curl"), ((None, None), "")],
)
def test_worst_example_points_at_the_arm_that_alarmed(
    faults: tuple[str | None, str | None], points_at: str
) -> None:
    """The A/A arm's own example is asked of the A/A arm; without an alarm there is none."""
    checked, plain = faults
    found = taken(model_ask(fault=checked), model_ask(fault=plain, k=0, seed=1), "1400")
    worst = worst_of(found, WITNESS, replace(WITNESS, curl=lambda _: "plain"))

    assert ("" if worst is None else worst.curl.split()[0]) == points_at


def _with_token(answer: Answer, token: int) -> Answer:
    """Return request 4's answer with another token at place 20; others as they are."""
    if answer.request != 4:
        return answer
    ids = (*answer.token_ids[:20], token)
    return Answer(
        request=4,
        prompt_id=answer.prompt_id,
        prompt_token_ids=answer.prompt_token_ids,
        token_ids=ids,
        chunks=(1,) * 21,
        finish_reason="length",
        parameters=answer.parameters,
    )


def test_stored_scores_give_the_same_path(tmp_path: Path) -> None:
    """Both arms' scores are read back whole, and the e-process drawn from them is the same."""
    found = taken(model_ask(), model_ask(k=0, seed=1))
    write_check(tmp_path, RESULT, found)

    for arm, ledger in ((CHECKED, found.checked), (PLAIN, found.plain)):
        scores = read_scores(tmp_path, arm, "T=1")
        known = ledger.evidence(0) if ledger is not None else None
        assert scores is not None
        assert known is not None
        assert np.array_equal(evidence(scores, found.checked.family).path, known.path)
    assert read_scores(tmp_path, CHECKED, "T=9") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["check.json", "scores.npz"]


@pytest.mark.parametrize("damage", ["absent", "empty", "text", "cut", "flipped", "one array"])
def test_damaged_scores_are_one_error(tmp_path: Path, damage: str) -> None:
    """Whatever is wrong with the file, it is named with what to do, and left closed."""
    write_check(tmp_path, RESULT, taken(model_ask()))
    path = tmp_path / SCORES
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = bytes(255 - byte for byte in whole[: middle // 2])
    array = io.BytesIO()
    np.save(array, np.arange(3))
    texts = {
        "empty": b"",
        "text": b"no archive",
        "cut": whole[:middle],
        "flipped": whole[:200] + flipped + whole[200 + len(flipped) :],
        "one array": array.getvalue(),
    }
    path.unlink()
    if damage in texts:
        path.write_bytes(texts[damage])

    with pytest.raises(BaselineError, match=r"scores\.npz: got no readable scores .* again"):
        read_scores(tmp_path, CHECKED, "T=1")


def with_rule(checked: Ask, budget: str) -> Gathered:
    """Take a check that holds drafts against the rule as well."""
    wanted = plan(budget)
    arms = Arms(checked=checked, plain=None, reference=ScriptedReference(), joint=rule_of(wanted))
    return gather(wanted, arms, PROMPTS, ManualClock(), lambda _: None)


def test_rule_kept_passes() -> None:
    """Steps by the rule leave no evidence, and both kinds of e-process share alpha."""
    found = with_rule(model_ask(), "2000")
    (joint,) = found.findings.joint

    assert judge(found.findings, float32=True).outcome is CheckOutcome.PASS
    assert (joint.impossible, joint.unclear) == (0, 0)
    assert joint.places == found.findings.tokens
    assert joint.alpha == found.findings.checked[0].alpha == 5e-5


def test_rule_broken_under_the_right_law_is_nonconforming() -> None:
    """Steps that end after an accepted draft keep the law and are found by the rule alone."""
    found = with_rule(model_ask(fault="early_end", share=0.1), "3000")
    judged = judge(found.findings, float32=True)

    assert judged.outcome is CheckOutcome.NONCONFORMING, judged
    assert found.findings.joint[0].impossible > 0
    assert found.findings.checked[0].alarm_at is None


def test_merged_chunks_are_left_out() -> None:
    """Chunks of two steps in one are no evidence against the rule, and are counted."""
    ask = model_ask()

    def merging(requests: Sequence[Asked]) -> Round:
        return Round(tuple(map(_merged, ask(requests).answers)))

    found = with_rule(merging, "2000")
    (joint,) = found.findings.joint

    assert judge(found.findings, float32=True).outcome is CheckOutcome.PASS
    assert joint.impossible == 0
    assert joint.unclear > 50


def _merged(answer: Answer) -> Answer:
    """Return an answer whose every tenth chunk came together with the one after it."""
    sizes = list(answer.chunks)
    for at in range(len(sizes) - 2, 0, -10):
        sizes[at : at + 2] = [sizes[at] + sizes[at + 1]]
    return replace(answer, chunks=tuple(sizes))
