"""One timed run against the scripted server: what is seen, and every reason not to use it."""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftgate.datasets import Prompt
from draftgate.engines.fake_server import FakeConfig, FakeServer
from draftgate.engines.running import RunningEngine, launch
from draftgate.errors import SpecError
from draftgate.load.state import LoadProgress
from draftgate.measure import Cell, measure_run, prime, request_source
from draftgate.metrics import compute_all
from draftgate.records import RunSamples
from draftgate.specs import (
    SLO,
    Arm,
    EngineSpec,
    PrefixCache,
    ProcessLaunch,
    SamplingParams,
    SpeculativeConfig,
    UrlLaunch,
    WorkloadSpec,
)
from tests.support.fake import fake_server
from tests.support.fake_nvml import FakeCard, fake_nvml

PROMPTS = tuple(Prompt(f"p{i}", "chat", (("user", f"question {i}"),)) for i in range(50))
WORKLOAD = WorkloadSpec(
    "chat",
    (2,),
    SamplingParams(max_tokens=11),
    window_s=0.1,
    min_requests=2,
    stagger_s=0.0,
    stall_timeout_s=5.0,
    run_timeout_s=10.0,
)
NGRAM = SpeculativeConfig("ngram", 3)
TOO_HOT = (
    "GPU 0 (NVIDIA H200) was throttled during the window: hardware slowdown, hardware thermal "
    "slowdown; at most 88 C, 690 W. Let it cool"
)


def engine(server: FakeServer, *, key: str | None = None, drafts: bool = True) -> RunningEngine:
    """Return the ready engine behind a running fake server."""
    spec = EngineSpec(
        "fake", "t", UrlLaunch(server.url, None, key), speculative=NGRAM if drafts else None
    )
    found = launch(Arm("ngram" if drafts else "none", spec), Path("unused.log"), print)
    found.wait_ready(print)
    return found


def run(workload: WorkloadSpec = WORKLOAD, *, concurrency: int = 2, **script: Any) -> RunSamples:
    """Measure once against a server that behaves as `script` says."""
    config = {"step_s": 0.003, "ttft_s": 0.004, "method": "ngram", "k": 3, **script}
    with fake_server(FakeConfig(**config)) as server:
        return measure_run(engine(server), workload, Cell(concurrency, 1), PROMPTS)


def test_run_holds_what_was_planted() -> None:
    """Arm, cell, records, window, counters and client health of a good run."""
    found = run(tokens_per_step=2.5)

    assert found.invalid == ()
    assert (found.arm, found.method, found.num_speculative_tokens) == ("ngram", "ngram", 3)
    assert (found.concurrency, found.repeat) == (2, 1)
    assert found.window is not None
    assert found.window.length_s >= 0.1
    assert found.counters is not None
    assert found.counters.speculation is not None
    assert found.counters.speculation.num_draft_tokens == 3 * found.counters.speculation.num_drafts
    values = compute_all(found, SLO())
    assert values["tokens_per_step"] == pytest.approx(2.5, abs=0.1)
    assert values["step_gap_p50_s"] == pytest.approx(0.003, rel=0.5)
    assert (found.resources.cpu_cores, found.resources.rss_bytes) == (None, None)
    assert found.client.wall_s >= found.window.length_s


def test_text_is_not_kept_and_greedy_tokens_are_exact() -> None:
    """Records hold token ids, and no text that nobody asked for."""
    found = run()

    assert {record.text for record in found.records} == {None}
    assert {sum(len(c.token_ids) for c in r.chunks) for r in found.records} == {11}


def test_own_server_is_metered(tmp_path: Path) -> None:
    """A server that draftgate started has CPU and memory of its process tree."""
    arm = Arm("none", EngineSpec("fake", "t", ProcessLaunch()))
    own = launch(arm, tmp_path / "none.log", print)
    try:
        own.wait_ready(print)
        found = measure_run(own, WORKLOAD, Cell(1, 0), PROMPTS)
    finally:
        own.stop()

    assert found.invalid == ()
    assert found.method == "none"
    assert found.resources.rss_bytes is not None
    assert found.resources.rss_bytes > 1_000_000
    assert found.counters is not None
    assert found.counters.speculation is None


