"""`draftgate check` as a whole process against scripted servers whose law is known."""

import json
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from draftgate.checks.kept import CHECKED, read_check, read_scores
from draftgate.checks.outcome import CheckOutcome, Why
from draftgate.cli import Exit
from draftgate.engines.fake_server import FakeConfig, FakeServer
from tests.support.fake import fake_server
from tests.support.flow import Ended, Started, assert_clean
from tests.support.scripted_law import VOCABULARY, scripted

KNOWN = ("--k", "4", "--dtype", "float32", "--vocabulary", str(VOCABULARY), "--seed", "3")


def start(folder: Path, *words: str, **env: str) -> Started:
    """Start a check in a folder."""
    return Started([sys.executable, "-m", "draftgate.cli", "check", *words], cwd=folder, **env)


def check(
    folder: Path, checked: FakeConfig, plain: FakeConfig | None, *words: str
) -> tuple[Ended, FakeServer]:
    """Run a check of one scripted server against another, or against itself."""
    with ExitStack() as stack:
        server = stack.enter_context(fake_server(checked))
        options = ["--url", server.url, *KNOWN]
        if plain is not None:
            options += ["--reference", stack.enter_context(fake_server(plain)).url]
        return start(folder, *options, *words).end(), server


def stored(folder: Path) -> Path:
    """Return the one folder that a check left."""
    (found,) = (folder / "runs").iterdir()
    return found


def test_faultless_server_passes_and_is_stored(tmp_path: Path) -> None:
    """PASS with its size, exit code 0, progress on the way, and both files whole."""
    words = ("--budget", "1600", "--condition", "T=1", "--condition", "T=0.8")
    ended, _ = check(tmp_path, scripted(), scripted(k=0), *words)

    assert ended.code == Exit.OK, ended.output
    assert "PASS: fake at http://127.0.0.1:" in ended.output
    assert "detectable 0.0" in ended.output
    assert "tokens  log e-value" in ended.output
    assert "parameters honoured: top_k, top_p" in ended.output
    assert "parameters refused: min_p" in ended.output
    result = read_check(stored(tmp_path))
    assert result.judgement.outcome is CheckOutcome.PASS
    assert result.findings.tokens >= 1600
    tokens = [entry.tokens for entry in result.findings.checked]
    assert [entry.tokens for entry in result.findings.plain] == tokens
    assert read_scores(stored(tmp_path), CHECKED, "T=0.8") is not None
    assert_clean(ended, tmp_path)


@pytest.mark.parametrize("fault", ["greedy", "hot", "recovered_from_target"])
def test_faulty_server_is_lossy_and_the_example_can_be_sent_again(
    tmp_path: Path, fault: str
) -> None:
    """LOSSY before the budget, exit code 1, with a command whose body the server takes."""
    words = ("--budget", "20000", "--condition", "T=1")
    ended, _ = check(tmp_path, scripted(fault=fault), scripted(k=0), *words)

    assert ended.code == Exit.REGRESSION, ended.output
    result = read_check(stored(tmp_path))
    assert result.judgement.outcome is CheckOutcome.LOSSY
    assert result.findings.tokens < 20000
    assert result.worst is not None
    assert len(result.worst.likely) >= 3
    assert result.worst.text == f" w{result.worst.token}"
    body = json.loads(result.worst.curl.partition(" -d '")[2].rstrip("'"))
    assert body["temperature"] == 1.0
    assert "again: curl -N http://127.0.0.1:" in ended.output


def test_dropped_parameter_is_a_mismatch(tmp_path: Path) -> None:
    """A server whose text is right but which takes min_p in silence does not pass."""
    words = ("--budget", "1600", "--condition", "T=1")
    ended, _ = check(tmp_path, scripted(deaf_to="min_p"), scripted(k=0), *words)

    assert ended.code == Exit.REGRESSION, ended.output
    assert "MISMATCH: fake at" in ended.output
    result = read_check(stored(tmp_path))
    assert [finding.where for finding in result.mismatches] == ["min_p"]
    assert dict(result.parameters)["min_p"] == "ignored"
    assert "parameters ignored: min_p" in ended.output
    assert "MISMATCH" in (stored(tmp_path) / "report.html").read_text(encoding="utf-8")


def test_answer_that_is_too_short_is_a_mismatch(tmp_path: Path) -> None:
    """One token fewer than usage says, in every ninth answer, is told with its request."""
    words = ("--budget", "1600", "--condition", "T=1", "--skip-probes")
    ended, _ = check(tmp_path, scripted(wrong_length_every=9), scripted(k=0), *words)

    assert ended.code == Exit.REGRESSION, ended.output
    result = read_check(stored(tmp_path))
    assert result.judgement.outcome is CheckOutcome.MISMATCH
    assert result.parameters == ()
    assert {finding.what for finding in result.mismatches} == {
        "token ids, usage and max_tokens agree"
    }
    assert len(result.mismatches) == len(result.failures) > 0


