"""Exact checks on the scripted engine: right answers pass, planted faults are found."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftgate.checks.completions import PATH, answers_of, teacher_rows
from draftgate.checks.counting import (
    counter_findings,
    fall_findings,
    step_findings,
    total_findings,
)
from draftgate.checks.exact import Terms, answer_findings
from draftgate.checks.greedy import GreedyAnswer
from draftgate.checks.probes import PROBE_TOKENS, Behaviour, Probed, Reply, probes, run_probe
from draftgate.checks.regret import Regrets, judge_greedy, regrets_from_top
from draftgate.engines.counters import difference
from draftgate.engines.fake_law import Step
from draftgate.engines.fake_server import FakeConfig, FakeServer
from draftgate.engines.fake_wire import Generation, HttpRequest
from draftgate.engines.running import RunningEngine, launch
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters
from draftgate.specs import Arm, EngineSpec, UrlLaunch
from tests.support.fake import fake_server

K = 3
TERMS = Terms(max_tokens=12, k=K)
PROMPT = (3, 7, 11)
GREEDY = LawParameters(temperature=0)
CONFIG = FakeConfig(law="context", vocab_size=50, method="draft_model", k=K, step_s=0.0, ttft_s=0.0)

Plant = Callable[[Generation, dict[str, Any]], Generation]


@contextmanager
def engine_of(
    server_config: FakeConfig, tmp_path: Path, plant: Plant | None = None
) -> Iterator[tuple[RunningEngine, FakeServer]]:
    """Yield the scripted engine as a running one; `plant` may change what it generates."""
    with fake_server(server_config) as server:
        if plant is not None:
            work_out = server._work_out

            def planted(request: HttpRequest) -> Generation | None:
                work = work_out(request)
                return work and plant(work, json.loads(request.body))

            server._work_out = planted  # type: ignore[method-assign] # the planted fault
        spec = EngineSpec(engine="fake", target="none", launch=UrlLaunch(server.url))
        engine = launch(Arm("scripted", spec), tmp_path / "log", lambda _: None)
        engine.wait_ready(lambda _: None)
        yield engine, server


def ask(engine: RunningEngine, law: LawParameters = GREEDY, **fields: Any) -> Answer:
    """Return the engine's answer to the one prompt."""
    body = {
        "model": engine.model,
        "prompt": list(PROMPT),
        "max_tokens": TERMS.max_tokens,
        "temperature": law.temperature,
        "return_token_ids": True,
    }
    (answer,) = answers_of(engine.post(PATH, body | fields), "p", PROMPT, law)
    return answer


def one_more(work: Generation, body: dict[str, Any]) -> Generation:  # noqa: ARG001 - a Plant
    """Let one accepted draft past `max_tokens`."""
    return replace(work, tokens=(*work.tokens, 5), steps=(*work.steps, Step((5,), 0)))


def test_right_answers_and_counters_have_no_finding(tmp_path: Path) -> None:
    """Without a fault nothing is found in answers, totals and steps (same-versus-same)."""
    with engine_of(CONFIG, tmp_path) as (engine, _):
        before = engine.parse_counters(engine.scrape() or "")
        sampled = LawParameters(temperature=1.0)
        answers = [ask(engine), *(ask(engine, sampled, seed=seed) for seed in range(12))]
        after = engine.parse_counters(engine.scrape() or "")

    span = difference(before, after)
    assert span.speculation is not None
    assert before.speculation is not None
    assert after.speculation is not None
    assert [f for answer in answers for f in answer_findings(answer, TERMS)] == []
    assert total_findings(answers, span) == ()
    assert step_findings(answers, span.speculation, K, drafts_in_every_step=True) == ()
    assert counter_findings(after.speculation, K) == ()
    assert fall_findings(before.speculation, after.speculation) == ()
    assert span.speculation.num_accepted_tokens > 0


def test_one_token_too_many_is_found(tmp_path: Path) -> None:
    """A last chain that is not cut at max_tokens is found, and in the totals beside others."""
    with engine_of(CONFIG, tmp_path, one_more) as (engine, _):
        answer = ask(engine)

    found = answer_findings(answer, TERMS)

    assert [(f.what, f.got) for f in found] == [("no more tokens than max_tokens", "13")]


def test_ids_after_eos_are_found(tmp_path: Path) -> None:
    """EOS inside a chain of accepted drafts that does not end the output is found."""
    with engine_of(replace(CONFIG, deaf_to="stop_token_ids"), tmp_path) as (engine, _):
        free = ask(engine)
        eos = next(t for t in free.token_ids[2:6] if t != free.token_ids[-1])
        law = replace(GREEDY, stop_token_ids=(eos,))
        answer = ask(engine, law, stop_token_ids=[eos])

    found = answer_findings(answer, TERMS)

    assert "no tokens after EOS or a stop token" in [f.what for f in found]
    assert answer_findings(free, TERMS) == ()


