"""The scripts of gpu-ci on hosts made of folders, and what the linters say about them."""

import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftgate.engines import docker
from tests.support.ci_host import ROOT, Host, ended_process, sleeper

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SHA = "a" * 40
DIGEST = f"sha256:{'d' * 64}"
BASE = f"ghcr.io/we/engine@{DIGEST}"
FREE = ("--query-gpu", {"out": "0, 80000, 81000\n1, 80500, 81000\n"})
CROWDED = ("--query-gpu", {"out": "0, 80000, 81000\n1, 20000, 81000\n"})
USERS = ("--query-compute-apps", {"out": f"{os.getpid()}, 60000 MiB\n"})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host without Docker and with two free GPUs."""
    made = Host(tmp_path)
    made.stand_in("nvidia-smi", FREE, USERS)
    return made


def soon(path: Path) -> bool:
    """Return whether a file appears within 10 s."""
    pause = threading.Event()
    return any(path.exists() or pause.wait(0.02) for _ in range(500))


# --- linters


def tool(name: str) -> str:
    """Return a program of the tests' own environment."""
    path = Path(sys.executable).parent / name
    assert path.exists(), f"{path} is missing; requirements/dev.lock brings it: install --dev"
    return str(path)


def lint(*argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a linter on the checkout."""
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, env=env)


def test_scripts_are_clean_for_shellcheck() -> None:
    """Every script, and what they share, without a finding."""
    scripts = sorted(str(path) for path in (ROOT / "gpu-ci" / "scripts").iterdir())

    # SC2034: what a sourced file sets is used by those that source it.
    said = lint(tool("shellcheck"), "-s", "bash", "-x", "-P", "SCRIPTDIR", "-e", "SC2034", *scripts)

    assert (said.returncode, said.stdout) == (0, "")


def test_shellcheck_finds_a_planted_fault(tmp_path: Path) -> None:
    """An unquoted word that may split is found with the same options."""
    broken = tmp_path / "broken"
    broken.write_text("#!/usr/bin/env bash\nrm -rf $1\n")

    said = lint(tool("shellcheck"), "-s", "bash", "-x", "-e", "SC2034", str(broken))

    assert "SC2086" in said.stdout


def actionlint(*files: Path) -> subprocess.CompletedProcess[str]:
    """Run actionlint with shellcheck for the scripts inside."""
    paths = [str(path) for path in files]
    return lint(tool("actionlint"), f"-shellcheck={tool('shellcheck')}", "-no-color", *paths)


def by_version(text: str) -> str:
    """Return a workflow with versions for hashes: by a hash no action's inputs are known."""
    return re.sub(r"@[0-9a-f]{40} # (v\d+)[.\d]*", r"@\1", text)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_is_clean_for_actionlint(tmp_path: Path, path: Path) -> None:
    """GitHub would take it: keys, expressions, scripts, and the inputs of actions."""
    named = tmp_path / path.name
    named.write_text(by_version(path.read_text()))

    said = actionlint(path, named)

    assert (said.returncode, said.stdout) == (0, "")


@pytest.mark.parametrize(
    ("good", "bad", "finding"),
    [
        ("needs: [plan, search]", "needs: [plan, serch]", 'needs job "serch"'),
        ("needs.plan.outputs.base }}", "needs.plan.outputs.basis }}", '"basis" is not defined'),
        ("timeout-minutes: 45", "timeout-minuts: 45", "timeout-minuts"),
        ("toJSON(", "toJsn(", 'undefined function "toJsn"'),
        ("if-no-files-found: ignore", "if-no-files: ignore", 'input "if-no-files" is not defined'),
        ("          path: gate/comment\n", "", 'missing input "path"'),
        ("run: exec gpu-ci/scripts/pr-verdict", "run: rm -rf $RUN", "SC2086"),
    ],
)
def test_actionlint_finds_a_planted_fault(
    tmp_path: Path, good: str, bad: str, finding: str
) -> None:
    """A copy of the gate with one thing made wrong is refused for that."""
    text = (ROOT / ".github" / "workflows" / "pr-gate.yml").read_text()
    assert good in text
    broken = tmp_path / "pr-gate.yml"
    broken.write_text(by_version(text.replace(good, bad, 1)))

    said = actionlint(broken)

    assert said.returncode == 1
    assert finding in said.stdout


# --- clean-host


def listed(host: Host, *rows: tuple[str, str]) -> None:
    """Let docker list containers by name and owner."""
    out = "".join(f"{name}\t{owner}\n" for name, owner in rows)
    host.stand_in("docker", ("ps --all", {"out": out}), ("rm", {}), ("info", {"code": 1}))


def removed(host: Host) -> list[str]:
    """Return the containers that were removed."""
    return [call["argv"][-1] for call in host.calls("docker") if call["argv"][0] == "rm"]


def test_containers_of_dead_sessions_are_removed(host: Host) -> None:
    """By draftgate's own labels of place and owner; a living session keeps its own."""
    listed(host, ("draftgate-a", ended_process()), ("draftgate-b", docker._owner()))

    ended = host.run("clean-host", "--before")

    assert ended.code == 0, ended.err
    asked = next(call["argv"] for call in host.calls("docker") if call["argv"][0] == "ps")
    assert f"label={docker.PLACE_LABEL}={docker._place()}" in asked
    assert docker.OWNER_LABEL in asked[-1]
    assert removed(host) == ["draftgate-a"]


def test_dry_run_only_tells(host: Host) -> None:
    """Containers, processes and shared memory are named and left alone."""
    owner = ended_process()
    listed(host, ("draftgate-a", owner))
    host.state.mkdir()
    (host.state / f"shm-{owner}").touch()
    (host.shm / "psm_new").touch()
    process = sleeper(DRAFTGATE_JOB=f"{docker._place()}/{owner}")

    ended = host.run("clean-host", "--before", "--dry-run")

    assert process.poll() is None
    process.kill()
    process.wait()
    assert ended.code == 0
    for told in ("container draftgate-a", f"end process {process.pid}", "shared memory psm_new"):
        assert told in ended.out
    assert removed(host) == []
    assert (host.shm / "psm_new").exists()


@pytest.fixture
def bystanders() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are nobody's leftovers: unmarked, of a living job, of another machine."""
    gone, place = ended_process(), docker._place()
    started = [
        sleeper(),
        sleeper(DRAFTGATE_JOB=f"{place}/{docker._owner()}"),
        sleeper(DRAFTGATE_JOB=f"another-boot-1-0/{gone}"),
        sleeper(DRAFTGATE_JOBS=f"{place}/{gone}"),
    ]
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_processes_of_dead_jobs_are_ended(
    host: Host, bystanders: list[subprocess.Popen[bytes]]
) -> None:
    """A process with the mark of a job that is gone is ended, and no other one."""
    left = sleeper(DRAFTGATE_JOB=f"{docker._place()}/{ended_process()}")

    ended = host.run("clean-host", "--after")

    assert ended.code == 0, ended.err
    assert left.wait(timeout=5) == -signal.SIGTERM
    assert [process.poll() for process in bystanders] == [None] * 4


def test_stubborn_process_is_killed(host: Host) -> None:
    """One that ignores SIGTERM is killed after its grace."""
    mark = {"DRAFTGATE_JOB": f"{docker._place()}/{ended_process()}"}
    ready = host.folder / "ready"
    left = subprocess.Popen(
        ["bash", "-c", f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done"],
        env={**os.environ, **mark},
    )
    assert soon(ready)

    ended = host.run("clean-host", "--after", DRAFTGATE_TERM_GRACE_S="0")

    assert ended.code == 0, ended.err
    assert left.wait(timeout=5) == -signal.SIGKILL


def test_shared_memory_of_a_dead_job_is_removed(host: Host) -> None:
    """Gone is what appeared during it, has a name of ours and is mapped by nobody."""
    host.state.mkdir()
    (host.state / f"shm-{ended_process()}").write_text("psm_before\n")
    for name in ("psm_before", "psm_new", "torch_1_2", "someone.else"):
        (host.shm / name).touch()
    used = host.shm / "psm_used"
    used.write_bytes(b"0" * mmap.PAGESIZE)
    with used.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        ended = host.run("clean-host", "--after")

    assert ended.code == 0, ended.err
    assert {path.name for path in host.shm.iterdir()} == {"psm_before", "psm_used", "someone.else"}
    assert list(host.state.iterdir()) == []


def test_shared_memory_stays_while_another_job_lives(host: Host) -> None:
    """What is new may be the living job's own."""
    host.state.mkdir()
    (host.state / f"shm-{ended_process()}").touch()
    (host.state / f"shm-{docker._owner()}").touch()
    (host.shm / "psm_new").touch()

    ended = host.run("clean-host", "--before")

    assert ended.code == 0, ended.err
    assert (host.shm / "psm_new").exists()


def test_crowded_gpu_is_refused(host: Host) -> None:
    """With the GPU, the numbers and who holds the memory; no setting is touched."""
    host.stand_in("nvidia-smi", CROWDED, USERS)

    ended = host.run("clean-host", "--before")

    assert ended.code == 75
    assert "GPU 1: 20000 of 81000 MiB are free (25 %), 90 % are needed" in ended.out
    assert f"Process {os.getpid()} (" in ended.out
    assert ") holds 60000 MiB" in ended.out
    assert "GPU 0" not in ended.out
    flags = {arg for call in host.calls("nvidia-smi") for arg in call["argv"]}
    assert all(flag.startswith(("--query-", "--format=")) for flag in flags)


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({"DRAFTGATE_MIN_FREE_GPU": "0.2"}, "--before"),
        ({"DRAFTGATE_GPU": "none"}, "--before"),
        ({}, "--after"),
    ],
)
def test_crowded_gpu_is_let_pass(host: Host, settings: dict[str, str], mode: str) -> None:
    """Where less must be free, where no GPU is asked for, and after a job."""
    host.stand_in("nvidia-smi", CROWDED, USERS)

    ended = host.run("clean-host", mode, **settings)

    assert ended.code == 0, ended.out


