"""What the front tells Prometheus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftgate.clock import ManualClock
from draftgate.engines.counters import Sample, parse_samples
from draftgate.serve.admission import Admission
from draftgate.serve.exchange import Exchange
from draftgate.serve.metrics import PREFIX, WINDOW_S, Metrics, Recent


def exchange(**fields: object) -> Exchange:
    """Return a request that is over after 2 s, admitted after 40 ms, unless fields say more."""
    known: dict[str, object] = {"stream": True, "waited_ns": 40_000_000, "status": 200}
    found = Exchange(1, "/v1/completions", "127.0.0.1", 0, **{**known, **fields})  # type: ignore[arg-type]
    if found.status == 200:
        found.passed(b"data: {}\n\n", 500_000_000)
    found.end(2_000_000_000)
    return found


def page(*exchanges: Exchange, tokens: int = 0) -> dict[str, list[Sample]]:
    """Return what a scrape reads after these, without the prefix."""
    clock = ManualClock()
    metrics = Metrics(Admission(2, 3, clock), clock)
    for one in exchanges:
        metrics.take(one)
    metrics.add_tokens(tokens)
    samples = parse_samples(metrics.page().decode())
    return {name.removeprefix(PREFIX): found for name, found in samples.items()}


def test_fresh_front_has_gauges_and_no_p95() -> None:
    """What is not known is absent, never 0."""
    found = page()

    assert found["in_flight"] == [({}, 0.0)]
    assert found["queued"] == [({}, 0.0)]
    assert found["draining"] == [({}, 0.0)]
    assert "queue_wait_ms_p95" not in found
    assert "rejected_total" not in found


def test_wait_of_an_admitted_request_is_in_histogram_and_gauge() -> None:
    """In milliseconds; a request that was not admitted is in neither."""
    found = page(exchange(), exchange(waited_ns=None, status=429, refused="queue_full"))

    assert found["queue_wait_ms_sum"] == [({}, 40.0)]
    assert found["queue_wait_ms_count"] == [({}, 1.0)]
    assert ({"le": "20.0"}, 0.0) in found["queue_wait_ms_bucket"]
    assert ({"le": "50.0"}, 1.0) in found["queue_wait_ms_bucket"]
    assert found["queue_wait_ms_p95"] == [({}, 40.0)]


def test_refused_and_cut_requests_are_counted_by_reason() -> None:
    """Each by itself, beside the statuses."""
    refused = exchange(waited_ns=None, status=429, refused="queue_full")
    found = page(refused, refused, exchange(cut="client"), exchange(status=400))

    assert found["rejected_total"] == [({"reason": "queue_full"}, 2.0)]
    assert found["cut_total"] == [({"reason": "client"}, 1.0)]
    statuses = {labels["status"]: value for labels, value in found["responses_total"]}
    assert statuses == {"429": 2.0, "200": 1.0, "400": 1.0}


def test_latency_is_that_of_whole_answers() -> None:
    """A stream that was cut has a first token and no full response; others have no first token."""
    found = page(exchange(), exchange(cut="engine"), exchange(stream=False))

    assert (found["first_token_seconds_count"], found["first_token_seconds_sum"]) == (
        [({}, 2.0)],
        [({}, 1.0)],
    )
    assert (found["full_response_seconds_count"], found["full_response_seconds_sum"]) == (
        [({}, 2.0)],
        [({}, 4.0)],
    )


def test_tokens_are_those_of_the_engine() -> None:
    """Its counter's growth is added up."""
    assert page(tokens=17)["output_tokens_total"] == [({}, 17.0)]


def test_old_values_leave_the_window() -> None:
    """What is older than the window counts no more; then nothing is known."""
    clock = ManualClock()
    recent = Recent(WINDOW_S, clock)
    recent.add(9.0)
    clock.advance(WINDOW_S / 2)
    recent.add(1.0)
    both = recent.percentile(95)
    clock.advance(WINDOW_S / 2 + 1)

    assert (both, recent.percentile(95)) == (9.0, 1.0)
    clock.advance(WINDOW_S)
    assert recent.percentile(95) is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.sampled_from([0.5, 0.95, 1.0]))
def test_percentile_is_the_smallest_that_enough_do_not_exceed(
    values: list[float], share: float
) -> None:
    """Literally so."""
    recent = Recent(WINDOW_S, ManualClock())
    for value in values:
        recent.add(value)

    enough = [v for v in values if sum(other <= v for other in values) >= share * len(values)]
    assert recent.percentile(100 * share) == min(enough)


@pytest.mark.parametrize(
    ("chunks", "tokens"),
    [
        ((b'{"usage": {"completion_tokens": 12}}',), 12),
        ((b"data: 1\n\n", b'data: {"usage":{"completion_tokens":7}}\n\n', b"data: [DONE]\n\n"), 7),
        ((b'{"usage": {"completion_tok', b'ens": 31}}'), 31),
        ((b'{"text": "\\"completion_tokens\\": 5"}',), None),
        ((), None),
    ],
)
def test_usage_is_read_from_the_end_of_an_answer(
    chunks: tuple[bytes, ...], tokens: int | None
) -> None:
    """Also where it is cut in two; not from the text of an answer."""
    found = Exchange(1, "/v1/completions", "127.0.0.1", 0)
    for chunk in chunks:
        found.passed(chunk, 1)
    found.end(2)

    assert found.tokens == tokens
    assert found.size_bytes == sum(map(len, chunks))
