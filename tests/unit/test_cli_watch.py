"""The subcommand `watch`: its options, its lines, its exit codes and its mistakes."""

import argparse
import re
from pathlib import Path

import pytest

from draftgate.cli import Exit, _parser, main
from draftgate.cli.watch import DEFAULT_LISTEN, parse_listen, spec_of, with_path
from draftgate.cli.watch_lines import Lines, window_text
from draftgate.errors import SpecError
from draftgate.stats.level import Level
from draftgate.stats.shifts import Wanted
from draftgate.watch.files import SCHEMA, LearnedLevel, Reference, save_reference
from draftgate.watch.monitor import Monitor
from draftgate.watch.page import Group, read_page
from draftgate.watch.windows import WindowSize
from tests.support.fake import raw_server
from tests.support.metrics_pages import MODEL, Counted, Traffic, vllm_page

Captured = pytest.CaptureFixture[str]

URL = "http://127.0.0.1:9"


def options(*args: str) -> argparse.Namespace:
    """Return the options as parsed."""
    return _parser().parse_args(["watch", "--url", URL, *args])


def answer(text: str) -> bytes:
    """Return a whole HTTP answer with this page."""
    body = text.encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


def test_defaults_are_those_of_the_records() -> None:
    """Options left out mean what the records say."""
    spec = spec_of(options())

    assert spec.plan.wanted == Wanted()
    assert spec.plan.size == WindowSize()
    assert (spec.plan.learn_windows, spec.plan.still_s) == (50, 120.0)
    assert spec.url == f"{URL}/metrics"
    assert spec.listen == parse_listen(DEFAULT_LISTEN) == ("127.0.0.1", 9709)


def test_reference_alone_is_read_and_nothing_learned() -> None:
    """--reference without --learn judges what is in the file alone."""
    assert spec_of(options("--reference", "r.json")).plan.learn_windows is None
    assert spec_of(options("--reference", "r.json", "--learn", "30")).plan.learn_windows == 30
    assert spec_of(options("--reference", "r.json", "--learn-only")).plan.learn_windows == 50


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("http://h:1", "http://h:1/metrics"),
        ("http://h:1/", "http://h:1/metrics"),
        ("http://h:1/prometheus/metrics", "http://h:1/prometheus/metrics"),
        ("nonsense", "nonsense"),
    ],
)
def test_address_without_a_path_means_metrics(given: str, whole: str) -> None:
    """A path that is given is kept."""
    assert with_path(given) == whole


@pytest.mark.parametrize(
    ("text", "address"),
    [(":80", ("127.0.0.1", 80)), ("0.0.0.0:0", ("0.0.0.0", 0)), ("[::1]:5", ("::1", 5))],
)
def test_listen_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    """Without a host it is loopback."""
    assert parse_listen(text) == address
    assert parse_listen("off") is None


@pytest.mark.parametrize(
    ("args", "about"),
    [
        (["--listen", "9709"], "expected HOST:PORT"),
        (["--listen", "h:70000"], "expected HOST:PORT"),
        (["--window", "0"], "1 or more"),
        (["--window-steps", "-3"], "1 or more"),
        (["--interval", "0"], "--interval must be > 0"),
        (["--for", "nan"], "--for must be > 0"),
        (["--slide", "0.2"], "tolerated < slide <= change"),
        (["--run-length", "5"], "run length"),
        (["--learn", "5"], "--learn must be 20 or more"),
        (["--still-after", "0"], "--still-after must be > 0"),
    ],
)
def test_wrong_option_is_one_line_and_a_code(args: list[str], about: str, capsys: Captured) -> None:
    """Each names what was got and what to do, before anything is asked of the server."""
    assert main(["watch", "--url", URL, *args]) == Exit.BAD_SPEC

    assert re.fullmatch(rf"draftgate: watch: .*{about}.*\n", capsys.readouterr().err)


def test_url_must_be_http(capsys: Captured) -> None:
    """A file is no server."""
    assert main(["watch", "--url", "file:///etc/hosts", "--listen", "off"]) == Exit.BAD_SPEC

    assert "must start with http://" in capsys.readouterr().err


def test_silent_address_ends_it_at_once(capsys: Captured) -> None:
    """A first page that can't be read is the server's exit code."""
    assert main(["watch", "--url", URL, "--listen", "off"]) == Exit.ENGINE

    assert "no answer from" in capsys.readouterr().err


def test_page_without_speculation_ends_it_at_once(capsys: Captured) -> None:
    """The line says what was looked for."""
    with raw_server(answer("up 1\n")) as url:
        assert main(["watch", "--url", url, "--listen", "off"]) == Exit.ENGINE

    assert "vllm:spec_decode_num_drafts_total" in capsys.readouterr().err