def test_chosen_gpus_alone_are_looked_at(host: Host) -> None:
    """DRAFTGATE_GPUS goes to nvidia-smi as it is."""
    host.run("clean-host", "--before", DRAFTGATE_GPUS="0")

    assert "--id=0" in host.calls("nvidia-smi")[0]["argv"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"out": "0, [N/A], 81000\n"}, "memory is not told"),
        ({"out": ""}, "lists no GPU"),
        ({"code": 9, "err": "driver is not loaded"}, "driver is not loaded"),
    ],
)
def test_gpu_that_cannot_be_read_is_no_free_gpu(
    host: Host, answer: dict[str, Any], message: str
) -> None:
    """What is not known stops the job and says why."""
    host.stand_in("nvidia-smi", ("--query-gpu", answer), USERS)

    ended = host.run("clean-host", "--before")

    assert ended.code != 0
    assert message in ended.out + ended.err


def test_missing_nvidia_smi_names_the_way_out(host: Host) -> None:
    """A host without GPUs has to say so."""
    (host.bin / "nvidia-smi").unlink()

    ended = host.run("clean-host", "--before")

    assert ended.code == 1
    assert "DRAFTGATE_GPU=none" in ended.err


def test_refusal_is_shown_on_the_page_of_the_run(host: Host) -> None:
    """As GitHub's command, with its escapes."""
    host.stand_in("nvidia-smi", CROWDED, USERS)

    ended = host.run("clean-host", "--before", GITHUB_ACTIONS="true")

    assert ended.out.startswith("::error::")
    assert "(25 %25)" in ended.out


