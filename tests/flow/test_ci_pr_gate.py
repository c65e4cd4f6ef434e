"""The gate's stages on a host made of a folder: planned, measured, cancelled, judged."""

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from draftgate.engines import docker
from tests.support.ci_host import BASE, DIGEST, ROOT, SHA, Host, settings, soon


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with stand-ins to be put on it."""
    return Host(tmp_path)


def plan_env(**changes: str) -> dict[str, str]:
    """Return what the workflow tells about a labelled pull request of this repository."""
    return {
        "EVENT_ACTION": "synchronize",
        "NUMBER": "7",
        "HEAD_REPO": "we/engine",
        "HEAD_SHA": SHA,
        "LABELS": '["perf", "docs"]',
        **changes,
    }


def plan(host: Host, **changes: str) -> dict[str, str]:
    """Plan a pull request and return the outputs."""
    ended = host.run("pr-plan", **plan_env(**changes))
    assert ended.code == 0, ended.err
    return host.outputs()


FORK = {"HEAD_REPO": "stranger/engine", "EVENT_ACTION": "labeled", "ADDED_LABEL": "perf"}


@pytest.fixture
def planner(host: Host) -> Host:
    """A host whose registry has all images and whose environment gpu-fork asks a person."""
    settings(host)
    host.stand_in("docker", ("login", {}), ("imagetools inspect", {"out": f"{DIGEST}\n"}))
    host.stand_in(
        "gh",
        ("pulls/7/files", {"out": "README.md\nengine/step.cu\n"}),
        ("environments/gpu-fork", {"out": "branch_policy required_reviewers\n"}),
    )
    return host


def test_images_are_named_by_digest(planner: Host) -> None:
    """A tag of the commit becomes a digest, a port of the registry stays; a digest is kept."""
    outputs = plan(planner)

    assert outputs == {
        "run": "true",
        "environment": "gpu",
        "base": BASE,
        "candidate": f"reg.local:5000/we/engine@{DIGEST}",
        "profile": "cpu-smollm2",
        "minutes": "180",
        "runner": '["self-hosted","linux","gpu"]',
        "confirm_runner": '["self-hosted","linux","gpu"]',
    }
    inspected = [call["argv"] for call in planner.calls("docker") if "buildx" in call["argv"]]
    assert [argv[-1] for argv in inspected] == [f"reg.local:5000/we/engine:pr-{SHA}"]


def test_token_is_given_to_docker_by_standard_input(planner: Host) -> None:
    """No list of processes shows it."""
    plan(planner)

    login = next(call for call in planner.calls("docker") if call["argv"][0] == "login")
    assert "t0ken" not in " ".join(login["argv"])
    assert login["stdin"].strip() == "t0ken"


@pytest.mark.parametrize(
    ("changes", "paths", "environment"),
    [
        ({}, [], "gpu"),
        ({"LABELS": "[]"}, [], None),
        ({"LABELS": '["performance"]'}, [], None),
        ({"LABELS": "[]"}, ["docs/*"], None),
        ({"LABELS": "[]"}, ["docs/*", "engine/*.cu"], "gpu"),
        (FORK, [], "gpu-fork"),
        ({**FORK, "EVENT_ACTION": "synchronize"}, ["engine/*"], None),
        ({**FORK, "EVENT_ACTION": "opened"}, ["engine/*"], None),
        ({**FORK, "ADDED_LABEL": "docs"}, ["engine/*"], None),
    ],
)
def test_who_is_measured_and_where(
    planner: Host, changes: dict[str, str], paths: list[str], environment: str | None
) -> None:
    """Label or path for our own; for a fork the moment at which someone adds the label."""
    settings(planner, paths=paths)

    outputs = plan(planner, **changes)

    assert outputs.get("environment") == environment
    assert outputs["run"] == ("true" if environment else "false")


@pytest.mark.parametrize("answer", [{"code": 1, "err": "HTTP 404"}, {"out": "wait_timer\n"}])
def test_fork_is_refused_without_reviewers(planner: Host, answer: dict[str, Any]) -> None:
    """GitHub would make a missing environment, without protection, on its first use."""
    planner.stand_in("gh", ("environments/gpu-fork", answer))

    ended = planner.run("pr-plan", **plan_env(**FORK))

    assert ended.code == 1
    assert "gpu-fork" in ended.err
    assert planner.outputs() == {}


def test_image_that_does_not_appear_is_named(planner: Host) -> None:
    """With the time that was waited and the registry's own words."""
    planner.stand_in("docker", ("login", {}), ("imagetools", {"code": 1, "err": "not found"}))
    script = planner.scripts / "pr-plan"
    script.write_text(script.read_text().replace("60 * wait_minutes", "0 * wait_minutes"))

    ended = planner.run("pr-plan", **plan_env())

    assert ended.code == 1
    assert f"engine:pr-{SHA}' did not appear in 30 min: not found" in ended.err
    assert planner.outputs() == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("base_image", ""),
        ("candidate_image", "--privileged"),
        ("candidate_image", "a b"),
        ("profile", "../x"),
        ("profile", None),
        ("max_minutes", "90"),
        ("max_minutes", 0),
        ("runner", []),
        ("runner", "gpu"),
        ("confirm_runner", ["a b"]),
        ("paths", "engine/*"),
        ("paths", ["a\nb"]),
        ("image_wait_minutes", -1),
    ],
)
def test_unusable_setting_is_named(planner: Host, key: str, value: object) -> None:
    """Before anything is asked of the registry, with what it is."""
    settings(planner, **{key: value})

    ended = planner.run("pr-plan", **plan_env())

    assert ended.code == 1
    assert f"gate.json: '{key}' is {json.dumps(value)}" in ended.err
    assert planner.calls("docker") == []
    assert planner.outputs() == {}


