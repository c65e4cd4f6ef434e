"""The subcommand `serve`: its defaults, and a line and a code for each mistake."""

import argparse
import re
import socket
from pathlib import Path

import pytest

from draftgate.cli import Exit, _parser, main
from draftgate.cli.listen import host_and_port
from draftgate.cli.serve import DEFAULT_MAX_BODY_BYTES, _is_loopback, spec_of
from draftgate.serve.limits import Limits
from draftgate.serve.routing import PER_REQUEST_ARGS
from tests.support.flow import NGRAM, NONE, write_profile
from tests.support.serve import BASELINE, step_times

Captured = pytest.CaptureFixture[str]

KEY = "sk-planted-4711"


@pytest.fixture
def profile(tmp_path: Path) -> str:
    """The path of a profile with the arms none and ngram."""
    return str(write_profile(tmp_path / "p.toml", {"none": NONE, "ngram": NGRAM}))


def options(*words: str) -> argparse.Namespace:
    """Return the options as parsed."""
    parsed: argparse.Namespace = _parser().parse_args(["serve", *words])
    return parsed


def test_defaults_are_careful(profile: str) -> None:
    """Loopback, no metrics, one choice, as many in flight as the engine runs, as many queued."""
    spec = spec_of(options("--profile", profile))

    assert spec.listen == ("127.0.0.1", 8000)
    assert (spec.arm.name, spec.max_in_flight, spec.max_queue) == ("none", 32, 32)
    assert spec.limits == Limits(DEFAULT_MAX_BODY_BYTES, None, 1)
    assert (spec.key, spec.metrics, spec.usd_per_hour) == (None, False, None)
    assert (spec.interval_s, spec.drain_timeout_s) == (10.0, 30.0)


def test_slots_follow_the_profile(profile: str) -> None:
    """--set reaches the engine and the front; --max-in-flight is the front's alone."""
    words = ["--profile", profile, "--arm", "ngram", "--set", "engine.max_num_seqs=5"]

    assert (spec_of(options(*words)).max_in_flight, spec_of(options(*words)).max_queue) == (5, 5)
    fewer = spec_of(options(*words, "--max-in-flight", "3"))
    assert (fewer.max_in_flight, fewer.max_queue, fewer.arm.engine.max_num_seqs) == (3, 3, 5)


def test_key_is_in_no_text_of_the_spec(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read from the variable, and a spec that is shown does not show it."""
    monkeypatch.setenv("MY_KEY", KEY)

    spec = spec_of(options("--profile", profile, "--api-key-env", "MY_KEY"))
    assert spec.key == KEY
    assert KEY not in repr(spec)


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (["--listen", "8000"], "--listen got '8000', expected HOST:PORT"),
        (["--listen", "h:70000"], "expected HOST:PORT"),
        (["--arm", "eagle"], "has no arm 'eagle'"),
        (["--interval", "0"], "--interval must be above 0, got 0"),
        (["--interval", "nan"], "--interval must be above 0, got nan"),
        (["--drain-timeout", "-1"], "--drain-timeout must be 0 or more seconds, got -1"),
        (["--usd-per-hour", "-2"], "--usd-per-hour must be above 0, got -2"),
        (["--max-in-flight", "0"], "--max-in-flight must be 1 or more requests, got 0"),
        (["--max-queue", "-1"], "--max-queue must be 0 or more requests, got -1"),
        (["--max-body-bytes", "0"], "--max-body-bytes must be 1 or more, got 0"),
        (["--max-output-tokens", "0"], "--max-output-tokens must be 1 or more, got 0"),
        (["--max-choices", "0"], "--max-choices must be 1 or more, got 0"),
        (["--api-key-env", "NOT_SET"], "environment variable NOT_SET is empty"),
        (["--class-header", "x-class"], "got no --fallback. Name the arms below"),
        (["--break-even", "b.json"], "got no --fallback. Name the arms below"),
        (
            ["--arm", "ngram", "--fallback", "none", "--class-header", "a b"],
            "--class-header got 'a b', expected the name of a header",
        ),
        (["--fallback", "ngram"], "the last arm of --fallback is 'ngram' with method 'ngram'"),
        (
            ["--fallback", "none"],
            "arm 'none' has no speculation and stands before others in the ladder",
        ),
        (["--arm", "ngram", "--fallback", "medusa"], "has no arm 'medusa'"),
    ],
)
def test_wrong_option_is_one_line_and_a_code(
    profile: str, words: list[str], about: str, capsys: Captured
) -> None:
    """Each names what was got, before anything is started."""
    assert main(["serve", "--profile", profile, *words]) == Exit.BAD_SPEC

    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"draftgate: .*\n", err)
    assert about in err


def test_fallback_without_step_times_is_one_line(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """It names the file that it looked for, and both ways out."""
    monkeypatch.chdir(tmp_path)

    code = main(["serve", "--profile", profile, "--arm", "ngram", "--fallback", "none"])

    err = capsys.readouterr().err
    assert code == Exit.NO_BASELINE
    assert re.search(r"there is no baselines/\S+/fake/fake-flow\.json, the baseline of", err)
    assert "--break-even FILE" in err
    assert err.count("\n") == 1


def test_fallback_of_the_options(profile: str, tmp_path: Path) -> None:
    """Ladder, rule and step times; a quarter of the steps for probes."""
    times = step_times(tmp_path, {"none": {1: 0.02}, "ngram": {1: 0.03}})
    words = ["--profile", profile, "--arm", "ngram", "--fallback", "none", "--class-header", "X-Y"]
    words += ["--window-steps", "80", "--dwell", "5", "--break-even", str(times), "--no-restart"]

    spec = spec_of(options(*words))

    assert [arm.name for arm in spec.arms] == ["ngram", "none"]
    assert spec.fallback is not None
    assert spec.fallback.policy.rule.probe_steps == 20
    assert spec.fallback.policy.dwell_s == 5.0
    assert spec.fallback.class_header == "x-y"
    assert spec.fallback.break_even.tokens_per_step("ngram", 1) == pytest.approx(1.5)
    assert not spec.restart


def test_classes_make_vllm_tell_what_was_accepted() -> None:
    """Arms with speculation are started with the option that answers carry it; none is not."""
    words = ["--arm", "eagle3", "--fallback", "ngram,none", "--class-header", "x-class"]
    words += ["--break-even", str(BASELINE)]

    spec = spec_of(options(*words))

    told = [PER_REQUEST_ARGS[0] in arm.engine.args for arm in spec.arms]
    assert [arm.name for arm in spec.arms] == ["eagle3", "ngram", "none"]
    assert told == [True, True, False]


def test_address_in_use_is_told_before_the_engine_starts(profile: str, capsys: Captured) -> None:
    """One line that says what to do, at once."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code = main(["serve", "--profile", profile, "--listen", f"127.0.0.1:{port}"])

    err = capsys.readouterr().err
    assert code == Exit.ENGINE
    assert f"serve: cannot listen on 127.0.0.1:{port}" in err
    assert err.endswith("Give another address with --listen.\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        (":80", ("127.0.0.1", 80)),
        ("[::1]:5", ("::1", 5)),
        ("off", None),
        ("h:", None),
        ("h:-1", None),
    ],
)
def test_host_and_port(text: str, address: tuple[str, int] | None) -> None:
    """Without a host it is loopback; what is neither is None."""
    assert host_and_port(text) == address


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("gpu-host", False),
    ],
)
def test_address_that_others_reach_is_known(host: str, *, is_loopback: bool) -> None:
    """Only loopback needs no key to be quiet about it."""
    assert _is_loopback(host) is is_loopback