def test_full_disk_is_refused(host: Host) -> None:
    """With the place and what is free there."""
    ended = host.run("clean-host", "--before", DRAFTGATE_MIN_DISK_GB="999999999")

    assert ended.code == 75
    assert f"are free at {host.folder / 'repo'}" in ended.out


# --- pr-plan


def settings(host: Host, **changes: Any) -> None:
    """Write gate.json with two images, changed as told."""
    given = json.loads((ROOT / "gpu-ci" / "gate.json").read_text())
    given |= {"base_image": BASE, "candidate_image": "reg.local:5000/we/engine:pr-{sha}"}
    (host.folder / "repo" / "gpu-ci" / "gate.json").write_text(json.dumps(given | changes))


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


# --- pr-gate

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
        os.killpg(first.pid, signal.SIGKILL)

    assert second.code == 0, second.out


# --- pr-verdict


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


# --- comment

MARKER = "<!-- draftgate:compare:p -->"
COMMENTS = "issues/7/comments"


def conversation(host: Host, *comments: dict[str, Any]) -> None:
    """Let GitHub know these comments, in two pages, and take new ones."""
    pages = json.dumps(comments[:1]) + json.dumps(comments[1:])
    host.stand_in(
        "gh",
        ("--method", {}),
        (f"--paginate repos/we/engine/{COMMENTS}", {"out": pages}),
    )


