"""`draftgate load`: from options to a test, from a summary to a table, a file and a code."""

import io
import json
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from draftgate.cli import Exit, _parser, main
from draftgate.cli.load import load_test
from draftgate.cli.load_options import APIS as TOLD_APIS
from draftgate.cli.load_progress import ProgressLine
from draftgate.cli.load_table import print_summary
from draftgate.engines.fake_server import FakeConfig
from draftgate.load.apis import APIS
from draftgate.load.arrivals import ClosedLoop, Gamma, Poisson, Replay, Steps, ThinkTime
from draftgate.load.lengths import Empirical, Fixed, Uniform
from draftgate.load.state import LoadProgress
from draftgate.loadtest import LoadTest
from draftgate.specs import SamplingParams
from tests.support.fake import fake_server
from tests.unit.test_loadtest_summary import RUNS, make_test, summary_of

Captured = pytest.CaptureFixture[str]
SERVER = ("--url", "http://h:1", "--model", "m")
WHAT = ("--prompts", "synthetic:4", "--max-tokens", "8")
FAST = {"step_s": 0.002, "ttft_s": 0.004}


def options(*words: str) -> Namespace:
    """Return the parsed options of a load."""
    parsed: Namespace = _parser().parse_args(["load", *SERVER, *WHAT, *words])
    return parsed


def asked(*words: str) -> LoadTest:
    """Return the test that options describe."""
    return load_test(options(*words))


@pytest.mark.parametrize(
    ("words", "arrivals"),
    [
        ("--concurrency 8 --requests 9", ClosedLoop(8, 0.5)),
        (
            "--concurrency 8 --stagger 0 --think-time 2 --think-law exponential --duration 3",
            ClosedLoop(8, 0.0, ThinkTime(2.0, exponential=True)),
        ),
        ("--rate 2.5 --duration 3", Poisson(2.5)),
        ("--rate 2.5 --arrivals gamma:shape=0.5 --duration 3", Gamma(2.5, 0.5)),
        ("--arrivals steps:1x2,3x4", Steps(((1, 2), (3, 4)), poisson=True)),
    ],
)
def test_arrivals_are_those_asked_for(words: str, arrivals: object) -> None:
    """Closed and open loop, each with its settings."""
    assert asked(*words.split()).arrivals == arrivals


def test_trace_brings_arrivals_and_lengths(tmp_path: Path) -> None:
    """A trace is replayed, and lends its lengths to prompts and outputs that ask for them."""
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,prompt_tokens,output_tokens\n5,30,7\n6.5,40,9\n")
    words = ["--trace", str(path), "--prompts", "synthetic:trace", "--max-tokens", "trace"]

    test = asked(*words)
    faster = asked(*words, "--arrivals", "replay:scale=0.5")

    assert test.arrivals == Replay((0.0, 1.5))
    assert faster.arrivals == Replay((0.0, 1.5), 0.5)
    assert test.workload.output == Empirical((7, 9), in_order=True)
    assert test.workload.request(1).max_tokens == 9


def test_sampling_and_limits_are_those_asked_for() -> None:
    """Each option reaches the field it is named after."""
    words = (
        "--concurrency 2 --requests 5 --max-tokens 3-9 --temperature 0.7 --top-p 0.9 --top-k 40 "
        "--sampling-seed 11 --no-ignore-eos --stall-timeout 7 --run-timeout 99 --seed 4 --turns 2 "
        "--keep-text --api trtllm-chat"
    )

    test = asked(*words.split())

    assert test.sampling == SamplingParams(1, 0.7, 0.9, 40, 11, ignore_eos=False)
    assert (test.max_requests, test.stall_timeout_s, test.run_timeout_s) == (5, 7.0, 99.0)
    assert (test.seed, test.workload.seed, test.workload.turns) == (4, 4, 2)
    assert test.workload.output == Uniform(3, 9)
    assert (test.api, test.keep_text) == ("trtllm-chat", True)


def test_server_is_the_one_asked_for(tmp_path: Path) -> None:
    """Address with or without /v1, key by the name of its variable, certificates as told."""
    ca = str(tmp_path / "ca.pem")
    base = ["load", *WHAT, "--concurrency", "1", "--requests", "1", "--model", "m"]
    plain = load_test(_parser().parse_args([*base, "--url", "http://h:1/pre/v1/"])).endpoint
    words = ["--url", "https://h", "--api-key-env", "KEY", "--ca-file", ca]
    safe = load_test(_parser().parse_args([*base, *words])).endpoint

    assert (plain.base_url, plain.verify_tls) == ("http://h:1/pre", True)
    assert (safe.api_key_env, safe.ca_file) == ("KEY", ca)
    assert not asked("--concurrency", "1", "--requests", "1", "--insecure").endpoint.verify_tls


