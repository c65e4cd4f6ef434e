"""Greedy text under every speculative arm, read by the server without speculation."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import pytest

from draftgate.checks.ask import in_parallel
from draftgate.checks.completions import PATH, answers_of, teacher_rows
from draftgate.checks.exact import Terms, answer_findings
from draftgate.checks.regret import GreedyResult, Regrets, judge_greedy, regrets_from_top
from draftgate.checks.spelling import ServerSpelling
from draftgate.datasets import Prompt, load_prompts
from draftgate.engines.running import RunningEngine
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters
from draftgate.specs import Arm, Profile
from tests.correctness.conftest import in_float32

pytestmark = pytest.mark.correctness

PROMPTS = 18
TOKENS = 48
GREEDY = LawParameters(temperature=0)

Prompts = dict[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def prompts(reference: RunningEngine) -> Prompts:
    """Six prompts of each kind, as token ids."""
    spelling = ServerSpelling(reference.post, reference.model)
    wanted = load_prompts("mixed", seed=7)[:PROMPTS]
    ids = in_parallel(spelling.ids, wanted)
    return {prompt.prompt_id: found for prompt, found in zip(wanted, ids, strict=True)}


@pytest.fixture(scope="module")
def expected(reference: RunningEngine, prompts: Prompts) -> list[Answer]:
    """Greedy answers without speculation."""
    return answers(reference, prompts)


@pytest.fixture(scope="module")
def same(reference: RunningEngine, expected: list[Answer]) -> Regrets:
    """Their own flips when the server reads them: another batch shape, nothing else (A/A)."""
    return read_by(reference, expected)


def answers(engine: RunningEngine, prompts: Prompts) -> list[Answer]:
    """Return the server's greedy answers in the order of the prompts, several open at once."""

    def ask(prompt: Prompt) -> Answer:
        ids = prompts[prompt.prompt_id]
        body = {"model": engine.model, "prompt": list(ids), "max_tokens": TOKENS}
        body |= {"temperature": 0, "return_token_ids": True, "ignore_eos": True}
        (answer,) = answers_of(engine.post(PATH, body), prompt.prompt_id, ids, GREEDY)
        return answer

    return in_parallel(ask, [Prompt(name, "any", ()) for name in prompts])


def read_by(reference: RunningEngine, given: list[Answer]) -> Regrets:
    """Return the flips of all answers by the reference's log-probabilities."""

    def flips(answer: Answer) -> Regrets:
        rows = teacher_rows(reference.post, reference.model, answer)
        return regrets_from_top(answer, rows)

    return reduce(Regrets.__add__, [flips(answer) for answer in given])


@pytest.fixture
def arm(
    serve: Callable[[Arm], RunningEngine], profile: Profile, speculative_arm: str
) -> RunningEngine:
    """The server of one speculative arm, in float32."""
    return serve(in_float32(profile.arm(speculative_arm)))


def described(result: GreedyResult, engine: RunningEngine) -> str:
    """Return the outcome with the texts of tokens."""
    spelling = ServerSpelling(engine.post, engine.model)
    return result.describe(lambda token: spelling.text([token]) or "")


def test_greedy_text_is_the_targets(
    arm: RunningEngine,
    reference: RunningEngine,
    prompts: Prompts,
    expected: list[Answer],
    same: Regrets,
    record_property: Callable[[str, object], None],
) -> None:
    """Every token is the target's most likely one but for ties, which are named."""
    got = answers(arm, prompts)
    found = read_by(reference, got)
    result = judge_greedy(found, same, arm.spec.dtype)

    record_property("greedy", described(result, reference))
    assert result.passed, described(result, reference)
    assert [f for answer in got for f in answer_findings(answer, Terms(max_tokens=TOKENS))] == []
    assert found.tokens == PROMPTS * (TOKENS - 1)
    if not found.flips and not same.flips:
        assert [answer.token_ids for answer in got] == [answer.token_ids for answer in expected]


def test_reference_is_its_own_target(same: Regrets) -> None:
    """What the server without speculation says passes its own reading (same-versus-same run)."""
    result = judge_greedy(same, same, "float32")

    assert result.passed, result.describe()


def test_swapped_token_is_found(
    reference: RunningEngine, expected: list[Answer], same: Regrets
) -> None:
    """A runner-up in the place of the best token in a real answer is found (planted fault)."""
    honest = expected[0]
    rows = teacher_rows(reference.post, reference.model, honest)
    gaps = [max(row.values()) - sorted(row.values())[-2] for row in rows]
    index = next(i for i, gap in enumerate(gaps) if i > 0 and 0.5 < gap < 3)
    second = min(rows[index], key=lambda token: rows[index][token])
    ids = (*honest.token_ids[:index], second, *honest.token_ids[index + 1 :])

    found = read_by(reference, [replace(honest, token_ids=ids)])

    result = judge_greedy(found, same, "float32")
    assert not result.passed
    assert result.first is not None
    assert (result.first.index, result.first.best) == (index, honest.token_ids[index])
    assert result.first.regret == pytest.approx(gaps[index], abs=0.01)