def a_comment(number: int, login: str, body: str) -> dict[str, Any]:
    """Return a comment as GitHub tells it."""
    return {"id": number, "user": {"login": login}, "body": body}


def written(host: Host) -> tuple[str, str, str]:
    """Return method, path and text of the one comment that was written."""
    calls = [call for call in host.calls("gh") if "--method" in call["argv"]]
    assert len(calls) == 1
    argv = calls[0]["argv"]
    return argv[2], argv[3], json.loads(calls[0]["stdin"])["body"]


def say(host: Host, text: str) -> str:
    """Comment with a text and return what was written."""
    path = host.folder / "comment.md"
    path.write_text(text)
    ended = host.run("comment", "7", "p", str(path))
    assert ended.code == 0, ended.err
    return written(host)[2]


def test_first_comment_is_made(host: Host) -> None:
    """Others that carry the mark are a stranger's or of another profile."""
    conversation(
        host,
        a_comment(1, "stranger", f"{MARKER}\nhello"),
        a_comment(2, "github-actions[bot]", "<!-- draftgate:compare:other -->\n"),
        a_comment(3, "github-actions[bot]", f"quoted {MARKER}"),
    )

    body = say(host, "**PASS**\n")

    assert body == f"{MARKER}\n**PASS**\n"
    assert written(host)[:2] == ("POST", f"repos/we/engine/{COMMENTS}")


def test_own_comment_is_brought_up_to_date(host: Host) -> None:
    """Found on a later page; nothing new is posted."""
    conversation(
        host,
        a_comment(1, "someone", "hi"),
        a_comment(2, "github-actions[bot]", f"{MARKER}\nold"),
    )

    say(host, "new\n")

    assert written(host)[:2] == ("PATCH", "repos/we/engine/issues/comments/2")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ask @maintainer now", "ask @\u200bmaintainer now"),
        ("@org/team", "@\u200borg/team"),
        ("engine@sha256:1234", "engine@sha256:1234"),
        ("<!-- draftgate:compare:q -->\nhi", "hi"),
        ("<!-- a\nb -->hi", "hi"),
        ("<!-- open", "&lt;!-- open"),
        ("![x](https://e.example/y)", "!\\[x](https://e.example/y)"),
        ('<IMG src="https://e.example">', '&lt;IMG src="https://e.example">'),
        ("a\x00\x1bb\tc", "ab\tc"),
        ("<details>ok</details>", "<details>ok</details>"),
    ],
)
def test_strange_text_loses_its_effect(host: Host, text: str, shown: str) -> None:
    """No one is called, nothing is loaded, no mark is forged; commands can still be copied."""
    conversation(host)

    assert say(host, text) == f"{MARKER}\n{shown}"


def test_long_text_is_cut(host: Host) -> None:
    """GitHub refuses more than 65,536 characters."""
    conversation(host)

    body = say(host, "é" * 70_000)

    assert len(body) < 61_000
    assert body.endswith("artifact)")


@pytest.mark.parametrize("args", [("7x", "p"), ("0", "p"), ("7", "P q"), ("7", "a-->")])
def test_malformed_number_or_key_is_refused(host: Host, args: tuple[str, str]) -> None:
    """Before GitHub is asked."""
    conversation(host)
    path = host.folder / "comment.md"
    path.write_text("hi")

    ended = host.run("comment", *args, str(path))

    assert ended.code == 1
    assert host.calls("gh") == []


# --- pr-comment


def artifact(host: Host, number: str = "7", text: str = "found\n") -> Path:
    """Write what a run of the gate left for its comment."""
    path = host.folder / "left.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("number", number)
        archive.writestr("comment.md", text)
    return path


def listing(*names: str, size: int = 500) -> str:
    """Return GitHub's list of a run's artifacts, numbered from 1."""
    made = [
        {
            "id": number,
            "name": name,
            "size_in_bytes": size,
            "expired": False,
            "created_at": f"2026-01-01T00:00:0{number}Z",
        }
        for number, name in enumerate(names, start=1)
    ]
    return json.dumps({"artifacts": made})


