"""Invented nights for tests of the history, with levels and noise as asked for.

Rows are made directly, so that a year of nights takes no time; how a session
becomes rows is tested on sessions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from draftgate.history.records import Closure, Item, Night, NightRows, Row, Series, SeriesKey
from draftgate.history.store import append, to_table

FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)

METRIC = "output_tokens_per_s"

ROW = Row(
    time=FIRST,
    repeat=0,
    engine="vllm",
    engine_version="0.32.0",
    arm="ngram",
    role="run",
    concurrency=8,
    metric=METRIC,
    value=100.0,
    unit="tokens/s",
    better="higher",
    commit="",
    workload="0123456789abcdef",
    requests=40,
    invalid="",
)


def at(number: int) -> datetime:
    """Return when night `number` begins."""
    return FIRST + timedelta(days=number)


def run_id(number: int) -> str:
    """Return the run folder of night `number`."""
    return f"{at(number):%Y%m%dT%H%M%SZ}-example-{number:04x}"


def night(number: int, values: Sequence[float] = (100.0,), **changes: Any) -> NightRows:
    """Return a night of one series, one run per value; `changes` go to its rows."""
    rows = tuple(
        replace(ROW, time=at(number), repeat=repeat, value=value, **changes)
        for repeat, value in enumerate(values)
    )
    return night_of(number, rows)


def night_of(number: int, rows: Sequence[Row], **changes: Any) -> NightRows:
    """Return a night that holds `rows`."""
    made = NightRows(
        run_id=run_id(number),
        session_time=at(number),
        hardware="cpu-example-2c",
        engines="vllm",
        profile="example",
        draftgate="0.1.0",
        definitions=1,
        rows=tuple(rows),
    )
    return replace(made, **changes)


def levels(
    seed: int, nights: int, steps: Mapping[int, float] | None = None, noise: float = 0.02
) -> tuple[float, ...]:
    """Return one value per night around 100, multiplied by each step from its night on.

    Args:
        seed: Of the noise.
        nights: Number of values.
        steps: Factor by night, as {60: 0.95}.
        noise: Standard deviation of the log of a value.
    """
    rng = np.random.default_rng(seed)
    logs = np.full(nights, np.log(100.0)) + rng.normal(0.0, noise, nights)
    for start, factor in (steps or {}).items():
        logs[start:] += np.log(factor)
    return tuple(map(float, np.exp(logs)))


def fill(root: Path, values: Sequence[float], **changes: Any) -> None:
    """Append one night of one run per value."""
    for number, value in enumerate(values):
        append(root, night(number, (value,), **changes))


KEY = SeriesKey(
    hardware="cpu-example-2c",
    engine="vllm",
    profile="example",
    role="run",
    arm="ngram",
    concurrency=8,
    metric=METRIC,
    definitions=1,
    workload="0123456789abcdef",
)


def series_of(values: Iterable[float], **changes: Any) -> Series:
    """Return a series of one run a night; `changes` go to its fields."""
    nights = tuple(
        Night(run_id(number), at(number), float(value), 1, "0.32.0", "")
        for number, value in enumerate(values)
    )
    made = Series(KEY, unit="tokens/s", better="higher", is_log=True, nights=nights)
    return replace(made, **changes)


def table_of(nights: Iterable[NightRows]) -> pa.Table:
    """Return the rows of nights as they would be read back, numbered in the order given."""
    tables = []
    for number, one in enumerate(nights, start=1):
        table = to_table(one)
        place = table.schema.get_field_index("sequence")
        column = pa.array([number] * table.num_rows, pa.int32())
        tables.append(table.set_column(place, table.schema.field(place), column))
    return pa.concat_tables(tables).unify_dictionaries()


def closure_for(item: Item, **changes: Any) -> Closure:
    """Return the closure that a person would make of an item; `changes` go to its fields."""
    made = Closure(
        schema=1,
        id=item.id,
        series=item.series.key,
        run=item.after.run_id,
        change="",
        reason="expected",
        is_real=True,
        by="mira",
        at="2026-05-01T00:00:00+00:00",
    )
    return replace(made, **changes)