def test_committed_settings_only_lack_images(planner: Host) -> None:
    """The file as it is in the repository says what is still to be filled in."""
    shutil.copy(ROOT / "gpu-ci" / "gate.json", planner.folder / "repo" / "gpu-ci")

    ended = planner.run("pr-plan", **plan_env())

    assert "gate.json: 'base_image' is \"\"" in ended.err


_DRAFTGATE = """#!/bin/bash
printf '%s\\n' "$*" >>"$CI_HOST/draftgate.argv"
printf '%s' "$DRAFTGATE_JOB" >"$CI_HOST/job"
while [[ $# -gt 0 ]]; do [[ "$1" == --out ]] && out="$2"; shift; done
if [[ -n "$RESULT" ]]; then
  run="$out/20260101-000000-fake"
  mkdir -p "$run"
  printf '%s' "$RESULT" >"$run/result.json"
  echo "what was found" >"$run/comment.md"
  echo "a summary" >"$run/summary.md"
fi
if [[ -n "$SLOW" ]]; then
  trap 'echo stopped >"$CI_HOST/stopped"; exit 130' TERM
  touch "$CI_HOST/started"
  while :; do sleep 0.05; done
fi
exit "$CODE"
"""


@pytest.fixture
def runner(host: Host) -> Host:
    """A host on which draftgate is a script that ends as it is told to."""
    for name in ("install", "clean-host"):
        host.replace_script(name)
    host.stand_in("docker", ("login", {}), ("pull", {}))
    host.program("draftgate", _DRAFTGATE, folder=host.folder / "venv" / "bin")
    (host.folder / "venv" / "bin" / "python").symlink_to(sys.executable)
    host.env |= {"PROFILE": "p", "BASE": BASE, "CANDIDATE": f"reg/c@{DIGEST}", "NUMBER": "7"}
    host.env |= {"OUT": str(host.folder / "out"), "SLOW": "", "RESULT": ""}
    return host


@pytest.mark.parametrize(
    ("code", "suspects", "exit_code", "confirm"),
    [(0, 0, 0, "false"), (1, 0, 1, "false"), (6, 0, 6, "false"), (6, 2, 0, "true")],
)
def test_stage_one_is_green_for_a_pass_or_for_stage_two(
    runner: Host, code: int, suspects: int, exit_code: int, confirm: str
) -> None:
    """Undecided without suspects stays red: it is no pass."""
    ended = runner.run("pr-gate", "search", CODE=str(code), RESULT=f'{{"suspects": {suspects}}}')

    assert ended.code == exit_code, ended.err
    assert runner.outputs() == {"confirm": confirm}
    out = runner.folder / "out"
    assert (out / "comment" / "comment.md").read_text() == "what was found\n"
    assert (out / "comment" / "number").read_text() == "7\n"
    assert runner.summary.read_text() == "a summary\n"
    argv = (runner.folder / "draftgate.argv").read_text().split()
    assert argv[:3] == ["compare", f"image:{BASE}", f"image:reg/c@{DIGEST}"]
    assert argv[3:] == ["--profile", "p", "--out", f"{out}/runs", "--stage", "search"]