def test_counters_that_go_negative_or_fall_are_found(tmp_path: Path) -> None:
    """Negative totals, and totals that fell between two scrapes, are named."""
    with engine_of(CONFIG, tmp_path) as (engine, server):
        ask(engine)
        before = engine.parse_counters(engine.scrape() or "").speculation
        server.counters.num_accepted_tokens = -2
        after = engine.parse_counters(engine.scrape() or "").speculation

    assert before is not None
    assert after is not None
    assert counter_findings(before, K) == ()
    assert ("num_accepted_tokens", "-2") in [(f.where, f.got) for f in counter_findings(after, K)]
    assert [f.where for f in fall_findings(before, after)] == ["num_accepted_tokens"]


def test_accepted_tokens_that_never_came_out_are_found(tmp_path: Path) -> None:
    """Counters that claim more accepted drafts than answers can hold are found."""
    with engine_of(CONFIG, tmp_path) as (engine, server):
        before = engine.parse_counters(engine.scrape() or "")
        answers = [ask(engine)]
        for _ in range(8):
            server.counters.verified(K, K)
        span = difference(before, engine.parse_counters(engine.scrape() or ""))

    assert span.speculation is not None
    found = step_findings(answers, span.speculation, K)
    assert [f.where for f in found] == ["drafts + accepted tokens"]


def probed(engine: RunningEngine, name: str) -> Probed:
    """Return what the scripted engine does with one field."""

    def send(fields: dict[str, Any]) -> Reply:
        body = {"model": engine.model, "prompt": list(PROMPT), **fields}
        return Reply(*engine.answer(PATH, body))

    ids = ask(engine, max_tokens=PROBE_TOKENS).token_ids
    far = (9.0,) * len(ids)
    greedy = GreedyAnswer("p", ids, far, (-1,) * len(ids))
    probe = next(p for p in probes(greedy, f"w{ids[0]}") if p.name == name)
    return run_probe(send, probe)


@pytest.mark.parametrize("name", ["top_k", "top_p"])
def test_honoured_filters_pass(tmp_path: Path, name: str) -> None:
    """Filters that the scripted engine applies force the greedy answer at a high temperature."""
    with engine_of(CONFIG, tmp_path) as (engine, _):
        assert probed(engine, name).behaviour is Behaviour.HONOURED


@pytest.mark.parametrize("name", ["min_p", "logit_bias", "bad_words", "allowed_token_ids"])
def test_silence_is_found(tmp_path: Path, name: str) -> None:
    """Fields that the scripted engine accepts and drops, as SGLang does min_p, are found."""
    with engine_of(replace(CONFIG, deaf_to=name), tmp_path) as (engine, _):
        found = probed(engine, name)

    assert found.behaviour is Behaviour.IGNORED
    assert found.finding is not None
    assert found.finding.where == name


def test_refusal_passes(tmp_path: Path) -> None:
    """An engine that answers 400 to min_p, as vLLM does under speculation, has no finding."""
    with engine_of(CONFIG, tmp_path) as (engine, _):
        found = probed(engine, "min_p")

    assert (found.behaviour, found.finding) == (Behaviour.REFUSED, None)


def second_best_after(index: int) -> Plant:
    """Return a fault that swaps the token at `index` for another one."""

    def plant(work: Generation, body: dict[str, Any]) -> Generation:
        if body["max_tokens"] == 1:  # teacher forcing
            return work
        tokens = list(work.tokens)
        tokens[index] = (tokens[index] + 1) % 50
        return replace(work, tokens=tuple(tokens), steps=tuple(Step((t,), 0) for t in tokens))

    return plant


def greedy_regrets(engine: RunningEngine) -> Regrets:
    """Return the flips of the engine's greedy answer, by its own teacher forcing."""
    answer = ask(engine)
    return regrets_from_top(answer, teacher_rows(engine.post, engine.model, answer))


def test_swapped_token_is_found_by_its_regret(tmp_path: Path) -> None:
    """One wrong token in a greedy answer is found and shown with both candidates."""
    with engine_of(CONFIG, tmp_path) as (engine, _):
        same, again = greedy_regrets(engine), greedy_regrets(engine)
    with engine_of(CONFIG, tmp_path, second_best_after(6)) as (engine, _):
        found = greedy_regrets(engine)

    assert judge_greedy(again, same, "float32").passed
    result = judge_greedy(found, same, "float32")
    assert not result.passed
    assert result.first is not None
    assert result.first.index == 6
    assert "the target prefers" in result.describe()
