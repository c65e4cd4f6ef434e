"""Measuring acceptance by kind of traffic, against the scripted server."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftgate.datasets import Prompt, load_prompts, prompts_digest
from draftgate.engines.fake_server import FakeConfig
from draftgate.engines.running import RunningEngine, launch
from draftgate.load.state import LoadProgress
from draftgate.measure import Traffic, measure_traffic
from draftgate.records import TrafficAcceptance
from draftgate.specs import Arm, EngineSpec, SpeculativeConfig, UrlLaunch
from tests.support.fake import fake_server

PROMPTS = load_prompts("chat", seed=1)[:20]
TRAFFIC = Traffic("chat", PROMPTS, max_tokens=11, concurrency=4)


def _engine(url: str, tmp_path: Path, *, speculative: bool = True) -> RunningEngine:
    drafts = SpeculativeConfig("draft_model", 3, "target", (("draft_dtype", "auto"),))
    spec = EngineSpec(
        "fake", "toy", UrlLaunch(url), dtype="bfloat16", speculative=drafts if speculative else None
    )
    engine = launch(Arm("drafting", spec), tmp_path / "log", print)
    engine.wait_ready(print)
    return engine


def _measure(tmp_path: Path, traffic: Traffic = TRAFFIC, **config: Any) -> TrafficAcceptance:
    script = {"step_s": 0.0005, "ttft_s": 0.002, "method": "draft_model", "k": 3, **config}
    with fake_server(FakeConfig(**script)) as server:
        return measure_traffic(_engine(server.url, tmp_path), traffic)


@pytest.mark.parametrize("tokens_per_step", [1.0, 2.0, 2.5])
def test_tokens_per_step_are_those_of_the_server(tmp_path: Path, tokens_per_step: float) -> None:
    """Ten tokens after the first in steps of known size, for each prompt in order."""
    found = _measure(tmp_path, tokens_per_step=tokens_per_step)

    assert found.invalid == ()
    assert found.tokens_per_step == tuple((p.prompt_id, tokens_per_step) for p in PROMPTS)
    assert (found.arm, found.method, found.num_speculative_tokens) == ("drafting", "draft_model", 3)


def test_steps_with_room_are_counted_by_what_they_gave(tmp_path: Path) -> None:
    """Ten tokens in steps of 2 at K = 3: four begin with room for 4 tokens, by prompt."""
    found = _measure(tmp_path, tokens_per_step=2.0)

    assert found.step_yields == ((0, 4, 0, 0),) * len(PROMPTS)


def test_temperature_is_sent_and_kept(tmp_path: Path) -> None:
    """Sampled traffic says so in its setting, so that it is compared with its like alone."""
    found = _measure(tmp_path, replace(TRAFFIC, temperature=0.7))

    assert found.invalid == ()
    assert found.setting.temperature == 0.7


@pytest.mark.parametrize("concurrency", [1, 4, 20, 64])
def test_each_prompt_is_sent_once(tmp_path: Path, concurrency: int) -> None:
    """However many streams there are, the counters cover each prompt's steps exactly once."""
    with fake_server(
        FakeConfig(step_s=0.002, ttft_s=0.01, tokens_per_step=2.0, method="draft_model", k=3)
    ) as server:
        engine = _engine(server.url, tmp_path)
        measure_traffic(engine, replace(TRAFFIC, prompts=PROMPTS[:5]))  # counters do not start at 0
        sent = server.requests

        found = measure_traffic(engine, replace(TRAFFIC, concurrency=concurrency))

        assert server.requests - sent == len(PROMPTS)
    assert found.counters is not None
    assert found.counters.num_drafts == 5 * len(PROMPTS)
    assert found.counters.num_accepted_tokens == 5 * len(PROMPTS)
    assert found.counters.num_accepted_tokens_per_pos == (5 * len(PROMPTS), 0, 0)
    assert found.setting.concurrency == min(concurrency, len(PROMPTS))


