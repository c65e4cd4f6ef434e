"""The fake server: what it says must be exactly what its configuration promises."""

import json
import math
import subprocess
import sys
import urllib.request
from collections import Counter
from http.client import IncompleteRead
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from draftgate.engines.fake_model import (
    FakeConfig,
    greedy_tokens,
    parse_config,
    sampled_tokens,
    split_steps,
    step_tokens,
    token_law,
)
from draftgate.errors import SpecError
from tests.support.fake import fake_server

FAST = {"step_s": 0.0, "ttft_s": 0.0}


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def _post(url: str, body: dict[str, Any]) -> str:
    request = urllib.request.Request(url, json.dumps({"model": "fake", **body}).encode())
    with urllib.request.urlopen(request, timeout=10) as response:
        return str(response.read().decode())


def _streamed_ids(text: str) -> list[int]:
    documents = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return [t for d in documents for c in d["choices"] for t in c.get("token_ids", [])]


@pytest.mark.parametrize(
    ("mean", "expected"),
    [(1.0, [1, 1, 1, 1]), (2.5, [2, 3, 2, 3]), (1.25, [1, 1, 1, 2]), (4.0, [4, 4, 4, 4])],
)
def test_steps_follow_the_mean_exactly(mean: float, expected: list[int]) -> None:
    """The pattern is fixed, and its total after n steps is floor(n * mean)."""
    assert [step_tokens(mean, step) for step in range(4)] == expected


def test_chunks_begin_with_one_token_and_hold_all() -> None:
    """The prompt's pass gives one token; the steps give the rest in order."""
    chunks = split_steps(tuple(range(9)), 2.5)

    assert chunks == [(0,), (1, 2), (3, 4, 5), (6, 7), (8,)]


@pytest.mark.parametrize("route", ["chat/completions", "completions"])
@pytest.mark.parametrize("stream", [True, False])
def test_greedy_output_is_a_function_of_the_prompt(route: str, *, stream: bool) -> None:
    """Speculation, route of delivery and repetition leave the greedy tokens alone."""
    chat_fields = {"messages": [{"role": "user", "content": "a b"}]}
    fields = chat_fields if route.startswith("chat") else {"prompt": "user: a b"}
    body = {**fields, "max_tokens": 12, "temperature": 0, "return_token_ids": True}
    expected = list(greedy_tokens("user: a b", 12, 1000))
    with (
        fake_server(FakeConfig(**FAST)) as plain,
        fake_server(FakeConfig(tokens_per_step=3.3, method="ngram", k=4, **FAST)) as drafted,
    ):
        answers = [
            _post(f"{s.url}/v1/{route}", {**body, "stream": stream}) for s in (plain, drafted)
        ]

    if stream:
        got = [_streamed_ids(answer) for answer in answers]
    else:
        got = [json.loads(answer)["choices"][0]["token_ids"] for answer in answers]
    assert got == [expected, expected]


def test_usage_and_ids_come_only_if_asked_for() -> None:
    """A plain stream has neither token ids nor a usage event."""
    with fake_server(FakeConfig(**FAST)) as server:
        text = _post(f"{server.url}/v1/completions", {"prompt": "x", "stream": True})

    assert "token_ids" not in text
    assert "usage" not in text
    assert text.endswith("data: [DONE]\n\n")


def test_law_is_the_stated_one() -> None:
    """Probabilities sum to 1 and fall as (v + 1) ** (-1 / temperature)."""
    law = token_law(50, 0.5)

    assert math.isclose(sum(law), 1.0)
    assert math.isclose(law[0] / law[4], 25.0)


def test_top_k_and_top_p_keep_a_prefix() -> None:
    """Cut tokens have probability 0, and what is left is rescaled."""
    assert [p > 0 for p in token_law(4, 1.0, top_k=2)] == [True, True, False, False]
    # Weights 1, 1/2, 1/3, 1/4 of 25/12: the first two hold 0.72, three hold 0.88.
    assert [p > 0 for p in token_law(4, 1.0, top_p=0.8)] == [True, True, True, False]
    assert math.isclose(sum(token_law(4, 1.0, top_p=0.8)), 1.0)