def test_server_that_dies_is_the_one_reason(tmp_path: Path) -> None:
    """A death explains all failed requests of its run: one reason, with exit code and log."""
    env = (("DRAFTGATE_FAKE_CONFIG", json.dumps({"die_after_requests": 2})),)
    own = launch(
        Arm("none", EngineSpec("fake", "t", ProcessLaunch(), env=env)), tmp_path / "l.log", print
    )
    try:
        own.wait_ready(print)
        found = measure_run(own, WORKLOAD, Cell(1, 0), PROMPTS)
    finally:
        own.stop()

    (reason,) = found.invalid
    first, second, third = reason.splitlines()
    assert first == "none: the server process ended with exit code 1 during the run."
    assert second == f"Last lines of {tmp_path / 'l.log'}:"
    assert third.startswith("    listening on 127.0.0.1:")


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ({"error_every": 5}, "http_error"),
        ({"in_band_error_every": 5}, "in_band_error"),
        ({"early_close_every": 5}, "early_end"),
        ({"missing_usage_every": 5}, "missing_usage"),
        ({"wrong_length_every": 5}, "wrong_length"),
        ({"garbage_every": 5}, "malformed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_failed_requests_make_a_run_unusable(script: dict[str, int], kind: str) -> None:
    """Each kind of failure is named, with the share that is let through and the first message."""
    found = run(**script)

    (reason,) = [r for r in found.invalid if "requests failed" in r]
    assert f"requests failed ({kind}); at most 0.0% may. First: " in reason


def test_stated_share_of_failures_is_let_through() -> None:
    """Below max_failure_share a run with failures can be used."""
    found = run(replace(WORKLOAD, max_failure_share=0.5), missing_usage_every=5)

    assert any(record.failure for record in found.records)
    assert found.invalid == ()


def test_deadline_ends_a_run_and_is_a_reason() -> None:
    """At run_timeout_s a run ends whatever is open, and says so."""
    found = run(replace(WORKLOAD, run_timeout_s=0.5), concurrency=1, stall_every=2)

    assert any("time was up after 0.5 s (run_timeout_s)" in reason for reason in found.invalid)


def test_watchdog_ends_a_silent_stream() -> None:
    """After stall_timeout_s of silence a request counts as stalled."""
    found = run(replace(WORKLOAD, stall_timeout_s=0.2), stall_every=3)

    assert any("(stalled)" in reason for reason in found.invalid)


def test_counters_that_cannot_be_read_make_a_run_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metrics page that is no such page is a reason, not a run without counters."""
    with fake_server(FakeConfig(step_s=0.003)) as server:
        target = engine(server, drafts=False)
        monkeypatch.setattr(target, "scrape", lambda: "<html>")

        found = measure_run(target, WORKLOAD, Cell(1, 0), PROMPTS)

    assert found.counters is None
    assert any("not Prometheus text" in r or "metrics page" in r for r in found.invalid)


def test_key_is_sent_and_in_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key reaches the server; where it is refused it is quoted nowhere."""
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    with fake_server(FakeConfig(api_key="sk-secret", step_s=0.003)) as server:
        good = measure_run(engine(server, key="SOME_KEY"), WORKLOAD, Cell(1, 0), PROMPTS)
    with fake_server(FakeConfig(api_key="another", step_s=0.003)) as server:
        bad = measure_run(engine(server, key="SOME_KEY"), WORKLOAD, Cell(1, 0), PROMPTS)

    assert good.invalid == ()
    assert any("401" in reason for reason in bad.invalid)
    assert "sk-secret" not in repr((good, bad))


def test_unset_key_stops_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its key a run is not begun."""
    monkeypatch.setenv("SOME_KEY", "k")
    with fake_server() as server:
        target = engine(server, key="SOME_KEY")
        monkeypatch.delenv("SOME_KEY")

        with pytest.raises(SpecError, match="SOME_KEY"):
            measure_run(target, WORKLOAD, Cell(1, 0), PROMPTS)
        assert server.requests == 0


def bodies(workload: WorkloadSpec, count: int) -> list[dict[str, Any]]:
    """Return the bodies of the next requests."""
    source = request_source("fake", workload, PROMPTS)
    return [json.loads(source(stream % 3).body) for stream in range(count)]


def test_requests_go_round_the_prompts_whatever_the_stream() -> None:
    """All streams draw from one sequence that starts anew in each run and wraps around."""
    found = [body["messages"][0]["content"] for body in bodies(WORKLOAD, 52)]

    assert found[:2] == ["question 0", "question 1"]
    assert found[48:] == ["question 48", "question 49", "question 0", "question 1"]


def test_defeated_prefix_cache_gives_every_request_a_salt_of_its_own() -> None:
    """No two requests share a salt, in no two runs; primed ones have none."""
    salts = [b["cache_salt"] for _ in range(2) for b in bodies(WORKLOAD, 5)]
    primed = bodies(replace(WORKLOAD, prefix_cache=PrefixCache.PRIMED), 2)

    assert len(set(salts)) == 10
    assert all("cache_salt" not in body for body in primed)


def test_seed_counts_up_by_request() -> None:
    """A workload's seed gives each request another one, the same in every run."""
    seeded = replace(WORKLOAD, sampling=SamplingParams(max_tokens=4, temperature=1.0, seed=7))

    assert [body["seed"] for body in bodies(seeded, 3)] == [7, 8, 9]
    assert all("seed" not in body for body in bodies(WORKLOAD, 2))


def test_priming_sends_every_prompt_once_and_only_where_asked() -> None:
    """Each prompt goes out once where the cache is to be primed, and none where it is defeated."""
    with fake_server(FakeConfig(ttft_s=0.0, step_s=0.0)) as server:
        target = engine(server)
        prime(target, WORKLOAD, PROMPTS)
        assert server.requests == 0

        prime(target, replace(WORKLOAD, prefix_cache=PrefixCache.PRIMED), PROMPTS)

        assert server.requests == len(PROMPTS)


def test_prompts_go_to_the_api_that_the_workload_names() -> None:
    """Through `completions` a run and its priming send the user's message as raw text."""
    raw = replace(WORKLOAD, api="completions", prefix_cache=PrefixCache.PRIMED)
    source = request_source("m", raw, PROMPTS)(0)
    with fake_server(FakeConfig(ttft_s=0.0, step_s=0.001)) as server:
        target = engine(server, drafts=False)
        prime(target, raw, PROMPTS)
        primed = server.requests
        found = measure_run(target, raw, Cell(2, 0), PROMPTS)

    assert source.path == "/v1/completions"
    assert json.loads(source.body)["prompt"] == "question 0"
    assert request_source("m", WORKLOAD, PROMPTS)(0).path == "/v1/chat/completions"
    assert (primed, found.invalid) == (len(PROMPTS), ())


def test_progress_is_told() -> None:
    """Elapsed seconds, requests and bytes are told about once a second."""
    told: list[LoadProgress] = []
    with fake_server(FakeConfig(step_s=0.003)) as server:
        slow = replace(WORKLOAD, window_s=1.1)
        measure_run(engine(server), slow, Cell(1, 0), PROMPTS, progress=told.append)

    assert told
    assert told[0].elapsed_s == pytest.approx(1.0, abs=0.5)
    assert told[0].ended > 0
    assert told[0].received_bytes > 100
    assert told[0].output_tokens is not None


def test_load_from_two_processes_is_one_run() -> None:
    """Two client processes give one window of whole rounds, every prompt in turn, no failure."""
    script = {"step_s": 0.003, "ttft_s": 0.004, "method": "ngram", "k": 3, "tokens_per_step": 2.5}
    workload = replace(WORKLOAD, client_processes=2, concurrencies=(4,), window_s=0.5)
    with fake_server(FakeConfig(**script)) as server:
        found = measure_run(engine(server), workload, Cell(4, 0), PROMPTS)

    assert found.invalid == ()
    assert found.window is not None
    assert found.window.length_s >= 0.5
    assert {record.stream for record in found.records} == set(range(4))
    ended = [r for r in found.records if found.window.start_ns <= r.ended_ns < found.window.end_ns]
    assert len(ended) % 4 == 0
    asked = Counter(record.prompt_id for record in found.records)
    assert max(asked.values()) - min(asked.values()) <= 2
    assert found.counters is not None
    assert compute_all(found, SLO())["tokens_per_step"] == pytest.approx(2.5, rel=0.1)


def test_window_that_cannot_be_filled_makes_the_run_invalid() -> None:
    """Two processes whose run ends before the window is complete say so."""
    workload = replace(
        WORKLOAD, client_processes=2, window_s=0.2, min_requests=5000, run_timeout_s=1.0
    )
    with fake_server(FakeConfig(step_s=0.003, ttft_s=0.004)) as server:
        found = measure_run(engine(server, drafts=False), workload, Cell(2, 0), PROMPTS)

    assert any("its window was not complete" in reason for reason in found.invalid)


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x4, ()),
        (
            0x8 | 0x40,
            (TOO_HOT,),
        ),
    ],
    ids=["power-cap", "too-hot"],
)
def test_run_on_a_throttled_gpu_is_invalid(
    monkeypatch: pytest.MonkeyPatch, bits: int, reasons: tuple[str, ...]
) -> None:
    """A card that was too hot makes the run unusable; one at its rated power does not."""
    card = FakeCard(reason_bits=bits, temperature_c=88, power_mw=690_000)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml((card,)))

    found = run()

    assert found.invalid == reasons
    assert found.resources.gpus[0].temperature_max_c == 88
