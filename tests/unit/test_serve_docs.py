"""What docs/serve.md states about options, refusals, metrics and lines is what the code does."""

import argparse
import re
from pathlib import Path

from draftgate.cli import _parser
from draftgate.clock import ManualClock
from draftgate.serve import refusals
from draftgate.serve.admission import Admission
from draftgate.serve.connection import BODY_TIMEOUT_S
from draftgate.serve.fallback.classes import MOST_CLASSES
from draftgate.serve.fallback.controller import Policy, Reason
from draftgate.serve.fleet import FIRST_WAIT_S, LONGEST_WAIT_S
from draftgate.serve.lines import interval_lines, switch_line
from draftgate.serve.metrics import PREFIX, WINDOW_S, Metrics
from tests.unit.test_serve_lines import FALL, INTERVAL, RETURN

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")


def table(head: str) -> list[list[str]]:
    """Return the cells of the table whose head line is `head`, without the head."""
    found = re.findall(rf"^{re.escape(head)}\n\|[ |:-]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert len(found) == 1, f"expected one table with head {head!r}, got {len(found)}"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found[0].splitlines()]


def options() -> dict[str, argparse.Action]:
    """Return the options of the subcommand by name, without --help."""
    parser = _parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    serve = commands.choices["serve"]
    serve.fill()
    return {action.option_strings[-1]: action for action in serve._actions if action.dest != "help"}


def test_option_table_lists_every_option() -> None:
    """Each option is in the table once, and nothing else is."""
    cells = [row[0] for row in table("| option | means | default |")]

    assert sorted(re.findall(r"--[a-z-]+", " ".join(cells))) == sorted(options())


def test_defaults_in_the_table_are_those_of_the_command() -> None:
    """Where a default is a number or an address, it is the parser's."""
    known = options()
    told = {row[0].strip("`").split()[0]: row[2] for row in table("| option | means | default |")}

    names = ["--listen", "--max-body-bytes", "--max-choices", "--interval", "--drain-timeout"]
    for name in [*names, "--window-steps", "--dwell", "--probe-share"]:
        default = known[name].default
        assert told[name] == (f"{default:g}" if isinstance(default, float) else str(default))


def test_refusal_table_lists_every_code() -> None:
    """Status and code of each answer that the front gives itself."""
    made = [
        refusals.queue_full(1, 1),
        refusals.draining(1),
        refusals.engine_gone("x"),
        refusals.wrong_key(),
        refusals.too_large(1),
        refusals.too_slow(1.0),
        refusals.no_route("GET", 404),
        refusals.no_route("GET", 405),
    ]
    rows = table("| status | `code` | why | what the client should do |")
    told = [
        (int(status), code)
        for statuses, codes, *_ in rows
        for status, code in zip(
            re.findall(r"\d+", statuses) * (2 if statuses == "400" else 1),
            re.findall(r"\w+", codes),
            strict=True,
        )
    ]

    from_limits = [(400, "invalid_body"), (400, "over_limit")]
    assert sorted(told) == sorted([(one.status, one.code) for one in made] + from_limits)
    assert f"did not arrive within {BODY_TIMEOUT_S:g} s" in PAGE


def test_metrics_table_lists_every_metric() -> None:
    """By the names that Prometheus sees."""
    clock = ManualClock()
    metrics = Metrics(Admission(1, 1, clock), clock)
    metrics.waits_ms.add(1.0)
    families = {
        family.name.removeprefix(PREFIX) + ("_total" if family.type == "counter" else "")
        for family in metrics._registry.collect()
    }
    rows = table("| metric, after `draftgate_serve_` | kind | what |")

    assert set(re.findall(r"`(\w+)`", " ".join(row[0] for row in rows))) == families
    assert f"over the last {WINDOW_S:g} s" in PAGE


def test_interval_lines_of_the_page_are_real_ones() -> None:
    """The example is what the code makes of the numbers of its own tests."""
    for line in interval_lines(INTERVAL, 2.88):
        assert f"10:41:10 {line}\n" in PAGE


def test_fallback_lines_of_the_page_are_real_ones() -> None:
    """The example is what the code makes of the numbers of its own tests."""
    for switch in (FALL, RETURN):
        assert f" {switch_line('', switch)}\n" in PAGE


def test_numbers_of_the_fallback_are_those_of_the_code() -> None:
    """Run length, band, windows of learning, waits, classes, reasons."""
    rule = Policy().rule
    waits = f"after {FIRST_WAIT_S:g} s, doubled with each end within a minute"

    assert f"at least {rule.run_length:,.0f} windows on average" in PAGE
    assert PAGE.count(f"{rule.band:.0%}".replace("%", " %")) >= 2
    assert rule.learn_windows == 20
    assert "from the first twenty of each arm" in PAGE
    assert rule.probe_steps * 4 == rule.window_steps
    assert waits in PAGE
    assert f"up to {LONGEST_WAIT_S:g} s" in PAGE
    assert f"at most {MOST_CLASSES} of up to 32" in PAGE
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in PAGE] == []