def fetch(host: Host, archive: Path, *, artifacts: str, state: str = "open") -> Any:
    """Run the script on a run of commit SHA."""
    pull = json.dumps({"state": state, "head": {"sha": SHA}})
    host.stand_in(
        "gh",
        ("--method", {}),
        ("actions/runs/99/artifacts", {"out": artifacts}),
        ("actions/artifacts/", {"file": str(archive)}),
        ("repos/we/engine/pulls/7", {"out": pull}),
        (COMMENTS, {"out": "[]"}),
    )
    settings(host, profile="p")
    return host.run("pr-comment", "99", SHA)


def posted(host: Host) -> bool:
    """Return whether anything was written."""
    return any("--method" in call["argv"] for call in host.calls("gh"))


def test_last_stage_is_put_on_the_pull_request(host: Host) -> None:
    """Stage two's word counts where there is one, however the list is ordered."""
    names = ("draftgate-comment-confirm", "draftgate-comment-search", "draftgate-search")

    ended = fetch(host, artifact(host), artifacts=listing(*names))

    assert ended.code == 0, ended.err
    assert written(host) == ("POST", f"repos/we/engine/{COMMENTS}", f"{MARKER}\nfound\n")
    assert any(call["argv"][-1].endswith("/artifacts/1/zip") for call in host.calls("gh"))


def test_run_that_says_nothing_gets_no_comment(host: Host) -> None:
    """A gate that nobody asked for leaves no artifact, and that is no error."""
    ended = fetch(host, artifact(host), artifacts=listing("draftgate-search"))

    assert ended.code == 0
    assert not posted(host)


def test_run_of_another_commit_gets_no_comment(host: Host) -> None:
    """The artifact claims a pull request; GitHub's word for its head decides."""
    path = artifact(host)
    pull = json.dumps({"state": "open", "head": {"sha": "b" * 40}})
    host.stand_in(
        "gh",
        ("--method", {}),
        ("actions/runs/99/artifacts", {"out": listing("draftgate-comment-search")}),
        ("actions/artifacts/", {"file": str(path)}),
        ("repos/we/engine/pulls/7", {"out": pull}),
    )

    settings(host)
    ended = host.run("pr-comment", "99", SHA)

    assert ended.code == 0
    assert "no comment" in ended.out
    assert not posted(host)


def test_closed_pull_request_gets_no_comment(host: Host) -> None:
    """It was closed while it was measured."""
    ended = fetch(
        host, artifact(host), artifacts=listing("draftgate-comment-search"), state="closed"
    )

    assert ended.code == 0
    assert not posted(host)


@pytest.mark.parametrize("number", ["8; id", "", "7\n8", "../1", "-1"])
def test_artifact_with_a_strange_number_is_refused(host: Host, number: str) -> None:
    """It never becomes part of a path that GitHub is asked."""
    ended = fetch(
        host, artifact(host, number=number), artifacts=listing("draftgate-comment-search")
    )

    assert ended.code == 1
    assert not any("/pulls/" in " ".join(call["argv"]) for call in host.calls("gh"))


def test_large_artifact_is_not_downloaded(host: Host) -> None:
    """Its size is asked first."""
    artifacts = listing("draftgate-comment-search", size=2_000_000)

    ended = fetch(host, artifact(host), artifacts=artifacts)

    assert ended.code == 1
    assert "2000000 bytes" in ended.err
    assert not any("/zip" in " ".join(call["argv"]) for call in host.calls("gh"))


def test_archive_that_swells_is_refused(host: Host) -> None:
    """A file that unpacks to more than the limit is read no further."""
    bomb = artifact(host, text="a" * 5_000_000)
    assert bomb.stat().st_size < 10_000

    ended = fetch(host, bomb, artifacts=listing("draftgate-comment-search"))

    assert ended.code == 1
    assert "larger than 1048576 bytes" in ended.err
    assert not posted(host)


# --- nightly

