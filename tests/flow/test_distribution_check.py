"""A distribution check of scripted servers whose law is known: every outcome, end to end."""

from contextlib import ExitStack

import pytest

from draftgate.checks.collect import Server, rounds
from draftgate.checks.conditions import condition
from draftgate.checks.distribution import Arms, Gathered, gather
from draftgate.checks.judge import judge
from draftgate.checks.outcome import CheckOutcome, Why
from draftgate.clock import SYSTEM_CLOCK
from draftgate.engines.fake_server import FakeConfig
from draftgate.load.requests import Endpoint
from draftgate.null_engine.documents import token_ids
from draftgate.null_engine.engine import NullEngine
from draftgate.null_engine.script import Script, TokenCycle
from tests.support.fake import fake_server
from tests.support.scripted_law import (
    PROMPTS,
    ScriptedReference,
    model_ask,
    plan,
    scripted,
    server_at,
)


def checked(
    config: FakeConfig, plain: FakeConfig | None, budget: str = "1500", *names: str
) -> Gathered:
    """Check a scripted server against its own law, with or without an A/A arm."""
    with ExitStack() as stack:
        server = server_at(stack.enter_context(fake_server(config)))
        other = server_at(stack.enter_context(fake_server(plain))).ask if plain else None
        arms = Arms(checked=server.ask, plain=other, reference=ScriptedReference())
        return gather(plan(budget, *names), arms, PROMPTS, SYSTEM_CLOCK, lambda _: None)


@pytest.mark.parametrize(
    "names", [("T=1",), ("T=0.8", "T=1.5", "T=0.8,top_p=0.95", "T=1,top_k=10")]
)
def test_faultless_server_passes(names: tuple[str, ...]) -> None:
    """Speculation by the rule leaves no evidence, in either arm, and is told what was seen."""
    found = checked(scripted(), scripted(k=0), str(1500 * len(names)), *names)
    judged = judge(found.findings, float32=True)

    assert judged.outcome is CheckOutcome.PASS, judged
    assert found.findings.tokens >= 1500 * len(names)
    assert [e.tokens for e in found.findings.plain] == [e.tokens for e in found.findings.checked]
    assert found.failures == ()


@pytest.mark.parametrize("fault", ["greedy", "hot", "recovered_from_target"])
def test_fault_of_the_law_is_lossy(fault: str) -> None:
    """Each planted fault is found before the budget, and the A/A arm stays quiet."""
    found = checked(scripted(fault=fault), scripted(k=0), "6000")
    judged = judge(found.findings, float32=True)

    assert judged.outcome is CheckOutcome.LOSSY, judged
    assert found.findings.tokens < 6000


def test_wrong_reference_is_inconclusive() -> None:
    """Where the server without speculation breaks the law as well, nothing is called lossy."""
    found = checked(scripted(fault="hot"), scripted(fault="hot", k=0), "6000")
    judged = judge(found.findings, float32=True)

    assert (judged.outcome, judged.why) == (CheckOutcome.INCONCLUSIVE, Why.NUMERICS), judged


def test_small_budget_is_inconclusive() -> None:
    """A check that could not have found a fault that matters does not pass."""
    names = ("T=0.6", "T=0.8", "T=1", "T=1.2", "T=1.5")
    judged = judge(checked(scripted(), None, "100", *names).findings, float32=True)

    assert (judged.outcome, judged.why) == (CheckOutcome.INCONCLUSIVE, Why.TOO_FEW_TOKENS), judged


def test_without_a_second_server_the_verdict_says_so() -> None:
    """A pass without an A/A arm names what is missing."""
    judged = judge(checked(scripted(), None).findings, float32=True)

    assert judged.outcome is CheckOutcome.PASS
    assert any("no A/A arm could run" in reason for reason in judged.reasons)


def test_same_versus_same_is_let_through() -> None:
    """Of 100 faultless checks at alpha = .1 at most 18 alarm, which is as many as chance allows.

    P(more than 18 of 100 at a rate of .1) is .005.
    """
    alarms = 0
    for seed in range(100):
        arms = Arms(checked=model_ask(seed=seed), plain=None, reference=ScriptedReference())
        small = plan("300", alpha=0.1, seed=seed)
        alarms += gather(small, arms, PROMPTS, SYSTEM_CLOCK, lambda _: None).findings.alarm

    assert alarms <= 18


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_answers_keep_ids_and_chunks(engine: str) -> None:
    """Each dialect's stream becomes ids in the chunks that the server sent, in order of asking."""
    script = Script(ttft_s=0.004, gap_s=0.002, tokens_per_step=TokenCycle((1, 2, 3)))
    null = NullEngine(script)
    null.start()
    try:
        server = Server(Endpoint(f"http://127.0.0.1:{null.port}", "null"), engine)
        source = rounds(PROMPTS, [condition("T=1").parameters], 1)
        asked = [*next(source), *next(source)]
        found = server.ask(asked)
    finally:
        null.stop()

    assert [answer.request for answer in found.answers] == list(range(20))
    assert [len(answer.token_ids) for answer in found.answers] == [a.max_tokens for a in asked]
    assert found.answers[0].chunks[:5] == (1, 1, 2, 3, 1)
    assert found.answers[0].token_ids[:24] == tuple(token_ids(0, 24))
    assert {answer.prompt_token_ids for answer in found.answers} <= {ids for _, ids in PROMPTS}


def test_shared_seed_is_found() -> None:
    """A server that draws equal prompts with one random number shows in the pairs sent at once."""
    found = checked(scripted(fault="shared_seed"), scripted(k=0), "6000")
    judged = judge(found.findings, float32=True)

    assert judged.outcome is CheckOutcome.LOSSY, judged
    assert found.findings.strongest.family == "copy"
