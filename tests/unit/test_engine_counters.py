"""Engine totals: what a vLLM page says, what two pages say together, and pages that say nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.engines import ENGINES
from draftgate.engines.counters import (
    CounterSnapshot,
    by_position,
    difference,
    parse_samples,
    sum_and_count,
)
from draftgate.errors import EngineError, MeasurementError
from draftgate.records import SpeculationCounters

PAGE = (Path(__file__).parent / "data" / "vllm_metrics.txt").read_text(encoding="utf-8")
"""A page in vLLM 0.32's format: two engines, `_created` samples, three draft positions."""

BEFORE = CounterSnapshot(100, 50, 0.5, 10, 0.25, SpeculationCounters(10, 30, 12, (8, 3, 1)))


def without(page: str, name: str) -> str:
    """Return the page without the lines that hold `name`."""
    return "\n".join(line for line in page.splitlines() if name not in line) + "\n"


def test_vllm_page_is_summed_over_engines() -> None:
    """Totals add up over engines, the KV gauge is the largest, `_created` is ignored."""
    assert ENGINES.get("vllm").parse_counters(PAGE) == CounterSnapshot(
        generation_tokens=5000,
        prompt_tokens=1250,
        queue_time_sum_s=0.75,
        queue_time_count=50,
        kv_use_ratio=0.25,
        speculation=SpeculationCounters(150, 450, 210, (120, 65, 25)),
    )


def test_page_without_speculation_has_none() -> None:
    """Where speculation is off its counters do not exist, which is not zero."""
    snapshot = ENGINES.get("vllm").parse_counters(without(PAGE, "spec_decode"))

    assert snapshot.speculation is None
    assert snapshot.generation_tokens == 5000


def test_prefill_time_is_summed_over_engines() -> None:
    """A page that tells prefill times gives their sum and the requests behind it."""
    stem = "vllm:request_prefill_time_seconds"
    prefill = [f"# TYPE {stem} histogram"]
    for engine, sum_s, count in ((0, 1.5, 40), (1, 0.25, 10)):
        labels = f'engine="{engine}",model_name="target"'
        prefill += [f'{stem}_bucket{{{labels},le="+Inf"}} {count}']
        prefill += [f"{stem}_count{{{labels}}} {count}", f"{stem}_sum{{{labels}}} {sum_s}"]

    snapshot = ENGINES.get("vllm").parse_counters(PAGE + "\n".join(prefill) + "\n")

    assert (snapshot.prefill_time_sum_s, snapshot.prefill_time_count) == (1.75, 50)


def test_page_without_prefill_time_knows_none() -> None:
    """A version that does not tell prefill times is no error and no zero."""
    snapshot = ENGINES.get("vllm").parse_counters(PAGE)

    assert (snapshot.prefill_time_sum_s, snapshot.prefill_time_count) == (None, None)


def test_sum_without_its_count_is_an_error() -> None:
    """Half a histogram is refused with the name of the missing half."""
    samples = parse_samples("x_seconds_sum 3\n")

    with pytest.raises(EngineError, match="x_seconds_count"):
        sum_and_count(samples, "x_seconds")


def test_page_without_kv_gauge_knows_no_kv_use() -> None:
    """A missing gauge is unknown, not empty."""
    assert ENGINES.get("vllm").parse_counters(without(PAGE, "kv_cache")).kv_use_ratio is None


@pytest.mark.parametrize(
    "name", ["vllm:generation_tokens_total", "vllm:prompt_tokens_total", "queue_time_seconds"]
)
def test_missing_total_is_an_error_that_names_it(name: str) -> None:
    """A page without a total that every vLLM has is refused."""
    with pytest.raises(EngineError, match=name):
        ENGINES.get("vllm").parse_counters(without(PAGE, name))


@pytest.mark.parametrize(
    "page", ["<html>502 Bad Gateway</html>", '{"detail":"Not Found"}', "a{b 1"]
)
def test_garbage_page_is_an_error_that_shows_it(page: str) -> None:
    """What is no Prometheus text is refused with its beginning."""
    with pytest.raises(EngineError, match="metrics page") as caught:
        ENGINES.get("vllm").parse_counters(page)

    assert "\n" not in str(caught.value)


def test_empty_page_is_an_error() -> None:
    """An empty answer is no page of zeros."""
    with pytest.raises(EngineError, match="has no"):
        ENGINES.get("vllm").parse_counters("")


def test_labels_and_values_are_kept() -> None:
    """A sample comes back with its labels."""
    assert parse_samples('x{a="1",b="2"} 3\nx{a="2"} 4\n')["x"] == [
        ({"a": "1", "b": "2"}, 3.0),
        ({"a": "2"}, 4.0),
    ]