_PYTHON = f"""#!/bin/bash
[[ "$2" == pytest ]] || exec {sys.executable} "$@"
printf '%s\\n' "$*" >"$CI_HOST/pytest.argv"
while [[ $# -gt 0 ]]; do [[ "$1" == --runs ]] && runs="$2"; shift; done
[[ -z "$TAKEN" ]] || mkdir -p "$runs/20260101-000000-night"
exit "$CODE"
"""


@pytest.fixture
def night(host: Host) -> Host:
    """A host on which pytest leaves a run if TAKEN and ends with CODE."""
    for name in ("install", "clean-host"):
        host.replace_script(name)
    venv = host.folder / "venv" / "bin"
    host.program("python", _PYTHON, folder=venv)
    host.stand_in("draftgate", ("report", {}), ("history append", {}))
    (host.bin / "draftgate").rename(venv / "draftgate")
    host.env |= {"OUT": str(host.folder / "out"), "TAKEN": "yes"}
    return host


@pytest.mark.parametrize("code", [0, 1])
def test_night_is_kept_however_it_ends(night: Host, code: int) -> None:
    """Report and history are made of a failed night too, and the tests' code is the script's."""
    ended = night.run("nightly", "p", CODE=str(code))

    run = night.folder / "out" / "runs" / "20260101-000000-night"
    assert ended.code == code, ended.err
    assert [call["argv"] for call in night.calls("draftgate")] == [
        ["report", str(run)],
        ["history", "append", str(run), "--history", str(night.folder / "out" / "history")],
    ]
    argv = (night.folder / "pytest.argv").read_text()
    assert "-m perf or drift or correctness" in argv
    assert "--profile p" in argv
    assert (night.folder / "clean-host.calls").read_text() == "--before\n"


def test_night_that_adds_nothing_to_the_history_is_told(night: Host) -> None:
    """It warns, and the verdict of the tests stands."""
    night.stand_in("draftgate", ("report", {}), ("history append", {"code": 3}))

    ended = night.run("nightly", "p", CODE="0")

    assert ended.code == 0
    assert "warning: the night of p adds nothing" in ended.out


def test_night_without_a_run_is_an_error(night: Host) -> None:
    """Even where pytest says that all went well."""
    ended = night.run("nightly", "p", CODE="0", TAKEN="")

    assert ended.code == 1
    assert "left no run" in ended.err


def test_profiles_are_listed(host: Host) -> None:
    """Those that are committed, or those that the settings name."""
    settings(host)
    shutil.copytree(ROOT / "fixtures" / "profiles", host.folder / "repo" / "fixtures" / "profiles")
    committed = sorted(path.stem for path in (ROOT / "fixtures" / "profiles").glob("*.toml"))

    host.run("nightly", "--list")
    found = host.outputs()
    settings(host, nightly_profiles=["a", "b.c"], runner=["self-hosted", "b200"])
    host.run("nightly", "--list")

    assert json.loads(found["profiles"]) == committed
    assert json.loads(host.outputs()["profiles"]) == ["a", "b.c"]
    assert json.loads(host.outputs()["runner"]) == ["self-hosted", "b200"]


@pytest.mark.parametrize("names", ["a", ["a b"], ["../a"], {"a": 1}, [1]])
def test_strange_profiles_are_refused(host: Host, names: object) -> None:
    """They become names of jobs, artifacts and folders."""
    settings(host, nightly_profiles=names)

    ended = host.run("nightly", "--list")

    assert ended.code == 1
    assert "gate.json: 'nightly_profiles' is" in ended.err


# --- history


def git(folder: Path, *args: str) -> str:
    """Return what git said."""
    return subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture
def clone(host: Host) -> Host:
    """A host whose checkout is a clone with an origin of its own."""
    origin, repo = host.folder / "origin", host.folder / "repo"
    git(host.folder, "init", "--quiet", "--bare", "--initial-branch=main", str(origin))
    git(repo, "init", "--quiet", "--initial-branch=main")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "scripts")
    git(repo, "remote", "add", "origin", str(origin))
    git(repo, "push", "--quiet", "origin", "main")
    del host.env["GH_TOKEN"]
    host.env |= {"HISTORY_PAUSE_S": "0"}
    return host


NIGHT = "nightly-p/history/1x-h100/vllm/p/20260101-000000-ab.parquet"


