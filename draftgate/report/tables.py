"""The two tables of the answer: how fast, and why.

Arms at a concurrency against `none`, as text; the numbers come from the
arranged run and are only rounded here.
"""

from draftgate.report.format import MISSING, Scale, change, count, deviation, number, times
from draftgate.report.headline import interval, tone
from draftgate.report.ratios import Ratio
from draftgate.report.summary import SPEED, Cell, Summary, scale_of
from draftgate.report.table import AGAINST_NONE, Column, Entry, Group, Table, streams
from draftgate.specs import NO_SPECULATION
from draftgate.verdict import worst

TAIL_METRICS = ("step_gap_p99_s", "per_token_p99_s", "ttft_p99_s")
"""Tails in the main table: what a reader of streamed text waits for."""


def main_table(summary: Summary) -> Table:
    """Return speed, tails, acceptance and verdict per concurrency and arm."""
    scales = {name: scale_of(summary, name) for name in TAIL_METRICS}
    return Table(
        "Speed, tails and acceptance; mean over runs",
        (
            Column("Arm"),
            Column("Output", "tokens/s"),
            Column("Speed-up", "against none"),
            Column("Step gap p99", scales[TAIL_METRICS[0]].unit),
            Column("Per token p99", scales[TAIL_METRICS[1]].unit),
            Column("TTFT p99", scales[TAIL_METRICS[2]].unit),
            Column("Acceptance", "length, rate"),
            Column("Verdict", "against baseline"),
        ),
        tuple(
            Group(streams(c), tuple(_main_row(summary, arm, c, scales) for arm in summary.arms))
            for c in summary.concurrencies
        ),
    )


def _main_row(
    summary: Summary, arm: str, concurrency: int, scales: dict[str, Scale]
) -> tuple[Entry, ...]:
    cell = summary.cell(arm, concurrency)
    return (
        Entry(arm, _runs_text(cell)),
        _throughput(cell),
        _speed_up(summary, arm, concurrency),
        *(_tail(summary, cell, name, scales[name]) for name in TAIL_METRICS),
        _acceptance(cell),
        _badge(summary, arm, concurrency),
    )


def _runs_text(cell: Cell) -> str:
    if not cell.runs and not cell.invalid:
        return "not measured"
    bad = f", {len(cell.invalid)} invalid" if cell.invalid else ""
    return f"{count(len(cell.runs), 'run')}{bad}"


def _throughput(cell: Cell) -> Entry:
    spread = cell.spread(SPEED)
    if spread is None:
        return Entry(MISSING)
    if spread.deviation is None:
        return Entry(number(spread.mean), "one run")
    return Entry(number(spread.mean), deviation(spread.mean, spread.deviation))


def _speed_up(summary: Summary, arm: str, concurrency: int) -> Entry:
    ratio = summary.ratio(arm, concurrency, SPEED)
    if arm == NO_SPECULATION and summary.cell(arm, concurrency).runs:
        return Entry(times(1.0), "reference", "quiet", strong=True)
    if ratio is None:
        return Entry(MISSING)
    colour = tone(ratio, higher_is_better=True)
    return Entry(times(ratio.estimate), interval(ratio), colour, strong=True)


def _tail(summary: Summary, cell: Cell, metric: str, scale: Scale) -> Entry:
    spread = cell.spread(metric)
    if spread is None:
        return Entry(MISSING)
    ratio = summary.ratio(cell.arm, cell.concurrency, metric)
    if ratio is None:
        return Entry(scale.show(spread.mean))
    return Entry(
        scale.show(spread.mean),
        change(ratio.estimate),
        tone(ratio, higher_is_better=False),
    )


def _acceptance(cell: Cell) -> Entry:
    length, rate = cell.spread("mean_acceptance_length"), cell.spread("acceptance_ratio")
    if length is None:
        return Entry(MISSING, tone="quiet")
    return Entry(number(length.mean), "" if rate is None else f"{number(rate.mean * 100.0)} %")


def _badge(summary: Summary, arm: str, concurrency: int) -> Entry:
    verdicts = summary.verdicts_of(arm, concurrency)
    if not verdicts:
        return Entry("not judged", tone="quiet")
    outcome = worst(verdicts)
    hits = [v for v in verdicts if v.outcome is outcome]
    return Entry("", f"{len(hits)} of {count(len(verdicts), 'gate')}", outcome=outcome, judged=True)


def why_table(summary: Summary) -> Table | None:
    """Return the factors of each arm's speed against `none`; None without a reference.

    Every column is a gain: the step time stands as reference over arm, so the
    three factors multiply to the speed-up of one stream.
    """
    if not summary.has_reference:
        return None
    groups = [
        Group(
            streams(c), tuple(_why_row(summary, a, c) for a in summary.arms if a != NO_SPECULATION)
        )
        for c in summary.concurrencies
    ]
    return Table(
        "Factors of tokens/s of one stream, against none",
        (
            Column("Arm"),
            Column("Tokens per step", AGAINST_NONE),
            Column("Steps per second", AGAINST_NONE),
            Column("Share of time decoding", AGAINST_NONE),
            Column("Speed of one stream", AGAINST_NONE),
            Column("Step time", "change"),
        ),
        tuple(group for group in groups if group.rows),
    )


def _why_row(summary: Summary, arm: str, concurrency: int) -> tuple[Entry, ...]:
    step_time = summary.ratio(arm, concurrency, "step_time_s")
    factors = (
        summary.ratio(arm, concurrency, "tokens_per_step"),
        None if step_time is None else step_time.inverse(),
        summary.ratio(arm, concurrency, "decode_share_ratio"),
        summary.ratio(arm, concurrency, "tokens_per_s_per_stream"),
    )
    slower = MISSING if step_time is None else change(step_time.estimate)
    return (
        Entry(arm),
        *map(_factor, factors),
        Entry(slower, "", tone(step_time, higher_is_better=False)),
    )


def _factor(ratio: Ratio | None) -> Entry:
    if ratio is None:
        return Entry(MISSING)
    colour = tone(ratio, higher_is_better=True)
    return Entry(times(ratio.estimate), interval(ratio), colour, strong=True)
