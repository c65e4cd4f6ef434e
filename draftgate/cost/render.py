"""A cost report as tables in a terminal and as Markdown: the same sentences in both.

Rounds for people; the JSON file has all digits. Computes nothing.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from draftgate.cost.measured import Load, slo_text
from draftgate.cost.prices import FIRST_HAND, ApiPrice, MachinePrice
from draftgate.cost.result import AcceptanceCost, Comparison, CostReport, LoadCost, Offer
from draftgate.report.format import MINUS, MISSING, TO, minute, number, percent, times
from draftgate.report.markdown import escaped, table_lines
from draftgate.report.table import Column, Entry, Group, Table
from draftgate.report.terminal import print_table

_MILLION = "$/1M"
_P99 = {"ttft_s": "TTFT p99", "per_token_s": "per token p99", "e2e_s": "end to end p99"}


def print_cost(report: CostReport, console: Console) -> None:
    """Print the tables, what they rest on, and the answer last."""
    for table in tables(report):
        print_table(table, console)
    console.print(Text("What these numbers rest on:"))
    for limit in report.limits:
        console.print(Text(f"- {limit}"))
    console.print(Text("Prices:"))
    for line in sources(report):
        console.print(Text(f"- {line}"))
    console.print()
    for line in answer(report):
        console.print(Text(line))


def render_markdown(report: CostReport) -> str:
    """Return the report for a pull request or a page, the answer first."""
    lines = ["### Cost", ""]
    lines += [f"- {escaped(line)}" for line in answer(report)]
    for table in tables(report):
        lines += ["", f"#### {escaped(table.caption)}", *table_lines(table)]
    lines += ["", "#### What these numbers rest on", ""]
    lines += [f"- {escaped(limit)}" for limit in report.limits]
    lines += ["", "#### Prices", ""]
    lines += [f"- {escaped(line)}" for line in sources(report)]
    return "\n".join(lines) + "\n"


def answer(report: CostReport) -> tuple[str, ...]:
    """Return what was measured, what it costs and what an API would, a sentence each."""
    offer, chosen, tokens = report.offer, report.chosen, report.tokens
    taken = report.measurement
    lengths = "given" if report.tokens_given else "measured"
    measured = f"{', '.join(taken.sources)}, {minute(taken.started_at)}"
    throughput = f"{number(chosen.output_tokens_per_s)} output tokens/s ({chosen.name})"
    machine = f"{_machine_text(report)} = ${_usd(offer.machine_usd_per_hour)} per hour"
    price = f"{offer.price.provider}, {offer.price.date}, {offer.price.read}"
    mean = f"{number(tokens.input_tokens)} input and {number(tokens.output_tokens)} output tokens"
    blend = f"${_usd(offer.per_million_usd)} per 1M tokens of this mix"
    output = f"${_usd(offer.per_million_output_usd)} per 1M output tokens if they bear all of it"
    used = percent(report.utilisation)
    lines = (
        ("Measured", f"{measured}; {taken.setup.model}; {taken.setup.evaluation_set}"),
        ("Sustained", f"{throughput}, the highest load measured that meets the SLO"),
        ("SLO", f"{slo_text(taken.slo)}, each by its p99"),
        ("Machine", f"{machine}; {price}"),
        ("Requests", f"{mean} on average, {lengths}"),
        ("Capacity", f"{_big(report.capacity_tokens_per_day)} tokens a day at full load"),
        (f"Self cost at {used} utilisation", f"${_usd(offer.request_usd)} per request"),
        ("The same", f"{blend}; {output}"),
    )
    return tuple(f"{head}: {text}." for head, text in lines)


def sources(report: CostReport) -> tuple[str, ...]:
    """Return where each price stands, one line each; machines first."""
    machines = [
        (f"{o.price.provider} {o.price.hardware}, {o.price.unit}", o.price) for o in report.offers
    ]
    apis = [(f"{c.price.provider} {c.price.model}", c.price) for c in report.comparisons]
    return tuple(
        f"{name}, {price.date}, {price.read}: {price.source}" for name, price in machines + apis
    )


def tables(report: CostReport) -> tuple[Table, ...]:
    """Return measured loads, APIs, the split, providers and, where it drafts, acceptance."""
    all_tables = (
        _loads(report),
        _apis(report),
        _splits(report),
        _offers(report),
        _acceptance(report),
    )
    return tuple(table for table in all_tables if table is not None)


def _loads(report: CostReport) -> Table:
    limited = [name for name in _P99 if getattr(report.measurement.slo, name) is not None]
    columns = (
        Column("load"),
        Column("output", "tokens/s"),
        *(Column(_P99[name], "s") for name in limited),
        Column("self cost", _MILLION),
        Column("SLO"),
    )
    rows = tuple(_load_row(cost, report.chosen, limited) for cost in report.loads)
    return Table("Measured loads", columns, (Group("", rows),))


def _load_row(cost: LoadCost, chosen: Load, limited: Sequence[str]) -> tuple[Entry, ...]:
    load = cost.load
    p99 = {
        "ttft_s": load.ttft_p99_s,
        "per_token_s": load.per_token_p99_s,
        "e2e_s": load.e2e_p99_s,
    }
    spread = ""
    if load.runs > 1:
        low, high = number(load.lowest_tokens_per_s), number(load.highest_tokens_per_s)
        spread = f"{low}{TO}{high}"
    return (
        Entry(load.name, "chosen" if load is chosen else ""),
        Entry(number(load.output_tokens_per_s), spread),
        *(Entry(number(p99[name])) for name in limited),
        Entry(_usd(cost.per_million_usd)),
        Entry("; ".join(load.refused) or "met"),
    )


def _apis(report: CostReport) -> Table:
    columns = (
        Column("API"),
        Column("bill", "$/req."),
        Column("bill", _MILLION),
        Column("self/API"),
        Column("break-even", "utilisation"),
        Column("break-even", "tokens/day"),
    )
    rows = tuple(_api_row(comparison) for comparison in report.comparisons)
    return Table("Against list prices, for the same requests", columns, (Group("", rows),))


def _api_row(comparison: Comparison) -> tuple[Entry, ...]:
    price, cost = comparison.price, comparison.cost
    if cost is None:
        return (Entry(price.model, price.note), *(Entry(MISSING) for _ in range(5)))
    utilisation, traffic = cost.break_even_utilisation, cost.break_even_tokens_per_day
    return (
        Entry(price.model, price.note),
        Entry(_usd(cost.request_usd)),
        Entry(_usd(cost.per_million_usd)),
        Entry(times(cost.self_to_api_ratio)),
        Entry(percent(utilisation), "never" if utilisation > 1 else ""),
        Entry(_big(traffic)),
    )


def _splits(report: CostReport) -> Table:
    columns = (
        Column("prices of"),
        Column("API input", _MILLION),
        Column("self input", _MILLION),
        Column("API output", _MILLION),
        Column("self output", _MILLION),
    )
    rows = tuple(
        (
            Entry(c.price.model),
            Entry(_usd(c.price.input_usd)),
            Entry(_usd(c.cost.self_split.input_usd if c.cost else None)),
            Entry(_usd(c.price.output_usd)),
            Entry(_usd(c.cost.self_split.output_usd if c.cost else None)),
        )
        for c in report.comparisons
    )
    caption = "Input and output apart, self cost split by the ratio of each API's prices"
    return Table(caption, columns, (Group("", rows),))


def _offers(report: CostReport) -> Table:
    columns = (
        Column("provider"),
        Column("price", "$"),
        Column("self cost", "$/req."),
        Column("self cost", _MILLION),
        Column("price of"),
    )
    rows = tuple(_offer_row(offer, offer is report.offer) for offer in report.offers)
    caption = (
        f"{report.offer.price.hardware} by provider, at {percent(report.utilisation)} utilisation"
    )
    return Table(caption, columns, (Group("", rows),))


def _offer_row(offer: Offer, chosen: bool) -> tuple[Entry, ...]:  # noqa: FBT001 - two kinds of row
    price = offer.price
    lowest = "" if price.lowest_usd is None else f"from {_usd(price.lowest_usd)}"
    cheapest = "" if offer.lowest_request_usd is None else f"from {_usd(offer.lowest_request_usd)}"
    return (
        Entry(price.provider, "chosen" if chosen else ""),
        Entry(f"{_usd(price.usd)} per {price.unit}", lowest),
        Entry(_usd(offer.request_usd), cheapest),
        Entry(_usd(offer.per_million_usd)),
        Entry(price.date, _read(price)),
    )


def _acceptance(report: CostReport) -> Table | None:
    load = report.acceptance_of
    if load is None:
        return None
    columns = (
        Column("acceptance length"),
        Column("length", "tokens"),
        Column("tokens per step"),
        Column("output", "tokens/s"),
        Column("self cost", _MILLION),
        Column("rests on"),
    )
    rows = tuple(_acceptance_row(cost) for cost in report.acceptance)
    caption = f"Sensitivity to acceptance, {load.name}: a model, not measured"
    return Table(caption, columns, (Group("", rows),))


def _acceptance_row(cost: AcceptanceCost) -> tuple[Entry, ...]:
    measured = cost.factor == 1.0
    name = "as measured" if measured else f"{100 * (cost.factor - 1):+.0f} %".replace("-", MINUS)
    return (
        Entry(name),
        Entry(number(cost.acceptance_length)),
        Entry(number(cost.tokens_per_step)),
        Entry(number(cost.output_tokens_per_s)),
        Entry(_usd(cost.per_million_usd)),
        Entry(cost.impossible or ("measured" if measured else "model")),
    )


def _machine_text(report: CostReport) -> str:
    price = report.offer.price
    if report.gpus is None:
        return price.hardware
    return f"{report.gpus} x {price.hardware} at ${_usd(price.usd)} per {price.unit}"


def _read(price: MachinePrice | ApiPrice) -> str:
    return "" if price.read == FIRST_HAND else price.read


def _usd(value: float | None) -> str:
    """Return dollars with at least three digits, and cents where there are whole dollars."""
    if value is not None and value >= 1:
        return f"{value:,.2f}"
    return number(value)


def _big(tokens: float) -> str:
    """Return a number of tokens as `12.3M` or `1.20B`."""
    for size, letter in ((1e9, "B"), (1e6, "M")):
        if tokens >= size:
            return f"{number(tokens / size)}{letter}"
    return number(tokens)