def nights(host: Host, name: str = NIGHT, numbers: bytes = b"one") -> str:
    """Write a night as an artifact holds it and return the folder of all."""
    path = host.folder / "nights" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(numbers)
    return str(host.folder / "nights")


def kept(host: Host) -> list[str]:
    """Return the files on the history's branch."""
    listed = git(host.folder / "origin", "ls-tree", "-r", "--name-only", "draftgate-history")
    return listed.split()


def test_history_begins_and_grows(clone: Host) -> None:
    """The branch holds nights alone; a night that is there is not added twice."""
    first = clone.run("history", "push", nights(clone))
    again = clone.run("history", "push", nights(clone))
    later = NIGHT.replace("20260101", "20260102")
    second = clone.run("history", "push", nights(clone, later))

    assert [first.code, again.code, second.code] == [0, 0, 0], first.err + second.err
    inside = [name.removeprefix("nightly-p/history/") for name in (NIGHT, later)]
    assert kept(clone) == inside
    count = git(clone.folder / "origin", "rev-list", "--count", "draftgate-history")
    assert int(count) == 2


def test_history_is_laid_out(clone: Host) -> None:
    """As it was pushed, for the page."""
    clone.run("history", "push", nights(clone))

    ended = clone.run("history", "pull", str(clone.folder / "laid"))

    assert ended.code == 0, ended.err
    path = clone.folder / "laid" / NIGHT.removeprefix("nightly-p/history/")
    assert path.read_bytes() == b"one"


def test_night_is_never_changed(clone: Host) -> None:
    """Other numbers under the name of a night that is kept are an error."""
    clone.run("history", "push", nights(clone))

    ended = clone.run("history", "push", nights(clone, numbers=b"two"))

    assert ended.code == 1
    assert "with other numbers" in ended.err
    path = f"draftgate-history:{NIGHT.removeprefix('nightly-p/history/')}"
    assert git(clone.folder / "origin", "show", path) == "one"


@pytest.mark.parametrize("name", ["a/history/x.parquet", "a/history/b/c/d e/f.parquet"])
def test_strange_place_of_a_night_is_refused(clone: Host, name: str) -> None:
    """What is no night of ours does not come onto the branch."""
    ended = clone.run("history", "push", nights(clone, name))

    assert ended.code == 1
    assert "no place of a night" in ended.err


def test_push_that_came_second_is_tried_again(clone: Host) -> None:
    """Refused once by origin, the night is there in the end."""
    hook = "#!/bin/sh\n[ -e refused ] && exit 0\ntouch refused\nexit 1\n"
    clone.program("pre-receive", hook, folder=clone.folder / "origin" / "hooks")

    ended = clone.run("history", "push", nights(clone))

    assert ended.code == 0, ended.err
    assert "try 1" in ended.out
    assert len(kept(clone)) == 1


def test_origin_that_does_not_answer_is_no_empty_history(clone: Host) -> None:
    """Nothing is begun anew where the branch cannot be read."""
    (clone.folder / "origin").rename(clone.folder / "elsewhere")

    ended = clone.run("history", "push", nights(clone))

    assert ended.code == 1
    assert "nothing was changed" in ended.err


# --- site


def test_site_has_history_and_newest_reports(host: Host) -> None:
    """One page links what the nights left; a profile without a report is left out."""
    host.program(
        "draftgate",
        '#!/bin/bash\necho "$*" >>"$CI_HOST/draftgate.argv"\necho history >"${@: -1}"\n',
        folder=host.folder / "venv" / "bin",
    )
    found = host.folder / "nights"
    for path, text in (
        ("nightly-p/runs/20260101-a/report.html", "older"),
        ("nightly-p/runs/20260102-b/report.html", "newer"),
        ("nightly-q/junit.xml", ""),
    ):
        (found / path).parent.mkdir(parents=True)
        (found / path).write_text(text)
    out = host.folder / "site"

    ended = host.run("site", str(found), "laid", str(out))

    assert ended.code == 0, ended.err
    assert (out / "p" / "index.html").read_text() == "newer"
    assert (out / "history.html").read_text() == "history\n"
    page = (out / "index.html").read_text()
    assert '<a href="p/">p</a>' in page
    assert 'href="q/"' not in page
    argv = (host.folder / "draftgate.argv").read_text().split()
    assert argv[:4] == ["history", "show", "--history", "laid"]