def test_page_without_requests_asks_for_steps(capsys: Captured) -> None:
    """Windows that would never fill are refused; steps fill them."""
    page = vllm_page({MODEL: Counted(drafts=5)})
    page = "\n".join(line for line in page.splitlines() if "request_success" not in line) + "\n"
    with raw_server(answer(page)) as url:
        assert main(["watch", "--url", url, "--listen", "off"]) == Exit.ENGINE
        assert "--window-steps" in capsys.readouterr().err
        steps = ["--window-steps", "5", "--interval", "0.01", "--for", "0.05"]
        assert main(["watch", "--url", url, "--listen", "off", *steps]) == Exit.OK


def test_missing_reference_is_not_learned_by_itself(tmp_path: Path, capsys: Captured) -> None:
    """A mistyped name must not become a reference of a broken server."""
    with raw_server(answer(Traffic(1).serve())) as url:
        code = main(["watch", "--url", url, "--reference", str(tmp_path / "typo.json")])

    assert code == Exit.BAD_SPEC
    assert "does not exist. Give --learn 50" in capsys.readouterr().err


def test_group_without_a_level_is_named(tmp_path: Path, capsys: Captured) -> None:
    """A reference of another model leaves this one unjudged, and says so; the other vanishes."""
    path = tmp_path / "r.json"
    level = Level(0.9, 0.02, 0.0, 50, 4_000.0)
    known = LearnedLevel(Group("other", ""), level, "2026-01-01")
    save_reference(path, Reference(SCHEMA, WindowSize(), (known,)))
    with raw_server(answer(Traffic(1).serve())) as url:
        short = ["--interval", "0.01", "--for", "0.2", "--listen", "off", "--fail-on-alarm"]
        code = main(["watch", "--url", url, "--reference", str(path), *short])

    out = capsys.readouterr().out
    assert code == Exit.ALARM
    assert "m: no reference" in out
    assert "other: ALARM vanished" in out
    assert "takes about" in out


def test_lines_tell_windows_and_changes_of_state(capsys: Captured) -> None:
    """One line per window, one per alarm raised and one per alarm that ends."""
    spec = spec_of(options())
    lines, monitor, traffic = Lines(spec), Monitor(spec.plan), Traffic(1)
    at = "2026-01-01T00:00:00+00:00"
    for number in range(100):
        traffic.per_step = 1.2 if 55 < number <= 65 else 1.5
        for event in monitor.tick(read_page(traffic.serve(), "kind"), 10.0, at):
            lines.event(event)

    out = capsys.readouterr().out
    assert lines.alarmed
    assert (
        len(re.findall(r"m: window \d+: length 2\.\d\d\d, rate 0\.\d\d\d, 100 requests", out)) == 99
    )
    assert (
        len(re.findall(r"ALARM drop: acceptance has fallen, since about \d\d:\d\d:\d\d\n", out))
        == 1
    )
    assert out.count("over: drop") == 1
    assert "learning 49 of 50" in out
    assert "reference length 2.5" in out


def test_restart_has_a_line(capsys: Captured) -> None:
    """The engine's restart is told once."""
    spec = spec_of(options())
    lines, monitor, traffic = Lines(spec), Monitor(spec.plan), Traffic(1)
    for number in range(4):
        if number == 2:
            traffic.restart()
        for event in monitor.tick(read_page(traffic.serve(10), "kind"), 10.0, "now"):
            lines.event(event)

    assert capsys.readouterr().out.count("the engine was restarted") == 1


def test_window_text_has_the_evidence() -> None:
    """After learning each detector's share stands in the line."""
    spec = spec_of(options())
    monitor, traffic = Monitor(spec.plan), Traffic(1)
    for _ in range(60):
        monitor.tick(read_page(traffic.serve(), "kind"), 10.0, "now")

    text = window_text(monitor.groups[Group("m", "")], 50)
    assert re.search(r"drop \d+%, rise \d+%, slide_down \d+%, slide_up \d+%$", text)


def test_wide_windows_are_told_to_be_larger(capsys: Captured) -> None:
    """Where a drop takes over 20 windows the line says what to do."""
    spec = spec_of(options())
    lines, monitor = Lines(spec), Monitor(spec.plan)
    monitor.give_level(Group("m", ""), Level(0.3, 0.1, 0.0, 50, 4_000.0))
    lines.start(monitor, 0)

    assert "larger ones" in capsys.readouterr().out


def test_nothing_to_judge_with_is_refused() -> None:
    """Neither a reference nor learning."""
    from dataclasses import replace

    spec = spec_of(options())
    with pytest.raises(SpecError, match="--learn 50"):
        replace(spec, plan=replace(spec.plan, learn_windows=None))
