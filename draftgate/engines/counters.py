"""Engine totals: one scrape, and the difference of two.

Knows Prometheus text and the vocabulary, no engine's names. Counters only ever
grow within one server's life; a fall means that it was restarted in between.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from prometheus_client.parser import text_string_to_metric_families

from draftgate.errors import EngineError, MeasurementError
from draftgate.records import EngineCounters, SpeculationCounters


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """Totals since the server started, as one scrape saw them.

    Attributes are those of `EngineCounters` and `SpeculationCounters`;
    `kv_use_ratio` is the gauge at the moment of the scrape, `speculation` is None
    where speculation is off, the prefill time where the page does not tell it.
    """

    generation_tokens: int
    prompt_tokens: int
    queue_time_sum_s: float
    queue_time_count: int
    kv_use_ratio: float | None
    speculation: SpeculationCounters | None
    prefill_time_sum_s: float | None = None
    prefill_time_count: int | None = None


Sample = tuple[Mapping[str, str], float]

_RESTARTED = "the server was restarted. Repeat the run and look at the server's log."


def parse_samples(text: str) -> dict[str, list[Sample]]:
    """Return every sample of a Prometheus text as {name: [(labels, value)]}.

    Raises:
        EngineError: If the text cannot be parsed; the message shows its start.
    """
    samples: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    except ValueError as error:
        raise EngineError(
            f"the metrics page is not Prometheus text ({error}); it begins {text[:80]!r}. "
            "Check that the address is an engine's and not a proxy's."
        ) from error
    return samples


def total(samples: Mapping[str, list[Sample]], name: str) -> float:
    """Return the sum of `name` over all its label sets.

    Raises:
        EngineError: If the page has no such name, or a value that is no finite number.
    """
    if name not in samples:
        raise EngineError(
            f"the metrics page has no {name!r}. Check the engine's version and that its "
            "statistics are on."
        )
    found = sum(value for _, value in samples[name])
    if not math.isfinite(found):
        raise EngineError(f"the metrics page gives {found} for {name!r}, expected a finite total.")
    return found


def sum_and_count(
    samples: Mapping[str, list[Sample]], name: str
) -> tuple[float, int] | tuple[None, None]:
    """Return `name`_sum and `name`_count of a histogram; None twice if the page lacks it.

    Raises:
        EngineError: If one of the two is missing, or no finite number.
    """
    if f"{name}_sum" not in samples and f"{name}_count" not in samples:
        return None, None
    return total(samples, f"{name}_sum"), int(total(samples, f"{name}_count"))


def by_position(samples: Iterable[Sample]) -> tuple[int, ...]:
    """Return totals by draft position 0, 1, ... from samples labelled `position`.

    Raises:
        EngineError: If a sample has no such label with a whole number.
    """
    totals: dict[int, int] = {}
    for labels, value in samples:
        label = labels.get("position", "")
        if not label.isdecimal():
            raise EngineError(f"the metrics page has no draft position in the labels {labels}.")
        totals[int(label)] = totals.get(int(label), 0) + int(value)
    return tuple(totals.get(i, 0) for i in range(max(totals, default=-1) + 1))


def difference(before: CounterSnapshot, after: CounterSnapshot) -> EngineCounters:
    """Return what happened between two scrapes of one server.

    Raises:
        MeasurementError: If a total fell, which means a restart in between.
    """
    prefill_s, prefills = _prefill(before, after)
    return EngineCounters(
        generation_tokens=_grown("generation_tokens", before, after),
        prompt_tokens=_grown("prompt_tokens", before, after),
        queue_time_sum_s=after.queue_time_sum_s - before.queue_time_sum_s,
        queue_time_count=_grown("queue_time_count", before, after),
        kv_use_max_ratio=_largest(before.kv_use_ratio, after.kv_use_ratio),
        speculation=_speculation(before.speculation, after.speculation),
        prefill_time_sum_s=prefill_s,
        prefill_time_count=prefills,
    )


def _prefill(
    before: CounterSnapshot, after: CounterSnapshot
) -> tuple[float, int] | tuple[None, None]:
    """Return sum and count of prefill times; None twice where the page tells neither."""
    if after.prefill_time_sum_s is None or after.prefill_time_count is None:
        if before.prefill_time_count is not None:
            raise MeasurementError(f"the engine's counters of prefill are gone: {_RESTARTED}")
        return None, None
    rise = _rise("prefill_time_count", before.prefill_time_count or 0, after.prefill_time_count)
    return after.prefill_time_sum_s - (before.prefill_time_sum_s or 0.0), rise


def _grown(name: str, before: CounterSnapshot, after: CounterSnapshot) -> int:
    return _rise(name, getattr(before, name), getattr(after, name))


def _rise(name: str, before: int, after: int) -> int:
    if after < before:
        raise MeasurementError(
            f"engine counter {name} fell from {before} to {after} during a run: {_RESTARTED}"
        )
    return after - before


def _largest(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _speculation(
    before: SpeculationCounters | None, after: SpeculationCounters | None
) -> SpeculationCounters | None:
    if after is None:
        if before is not None:
            raise MeasurementError(f"the engine's counters of speculation are gone: {_RESTARTED}")
        return None
    start = before or SpeculationCounters(0, 0, 0, ())
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    rises = [_rise(name, getattr(start, name), getattr(after, name)) for name in names]
    pairs = zip_longest(
        start.num_accepted_tokens_per_pos, after.num_accepted_tokens_per_pos, fillvalue=0
    )
    positions = tuple(
        _rise(f"accepted at position {i}", old, new) for i, (old, new) in enumerate(pairs)
    )
    return SpeculationCounters(rises[0], rises[1], rises[2], positions)
