"""What a workflow must keep so that a stranger's pull request gets nothing from it.

One function per rule, from a workflow's text to the faults that it finds.
actionlint knows what GitHub accepts; these know what this project allows.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
BASE_SHA = "${{ github.event.pull_request.base.sha }}"

MAY_WRITE = {
    ("pr-comment", "comment", "pull-requests"),
    ("nightly", "history", "contents"),
    ("nightly", "publish", "pages"),
    ("nightly", "publish", "id-token"),
}
"""(workflow, job, scope) of every right to write."""

_PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} +# v\d+(\.\d+){0,2}")
_CALL = re.compile(r"gpu-ci/scripts/[\w-]+")
_WORDS = re.compile(
    r'(exec )?gpu-ci/scripts/[\w-]+( ("\$[A-Z_]+"|[\w-]+))*'
    r'( && (exec )?gpu-ci/scripts/[\w-]+( ("\$[A-Z_]+"|[\w-]+))*)*'
)


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow: its text and what YAML makes of it."""

    text: str
    data: Mapping[Any, Any]

    @property
    def triggers(self) -> Mapping[str, Any]:
        """What starts it; YAML 1.1 reads the key `on` as true."""
        on = self.data[True]
        return on if isinstance(on, Mapping) else {str(on): None}

    @property
    def jobs(self) -> Mapping[str, Mapping[str, Any]]:
        """Its jobs by id."""
        jobs: Mapping[str, Mapping[str, Any]] = self.data["jobs"]
        return jobs

    def steps(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Give every step with the id of its job."""
        for name, job in self.jobs.items():
            for step in job["steps"]:
                yield name, step

    def checkouts(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Give the settings of every checkout with the id of its job."""
        for name, step in self.steps():
            if step.get("uses", "").startswith("actions/checkout@"):
                yield name, step.get("with", {})


def read(text: str) -> Workflow:
    """Return the workflow that a file's text holds."""
    return Workflow(text, yaml.load(text, Loader=yaml.CSafeLoader))


def on_own_runner(job: Mapping[str, Any]) -> bool:
    """Return whether a job may take place on a machine of ours, so that it needs a guard."""
    return job["runs-on"] != "ubuntu-24.04"


def unpinned_actions(flow: Workflow) -> list[str]:
    """Actions that are not named by a whole commit hash with the version beside it."""
    used = re.findall(r"^\s*(?:- )?uses: *(.+?) *$", flow.text, re.MULTILINE)
    return [name for name in used if not _PINNED.fullmatch(name)]


def privileged_triggers(flow: Workflow) -> list[str]:
    """Triggers that run a stranger's change with the rights of this repository."""
    return [name for name in flow.triggers if name in ("pull_request_target", "issue_comment")]


def default_permissions(flow: Workflow) -> list[str]:
    """Rights that hold for all jobs, or that a job does not state."""
    top = [] if flow.data.get("permissions") == {} else ["the workflow itself"]
    return top + [
        name for name, job in flow.jobs.items() if not isinstance(job.get("permissions"), Mapping)
    ]


def rights_to_write(flow: Workflow) -> list[str]:
    """Rights to write that are not in `MAY_WRITE`."""
    return [
        f"{name}: {scope}"
        for name, job in flow.jobs.items()
        for scope, right in dict(job.get("permissions") or {}).items()
        if right not in ("read", "none") and (flow.data["name"], name, scope) not in MAY_WRITE
    ]


def secrets(flow: Workflow) -> list[str]:
    """Any use of a secret: none is needed, and a job that has none can lose none."""
    return re.findall(r"\bsecrets\s*[.\[][^}]*", flow.text)


def variables(flow: Workflow) -> list[str]:
    """Variables of the repository: GitHub leaves them empty for a fork's pull request."""
    return re.findall(r"\bvars\s*[.\[][^}]*", flow.text)


def expressions_in_scripts(flow: Workflow) -> list[str]:
    """Scripts into which GitHub pastes text before a shell reads it."""
    return [step["run"] for _, step in flow.steps() if "${{" in step.get("run", "")]


def foreign_code(flow: Workflow) -> list[str]:
    """Checkouts of a pull request's code, or ones that leave a token in the work tree."""
    asked = "pull_request" in flow.triggers
    wanted = {BASE_SHA} if asked else {None}
    return [
        name
        for name, given in flow.checkouts()
        if given.get("ref") not in wanted
        or given.get("persist-credentials") is not False
        or "repository" in given
    ]


def endless_jobs(flow: Workflow) -> list[str]:
    """Jobs without a time limit of their own; GitHub's is six hours."""
    return [name for name, job in flow.jobs.items() if "timeout-minutes" not in job]


def cancelled_measurements(flow: Workflow) -> list[str]:
    """Lines in which a job that runs may be shot, or that jobs on our machines do not stand in."""
    faults = [
        name
        for name, job in {"the workflow itself": flow.data, **flow.jobs}.items()
        if dict(job.get("concurrency") or {}).get("cancel-in-progress", False) is not False
    ]
    for name, job in flow.jobs.items():
        line = dict(job.get("concurrency") or {})
        named = str(line.get("group", "")).startswith("draftgate-${{ needs.")
        if on_own_runner(job) and not (named and line.get("queue") == "max"):
            faults.append(name)
    return faults


def unguarded_runners(flow: Workflow) -> list[str]:
    """Jobs on our machines that no environment guards, or that are not tidied up after."""
    return [
        name
        for name, job in flow.jobs.items()
        if on_own_runner(job)
        and not (
            job.get("environment")
            and any(
                "clean-host --after" in step.get("run", "") and step.get("if") == "always()"
                for step in job["steps"]
            )
        )
    ]


def thick_scripts(flow: Workflow) -> list[str]:
    """Scripts that are more than calls of gpu-ci/scripts, or that call what is not there."""
    runs = [step["run"].strip() for _, step in flow.steps() if "run" in step]
    return [
        run
        for run in runs
        if not _WORDS.fullmatch(run)
        or not all((ROOT / called).is_file() for called in _CALL.findall(run))
    ]


RULES: tuple[Callable[[Workflow], list[str]], ...] = (
    unpinned_actions,
    privileged_triggers,
    default_permissions,
    rights_to_write,
    secrets,
    variables,
    expressions_in_scripts,
    foreign_code,
    endless_jobs,
    cancelled_measurements,
    unguarded_runners,
    thick_scripts,
)
