"""Mixed traffic on a live server: a changed mix is told from a worse draft."""

from collections.abc import Mapping

import pytest

from draftgate.datasets import Prompt, load_prompts
from draftgate.drift.judge import result_line
from draftgate.drift.mixed import MixedVerdict, judge_mixed, requests_of
from draftgate.drift.periods import RequestSteps
from draftgate.engines.running import RunningEngine
from draftgate.measure import Traffic, measure_traffic
from draftgate.plugin.outcomes import told_once
from draftgate.plugin.session import GateSession
from draftgate.verdict import Outcome
from tests.support.planted import weakened

pytestmark = pytest.mark.drift

CODE_HEAVY = {"code": 54, "arithmetic": 18}
ARITHMETIC_HEAVY = {"code": 18, "arithmetic": 54}
"""Prompts of each kind; under `--short` a half of them."""

NO_FAULT = (Outcome.PASS, Outcome.INCONCLUSIVE)
"""What a mix may end in: 72 requests that are not the same ones seldom rule out a loss of 5 %."""


def _period(
    session: GateSession, engine: RunningEngine, mix: Mapping[str, int]
) -> tuple[RequestSteps, ...]:
    """Send a mix of traffic once and return what each request says."""
    short = session.options.short
    counts = {kind: count // 2 if short else count for kind, count in mix.items()}
    prompts: tuple[Prompt, ...] = ()
    for kind, count in counts.items():
        prompts += load_prompts(kind, session.profile.workload.seed)[:count]
    session.say(f"{engine.arm.name} on mixed traffic, {counts}")
    found = measure_traffic(engine, Traffic("mixed", prompts, 24 if short else 48, concurrency=8))
    session.say(result_line(found))
    assert found.invalid == ()
    return requests_of(found, {prompt.prompt_id: prompt.kind for prompt in prompts})


def _judged(
    session: GateSession, arm: str, base: tuple[RequestSteps, ...], now: tuple[RequestSteps, ...]
) -> MixedVerdict:
    found = judge_mixed(base, now, arm=arm, concurrency=8)
    session.say(f"{found.outcome.name}: {found.verdict.reason}; {found.verdict.cause}")
    return found


def test_changed_mix_is_no_fault_of_the_draft(
    draftgate_session: GateSession, speculative_arm: str
) -> None:
    """One server, code-heavy and then arithmetic-heavy: the mix is the cause, no kind fails."""
    session = draftgate_session
    engine = told_once(lambda: session.engine(speculative_arm))

    found = _judged(
        session,
        speculative_arm,
        _period(session, engine, CODE_HEAVY),
        _period(session, engine, ARITHMETIC_HEAVY),
    )

    assert found.outcome in NO_FAULT, found.verdict
    assert found.verdict.causes == ("mix",)
    assert found.worse == ()


@pytest.mark.slow
def test_weakened_draft_is_the_cause_whatever_the_mix(draftgate_session: GateSession) -> None:
    """Noise on the weights is REGRESSION by the draft, also where the mix changes with it."""
    session = draftgate_session
    arm = session.profile.arm("draft_model")
    engine = told_once(lambda: session.engine(arm.name))
    before = _period(session, engine, CODE_HEAVY)
    (worse,) = told_once(lambda: session.pool.require((weakened(arm, session.say),)))

    same = _judged(session, arm.name, before, _period(session, worse, CODE_HEAVY))
    moved = _judged(session, arm.name, before, _period(session, worse, ARITHMETIC_HEAVY))

    assert same.outcome is Outcome.REGRESSION, same.verdict
    assert same.verdict.causes == ("draft",)
    assert same.worse
    assert moved.outcome is Outcome.REGRESSION, moved.verdict
    assert set(moved.verdict.causes) == {"draft", "mix"}