def test_positions_are_ordered_by_number_and_gaps_are_zero() -> None:
    """Position 10 comes after 9, whatever the order of the samples."""
    samples = [({"position": str(i)}, float(i)) for i in (10, 2, 0)]

    assert by_position(samples) == (0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 10)
    assert by_position([]) == ()


def test_position_label_must_be_there() -> None:
    """A sample by position without a position is refused, not put somewhere."""
    with pytest.raises(EngineError, match="no draft position"):
        by_position([({"engine": "0"}, 1.0)])


def test_total_that_is_no_number_is_refused() -> None:
    """NaN on the page is an error that names the total."""
    page = PAGE.replace('vllm:prompt_tokens_total{engine="0",model_name="target"} 1000.0', "")
    page += 'vllm:prompt_tokens_total{engine="0",model_name="target"} NaN\n'

    with pytest.raises(EngineError, match="vllm:prompt_tokens_total"):
        ENGINES.get("vllm").parse_counters(page)


def test_difference_is_what_happened_in_between() -> None:
    """Totals are subtracted, the KV gauge is the larger of the two."""
    after = CounterSnapshot(160, 80, 0.75, 14, 0.125, SpeculationCounters(20, 60, 30, (18, 8, 4)))

    found = difference(BEFORE, after)

    assert (found.generation_tokens, found.prompt_tokens) == (60, 30)
    assert (found.queue_time_sum_s, found.queue_time_count) == (0.25, 4)
    assert found.kv_use_max_ratio == 0.25
    assert found.speculation == SpeculationCounters(10, 30, 18, (10, 5, 3))


@pytest.mark.parametrize(("before", "expected"), [((0.5, 4), (0.75, 3)), ((None, None), (1.25, 7))])
def test_prefill_times_are_subtracted(
    before: tuple[float | None, int | None], expected: tuple[float, int]
) -> None:
    """A histogram that the first page did not have starts at nought."""
    first = replace(BEFORE, prefill_time_sum_s=before[0], prefill_time_count=before[1])
    after = replace(BEFORE, prefill_time_sum_s=1.25, prefill_time_count=7)

    found = difference(first, after)

    assert (found.prefill_time_sum_s, found.prefill_time_count) == expected


def test_prefill_times_that_nobody_tells_stay_unknown() -> None:
    """Two pages without them give none."""
    found = difference(BEFORE, BEFORE)

    assert (found.prefill_time_sum_s, found.prefill_time_count) == (None, None)


@pytest.mark.parametrize("after", [(None, None), (0.1, 3)], ids=["vanished", "fell"])
def test_prefill_times_that_shrink_are_a_restart(after: tuple[float | None, int | None]) -> None:
    """A count that fell or vanished means another server."""
    first = replace(BEFORE, prefill_time_sum_s=0.5, prefill_time_count=4)

    with pytest.raises(MeasurementError, match="restarted"):
        difference(first, replace(first, prefill_time_sum_s=after[0], prefill_time_count=after[1]))


def test_counters_that_appear_in_between_count_from_zero() -> None:
    """Spec counters and positions that the first page did not have start at nought."""
    first = replace(BEFORE, speculation=None)
    after = replace(BEFORE, speculation=SpeculationCounters(4, 12, 5, (3, 2)))

    assert difference(first, after).speculation == SpeculationCounters(4, 12, 5, (3, 2))


@pytest.mark.parametrize("name", ["generation_tokens", "prompt_tokens", "queue_time_count"])
def test_fallen_total_is_a_restart(name: str) -> None:
    """A total that fell means a restarted server, so the run has no counters."""
    with pytest.raises(MeasurementError, match=f"{name} fell from .* restarted"):
        difference(BEFORE, replace(BEFORE, **{name: 0}))


@pytest.mark.parametrize(
    "speculation",
    [SpeculationCounters(9, 30, 12, (8, 3, 1)), SpeculationCounters(10, 30, 12, (8, 3, 0))],
    ids=["drafts", "position"],
)
def test_fallen_spec_total_is_a_restart(speculation: SpeculationCounters) -> None:
    """The same holds for each counter of speculation."""
    with pytest.raises(MeasurementError, match="fell from"):
        difference(BEFORE, replace(BEFORE, speculation=speculation))


def test_spec_counters_that_vanish_are_a_restart() -> None:
    """A server that stopped speculating in between is another server."""
    with pytest.raises(MeasurementError, match="restarted"):
        difference(BEFORE, replace(BEFORE, speculation=None))


def test_positions_that_vanish_are_a_restart() -> None:
    """Fewer positions than before means another K, so another server."""
    after = replace(BEFORE, speculation=SpeculationCounters(20, 60, 30, (18,)))

    with pytest.raises(MeasurementError, match="restarted"):
        difference(BEFORE, after)