def test_setting_holds_what_decides_comparability(tmp_path: Path) -> None:
    """Target, type, options, lengths and the prompts' content are in the record."""
    setting = _measure(tmp_path).setting

    assert (setting.target, setting.dtype, setting.quantization) == ("toy", "bfloat16", None)
    assert setting.options == (("draft_dtype", "auto"),)
    assert (setting.max_tokens, setting.temperature) == (11, 0.0)
    assert setting.prompts == prompts_digest(PROMPTS)


def test_digest_sees_content_and_not_order() -> None:
    """One changed word is other traffic; another order is the same."""
    first = PROMPTS[0]
    changed = Prompt(first.prompt_id, first.kind, ((first.messages[0][0], "another"),))

    assert prompts_digest(PROMPTS) == prompts_digest(PROMPTS[::-1])
    assert prompts_digest(PROMPTS) != prompts_digest((changed, *PROMPTS[1:]))
    assert prompts_digest(PROMPTS) != prompts_digest(PROMPTS[1:])


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"wrong_length_every": 7}, r"2 of 20 requests failed \(wrong_length\)"),
        ({"in_band_error_every": 20}, r"1 of 20 requests failed \(in_band_error\)"),
        ({"tokens_per_step": 1.0, "k": 3}, ""),
    ],
)
def test_failed_request_makes_it_invalid(
    tmp_path: Path, fault: dict[str, Any], reason: str
) -> None:
    """A prompt without a whole answer is no gap in silence; without faults there is no reason."""
    found = _measure(tmp_path, **fault)

    assert bool(found.invalid) is bool(reason)
    assert re.search(reason, " ".join(found.invalid))


def test_answer_in_one_chunk_has_no_steps(tmp_path: Path) -> None:
    """An answer of one token says nothing about steps, and that is said."""
    found = _measure(tmp_path, replace(TRAFFIC, max_tokens=1))

    assert found.tokens_per_step == ()
    assert "20 of 20 prompts have no whole answer of two chunks or more" in found.invalid[0]


def test_more_verify_steps_than_chunks_are_noticed(tmp_path: Path) -> None:
    """Counters that cannot belong to these chunks make the measurement invalid (planted)."""
    with fake_server(
        FakeConfig(step_s=0.0005, tokens_per_step=2.0, method="draft_model", k=3)
    ) as server:
        engine = _engine(server.url, tmp_path)
        seen = engine.parse_counters

        def doubled(page: str) -> Any:
            snapshot = seen(page)
            assert snapshot.speculation is not None
            more = replace(snapshot.speculation, num_drafts=2 * snapshot.speculation.num_drafts)
            return replace(snapshot, speculation=more)

        engine.parse_counters = doubled  # type: ignore[method-assign] - the planted fault
        found = measure_traffic(engine, TRAFFIC)

    (reason,) = found.invalid
    assert "counted 200 verify steps but only 100 chunks came" in reason


def test_reference_has_tokens_per_step_of_one_and_no_counters(tmp_path: Path) -> None:
    """Without speculation every step yields one token."""
    with fake_server(FakeConfig(step_s=0.0005)) as server:
        found = measure_traffic(_engine(server.url, tmp_path, speculative=False), TRAFFIC)

    assert found.invalid == ()
    assert {value for _, value in found.tokens_per_step} == {1.0}
    assert (found.method, found.counters, found.step_yields) == ("none", None, ())


def test_progress_is_told(tmp_path: Path) -> None:
    """A measurement that takes over a second says how far it is."""
    told: list[LoadProgress] = []
    with fake_server(FakeConfig(step_s=0.12, method="draft_model", k=3)) as server:
        engine = _engine(server.url, tmp_path)
        traffic = Traffic("chat", PROMPTS[:2], max_tokens=11, concurrency=2)
        measure_traffic(engine, traffic, progress=told.append)

    assert told