def test_host_is_made_ready_and_images_are_pulled_first(runner: Host) -> None:
    """Leftovers go, the venv and the images come, and the credentials of the pull are not kept."""
    runner.run("pr-gate", "search", CODE="0", RESULT='{"suspects": 0}')

    assert (runner.folder / "clean-host.calls").read_text() == "--before\n"
    assert (runner.folder / "install.calls").read_text() == "--profile p\n"
    pulled = [call["argv"][-1] for call in runner.calls("docker") if call["argv"][0] == "pull"]
    assert pulled == [BASE, f"reg/c@{DIGEST}"]
    assert not (runner.folder / ".docker").exists()


def test_everything_is_started_with_the_mark_of_the_job(runner: Host) -> None:
    """By it clean-host finds what a job left; the job that set it has ended by now."""
    runner.run("pr-gate", "search", CODE="0", RESULT='{"suspects": 0}')

    place, _, owner = (runner.folder / "job").read_text().partition("/")
    assert place == docker._place()
    assert not docker._lives(owner)


def test_missing_result_is_told_in_the_comment(runner: Host) -> None:
    """An older and greener comment must not stand."""
    ended = runner.run("pr-gate", "search", CODE="2")

    assert ended.code == 2
    told = (runner.folder / "out" / "comment" / "comment.md").read_text()
    assert "left no result: stage search ended with exit code 2" in told
    assert told in runner.summary.read_text()


def test_result_without_suspects_field_is_no_green(runner: Host) -> None:
    """A result that cannot be read ends the job with the reason."""
    ended = runner.run("pr-gate", "search", CODE="6", RESULT="{}")

    assert ended.code != 0
    assert "suspects" in ended.err


def test_stage_two_confirms_the_run_of_stage_one(runner: Host) -> None:
    """It is given the folder that the first job left, and its own code decides."""
    first = runner.folder / "out" / "search" / "20260101-000000-one"
    first.mkdir(parents=True)

    ended = runner.run("pr-gate", "confirm", CODE="1", RESULT='{"suspects": 0}', MAX_MINUTES="90")

    assert ended.code == 1
    argv = (runner.folder / "draftgate.argv").read_text().split()
    assert argv[-4:] == ["--max-minutes", "90", "--confirm", str(first)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancelled_job_ends_draftgate_gently(runner: Host, number: signal.Signals) -> None:
    """A signal to the script alone reaches draftgate, whose own end is waited for."""
    with runner.start("pr-gate", "search", CODE="0", SLOW="yes") as process:
        assert soon(runner.folder / "started")
        process.send_signal(number)
        process.communicate(timeout=20)

    assert process.returncode == 130
    assert (runner.folder / "stopped").exists()


def test_second_job_on_the_host_is_refused(runner: Host) -> None:
    """One at a time, whatever runner or repository it comes from."""
    with runner.start("pr-gate", "search", CODE="0", SLOW="yes") as first:
        assert soon(runner.folder / "started")
        second = runner.run("pr-gate", "search", CODE="0")
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=20)
    third = runner.run("pr-gate", "search", CODE="0", RESULT='{"suspects": 0}')

    assert second.code == 75
    assert "Another job holds this host" in second.out
    assert third.code == 0


def test_leftover_of_a_killed_job_does_not_hold_the_host(runner: Host) -> None:
    """The lock ends with the job: what it started has not inherited it."""
    with runner.start("pr-gate", "search", CODE="0", SLOW="yes") as first:
        assert soon(runner.folder / "started")
        first.kill()
        first.wait(timeout=20)
        second = runner.run("pr-gate", "search", CODE="0", RESULT='{"suspects": 0}')

    assert second.code == 0, second.out


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("success false skipped - skipped", 0),
        ("success true success false skipped", 0),
        ("success true success true success", 0),
        ("success true success true failure", 1),
        ("success true success true cancelled", 1),
        ("success true success true skipped", 1),
        ("success true failure false skipped", 1),
        ("success true cancelled - skipped", 1),
        ("success - skipped - skipped", 1),
        ("failure - skipped - skipped", 1),
    ],
)
def test_verdict_is_green_only_if_all_that_was_due_is(host: Host, state: str, code: int) -> None:
    """Skipped is green only where nothing was to be measured."""
    names = ("RESULT_PLAN", "RUN", "RESULT_SEARCH", "CONFIRM", "RESULT_CONFIRM")
    values = [value.replace("-", "") for value in state.split()]

    ended = host.run("pr-verdict", **dict(zip(names, values, strict=True)))

    assert ended.code == code, ended.out