def test_sampling_repeats_with_its_seed_and_follows_the_law() -> None:
    """Equal seeds give equal tokens, others differ, and frequencies match the law."""
    law = token_law(5, 1.0)
    tokens = sampled_tokens(law, 20_000, seed=3)

    assert tokens == sampled_tokens(law, 20_000, seed=3)
    assert tokens != sampled_tokens(law, 20_000, seed=4)
    counts = Counter(tokens)
    # Standard error of a share is at most 0.0035; the draw is fixed by its seed.
    assert all(abs(counts[token] / 20_000 - p) < 0.014 for token, p in enumerate(law))


def test_counters_state_the_configured_acceptance() -> None:
    """Drafts, drafted, accepted and accepted by position follow from steps, mean and k."""
    config = FakeConfig(tokens_per_step=2.5, method="ngram", k=3, **FAST)
    with fake_server(config) as server:
        _post(f"{server.url}/v1/completions", {"prompt": "a b c", "max_tokens": 11})
        text = _get(f"{server.url}/metrics")

    samples = {
        (sample.name, sample.labels.get("position")): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    stem = "vllm:spec_decode_num"
    per_position = f"{stem}_accepted_tokens_per_pos_total"
    expected = {
        ("vllm:prompt_tokens_total", None): 3,
        ("vllm:generation_tokens_total", None): 11,
        ("vllm:request_queue_time_seconds_count", None): 1,
        ("vllm:request_prefill_time_seconds_count", None): 1,
        ("vllm:kv_cache_usage_perc", None): 0,
        (f"{stem}_drafts_total", None): 4,
        (f"{stem}_draft_tokens_total", None): 12,
        (f"{stem}_accepted_tokens_total", None): 6,
        (per_position, "0"): 4,
        (per_position, "1"): 2,
        (per_position, "2"): 0,
    }
    assert {key: samples[key].value for key in expected} == expected
    assert all(
        s.labels["model_name"] == "fake" and s.labels["engine"] == "0" for s in samples.values()
    )


def test_no_speculation_no_counters() -> None:
    """Without a method the spec-decode counters do not exist, as in vLLM."""
    with fake_server() as server:
        assert "spec_decode" not in _get(f"{server.url}/metrics")


def test_side_routes_answer() -> None:
    """Health, version and models answer as an OpenAI-compatible server does."""
    with fake_server() as server:
        health = _get(f"{server.url}/health")
        version = json.loads(_get(f"{server.url}/version"))
        models = json.loads(_get(f"{server.url}/v1/models"))

    assert health == ""
    assert version["version"] == "fake-1"
    assert [card["id"] for card in models["data"]] == ["fake"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"stepp_s": 1}, "unknown key 'stepp_s'. Known: model, step_s"),
        ({"step_s": "fast"}, "step_s has the wrong type"),
        ({"k": True}, "k has the wrong type"),
        ([], "must be a JSON object"),
        ({"tokens_per_step": 0.5}, "tokens_per_step must be >= 1"),
        ({"tokens_per_step": 5.0, "method": "ngram", "k": 3}, "Raise k"),
    ],
)
def test_bad_configuration_is_refused(document: object, words: str) -> None:
    """A typo or an impossible pair never runs as something else."""
    with pytest.raises(SpecError) as caught:
        parse_config(document)
    assert words in str(caught.value)


def test_process_says_where_it_listens_and_dies_as_planted() -> None:
    """The module runs as a process, serves, and exits with 1 when its death strikes."""
    config = json.dumps({"die_after_requests": 1, **FAST})
    command = [sys.executable, "-m", "draftgate.engines.fake_server", "--config", config]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        line = process.stdout.readline().strip()
        assert line.startswith("listening on 127.0.0.1:")
        url = f"http://{line.removeprefix('listening on ')}/v1/completions"
        body = {"prompt": "x", "max_tokens": 4, "stream": True}
        assert "[DONE]" in _post(url, body)
        with pytest.raises(IncompleteRead):
            _post(url, body)

        assert process.wait(10) == 1


def test_process_ends_on_terminate() -> None:
    """SIGTERM ends the process well."""
    command = [sys.executable, "-m", "draftgate.engines.fake_server"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        process.stdout.readline()
        process.terminate()

        assert process.wait(10) == 0