@pytest.mark.parametrize("fault", ["hot", None])
def test_wrong_reference_is_inconclusive(tmp_path: Path, fault: str | None) -> None:
    """A fault of the server without speculation accuses nobody; its example points at it."""
    words = ("--budget", "20000", "--condition", "T=1")
    ended, server = check(tmp_path, scripted(fault=fault), scripted(fault="hot", k=0), *words)

    assert ended.code == Exit.INCONCLUSIVE, ended.output
    result = read_check(stored(tmp_path))
    judged, shown = result.judgement, server.url if fault else result.subject.plain_url
    assert result.worst is not None
    assert f"curl -N {shown}/" in result.worst.curl
    assert (judged.outcome, judged.why) == (CheckOutcome.INCONCLUSIVE, Why.NUMERICS)
    assert "INCONCLUSIVE (numerics)" in ended.output


def test_server_is_its_own_reference(tmp_path: Path) -> None:
    """Without a reference the server reads its own answers; a fault of its steps still shows."""
    words = ("--budget", "20000", "--condition", "T=1")
    ended, _ = check(tmp_path, scripted(fault="greedy"), None, *words)

    assert ended.code == Exit.REGRESSION, ended.output
    result = read_check(stored(tmp_path))
    assert "itself" in result.subject.reference
    assert any("prefill shares" in blind for blind in result.subject.blind_to)
    assert "no A/A arm could run" in ended.output


def test_default_filters_are_left_out_in_bfloat16(tmp_path: Path) -> None:
    """Without a model the two default filters are no part of the check, and a line says so."""
    with fake_server(scripted()) as server:
        words = ("--url", server.url, "--k", "4", "--vocabulary", str(VOCABULARY))
        ended = start(tmp_path, *words, "--budget", "700").end()

    checked = read_check(stored(tmp_path)).findings.checked
    assert [entry.condition for entry in checked] == ["T=0.8", "T=1", "T=1.5"]
    assert "'T=0.8,top_p=0.95', 'T=1,top_k=16' are left out: got bfloat16" in ended.output


def test_time_budget_ends_the_check(tmp_path: Path) -> None:
    """A budget in seconds ends with whole rounds of every condition that had its turn."""
    ended, _ = check(tmp_path, scripted(), None, "--budget", "2s", "--condition", "T=1")

    assert ended.code in {Exit.OK, Exit.INCONCLUSIVE}, ended.output
    result = read_check(stored(tmp_path))
    assert result.elapsed_s >= 2
    assert (result.findings.tokens - 211) % 705 == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_ctrl_c_judges_what_is_there(tmp_path: Path, number: signal.Signals) -> None:
    """A stopped check gives the verdict of its whole rounds, says so, and leaves nothing open."""
    with fake_server(scripted(step_s=0.005)) as server:
        words = ("--budget", "10m", "--condition", "T=1")
        started = start(tmp_path, "--url", server.url, *KNOWN, *words)
        started.read_until("1,621 tokens")
        started.send(number)
        ended = started.end()

    assert ended.code == Exit.OK, ended.output
    assert "stopped by Ctrl-C" in ended.output
    result = read_check(stored(tmp_path))
    assert result.interrupted
    assert result.findings.tokens >= 1621
    assert_clean(ended, tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--budget", "soon"), Exit.BAD_SPEC, "budget: got 'soon', expected a time such as 60s"),
        (("--alpha", "2"), Exit.BAD_SPEC, "alpha: got 2, expected"),
        (("--condition", "T=0"), Exit.BAD_SPEC, "expected T above 0"),
        (("--k", "0"), Exit.BAD_SPEC, "--k: got 0, expected at least 1"),
        (("--engine", "sglang"), Exit.BAD_SPEC, "expected a model"),
        (("--reference", "no-such-model"), Exit.BAD_SPEC, "model 'no-such-model'"),
        (("--draft", "ngram"), Exit.BAD_SPEC, "Give --k"),
        (("--condition", "T=1,top_k=9"), Exit.BAD_SPEC, "conditions 'T=1,top_k=9': got bfloat16"),
        (("--draft-sampled",), Exit.BAD_SPEC, "--draft-sampled: got no draft, expected a model"),
        (("--model", "other"), Exit.ENGINE, "does not serve model 'other'"),
        (("--reference", "http://127.0.0.1:9"), Exit.ENGINE, "no answer from"),
        (("--tokenizer", "."), Exit.BAD_SPEC, "Name the folder of the served model"),
        (("--out", "/dev/null/x"), Exit.BAD_SPEC, "Name another folder"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, words: tuple[str, ...], code: Exit, said: str
) -> None:
    """Each mistake is told at once, by its own code, and nothing is stored."""
    with fake_server(scripted()) as server:
        ended = start(tmp_path, "--url", server.url, *words).end()

    assert ended.code == code, ended.output
    assert said in ended.output
    assert "Traceback" not in ended.output
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_server_without_ids_is_told(tmp_path: Path) -> None:
    """A server that fails every request is an engine error that quotes the first."""
    ended, _ = check(tmp_path, scripted(error_every=1), None, "--budget", "700")

    assert ended.code == Exit.ENGINE, ended.output
    assert "planted error" in ended.output


def test_some_failures_are_told_and_no_evidence(tmp_path: Path) -> None:
    """Requests that fail are counted in the verdict, and what is left is judged."""
    words = ("--budget", "1400", "--condition", "T=1")
    ended, _ = check(tmp_path, scripted(early_close_every=9), scripted(k=0), *words)

    assert ended.code == Exit.OK, ended.output
    assert "brought no answer and are no evidence" in ended.output
    assert len(read_check(stored(tmp_path)).failures) >= 3