@pytest.mark.parametrize(
    ("words", "salted"),
    [
        ("", True),
        ("--shared-cache", False),
        ("--shared-prefix 2x9", False),
        ("--shared-prefix 2x9 --no-shared-cache", True),
    ],
)
def test_cache_is_defeated_unless_it_is_to_be_used(words: str, *, salted: bool) -> None:
    """Salts by default; none where prefixes are shared on purpose."""
    test = asked("--concurrency", "1", "--requests", "1", *words.split())

    assert (test.salt is not None) == salted


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--requests 4", "nothing says when requests go out"),
        ("--concurrency 2", "nothing ends it"),
        ("--concurrency 0 --requests 4", "concurrency must be >= 1"),
        ("--concurrency 2 --rate 3 --requests 4", "Choose one of the two"),
        ("--rate 3 --think-time 1 --requests 4", "--think-time belongs to --concurrency"),
        ("--rate 3 --arrivals often --requests 4", "unknown arrivals 'often'"),
        ("--arrivals poisson --requests 4", "Give a rate"),
        ("--trace nowhere.csv", "trace 'nowhere.csv': cannot be read"),
        ("--concurrency 2 --requests 4 --api rest", "unknown API 'rest'"),
        ("--concurrency 2 --requests 4 --max-tokens few", "lengths: got 'few'"),
        ("--concurrency 2 --requests 4 --prompts nothing", "unknown dataset 'nothing'"),
        ("--concurrency 2 --requests 4 --max-failure-share 2", "must be from 0 to 1"),
        ("--concurrency 2 --requests 4 --url ftp://h", "endpoint URL: got 'ftp://h'"),
        ("--concurrency 2 --requests 4 --json /proc/none/a.json", "--json /proc/none/a.json"),
        ("--concurrency 2 --requests 4 --json /tmp", "--json /tmp: cannot be written"),
        ("--concurrency 2 --requests 4 --records /proc/none", "records '/proc/none'"),
    ],
)
def test_mistake_is_one_line_and_a_code(words: str, told: str, capsys: Captured) -> None:
    """Each contradiction and each wrong value is told in a line; nothing is sent."""
    with fake_server() as server:
        argv = ["load", "--url", server.url, "--model", "fake", *WHAT, *words.split()]
        code = main(argv)

        assert server.requests == 0
    out, err = capsys.readouterr()
    assert code == Exit.BAD_SPEC
    assert told in err
    assert (out, err.count("\n")) == ("", 1)


def loaded(url: str, *words: str) -> int:
    """Run a load of 12 requests on a server and return the exit code."""
    base = ["load", "--url", url, "--model", "fake", "--prompts", "chat", "--max-tokens", "4"]
    return main([*base, "--concurrency", "3", "--stagger", "0", "--requests", "12", *words])


def test_numbers_are_printed_and_written(tmp_path: Path, capsys: Captured) -> None:
    """The table is on standard output, everything in the file, and the code is 0."""
    path = tmp_path / "new" / "out.json"
    with fake_server(FakeConfig(**FAST)) as server:
        code = loaded(server.url, "--json", str(path))

    told = json.loads(path.read_text())
    assert code == Exit.OK
    assert told["valid"]
    assert told["requests"]["served"] == 12
    assert told["latency"]["ttft_s"]["p50"] > 0.003
    out = capsys.readouterr().out
    assert "TTFT " in out
    assert "12 sent, 12 served, 0 failed" in out
    assert [entry.name for entry in path.parent.iterdir()] == ["out.json"]


@pytest.mark.parametrize(
    ("every", "words", "code"),
    [
        (3, "", Exit.OK),
        (3, "--max-failure-share 0.34", Exit.OK),
        (3, "--max-failure-share 0.3", Exit.UNUSABLE_RUN),
        (1, "", Exit.UNUSABLE_RUN),
    ],
)
def test_code_depends_on_how_many_failed(
    every: int, words: str, code: Exit, tmp_path: Path, capsys: Captured
) -> None:
    """Some failures are shown, too many or all make the run unusable; the file is there anyway."""
    path = tmp_path / "out.json"
    with fake_server(FakeConfig(**FAST, in_band_error_every=every)) as server:
        got = loaded(server.url, "--json", str(path), *words.split())

    out, err = capsys.readouterr()
    assert got == code
    assert f"{12 // every} in_band_error, such as: in the stream: planted error" in out
    assert json.loads(path.read_text())["requests"]["failed"] == 12 // every
    assert (err != "") == (code is not Exit.OK)


def test_unreachable_server_has_its_code(capsys: Captured) -> None:
    """Nothing listens at the address: the server's fault, in one line."""
    assert loaded("http://127.0.0.1:9") == Exit.ENGINE

    assert "no connection to http://127.0.0.1:9" in capsys.readouterr().err


def progress(elapsed_s: float, tokens: int | None, **changes: int) -> LoadProgress:
    """Return how far a run is."""
    fields: dict[str, Any] = {"running": 4, "ended": 10, "failed": 1, "received_bytes": 1000}
    return LoadProgress(elapsed_s=elapsed_s, output_tokens=tokens, **{**fields, **changes})


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def shown(stream: io.StringIO, steps: Sequence[LoadProgress]) -> str:
    """Return what is written for a run."""
    line = ProgressLine(stream)
    for step in steps:
        line.show(step)
    line.end()
    return stream.getvalue()


def test_line_is_rewritten_in_a_terminal() -> None:
    """Each second overwrites the one before; the end leaves the last one standing."""
    text = shown(Terminal(), [progress(1.0, None), progress(2.0, 500), progress(3.0, 2500)])

    lines = text.split("\r")
    assert lines[0] == ""
    assert [line.endswith("\x1b[K") for line in lines[1:-1]] == [True, True]
    assert lines[-1].endswith("\x1b[K\n")
    assert "no answer yet" in lines[1]
    assert "about 250 tokens/s" in lines[2]
    assert "3 s  about 2,000 tokens/s  4 running  10 ended  1 failed" in lines[3]


def test_log_gets_a_line_each_five_seconds() -> None:
    """In a file each line stands alone, and a minute is twelve of them."""
    steps = [progress(second * 1.001, second * 100) for second in range(1, 61)]

    lines = shown(io.StringIO(), steps).splitlines()

    assert len(lines) == 12
    assert all(re.fullmatch(r" +\d+ s  about 100 tokens/s  .*failed", line) for line in lines)


def test_table_shows_what_the_summary_holds(tmp_path: Path) -> None:
    """Milliseconds of each latency, with the scheduled ones in an open loop."""
    test = make_test(arrivals=Poisson(3))
    summary, _ = summary_of(tmp_path, RUNS["speculative"].records, test, notes=("odd [one]",))
    page = io.StringIO()

    print_summary(summary, Console(file=page, width=100, highlight=False, soft_wrap=True))

    text = page.getvalue()
    gap = summary.latency.step_gap_s
    assert gap is not None
    assert re.search(rf"step gap +{gap.count} +{gap.mean * 1e3:.3f} +{gap.p50 * 1e3:.3f} ", text)
    assert text.count("from scheduled") == 2
    assert "scheduling error" in text
    assert "1 early_end, such as: stream ended before [DONE]" in text
    assert "note: odd [one]" in text


def test_help_names_every_api() -> None:
    """The names in the help are those that are registered."""
    assert sorted(TOLD_APIS) == sorted(APIS.names())


HELP = """
from draftgate.cli import _parser
try:
    _parser().parse_args(["load", "--help"])
except SystemExit:
    pass
"""
SLOW = ("torch", "vllm", "pandas", "scipy", "matplotlib", "pytest", "pyarrow")


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        (
            HELP,
            (*SLOW, "numpy", "rich", "uvloop"),
        ),
        ("import draftgate.loadtest\n", SLOW),
        ("import draftgate.cli, draftgate.cli.load_options, draftgate.loadtest\n", SLOW),
    ],
    ids=["help", "function", "command"],
)
def test_starting_imports_nothing_slow(code: str, limit: tuple[str, ...]) -> None:
    """Help, function and command come up without the packages they do not need.

    Counted in modules and not in seconds: of the CPU time of a start the libraries that it does
    need are a half to three quarters, by machine.
    """
    told = f"import sys\nprint(sorted(set({limit}) & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code + told], capture_output=True, text=True, check=True
    )

    assert done.stderr == "[]\n"


def test_output_of_fixed_length_is_understood() -> None:
    """A plain number is a fixed length."""
    assert asked("--rate", "1", "--requests", "1").workload.output == Fixed(8)
