"""The workflows keep the rules of this project, and each rule finds a fault that is planted."""

from collections.abc import Callable

import pytest

from tests.support import workflows
from tests.support.workflows import RULES, WORKFLOWS, Workflow, read

FILES = sorted(path.name for path in WORKFLOWS.iterdir())

Rule = Callable[[Workflow], list[str]]

FAULTS: tuple[tuple[Rule, str, str, str], ...] = (
    (
        workflows.unpinned_actions,
        "pr-gate.yml",
        "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
        "actions/checkout@v7",
    ),
    (
        workflows.unpinned_actions,
        "nightly.yml",
        "actions/deploy-pages@cd2ce8fcbc39b97be8ca5fce6e763baed58fa128 # v5.0.0",
        "actions/deploy-pages@cd2ce8fcbc39b97be8ca5fce6e763baed58fa128",
    ),
    (workflows.privileged_triggers, "pr-gate.yml", "  pull_request:", "  pull_request_target:"),
    (workflows.default_permissions, "nightly.yml", "permissions: {}", "permissions: read-all"),
    (workflows.default_permissions, "pr-gate.yml", "permissions: {}\n", ""),
    (
        workflows.default_permissions,
        "pr-comment.yml",
        "    permissions:\n      contents: read\n",
        "    env:\n      contents: read\n",
    ),
    (workflows.rights_to_write, "pr-gate.yml", "packages: read #", "packages: write #"),
    (workflows.rights_to_write, "pr-gate.yml", "pull-requests: read #", "pull-requests: write #"),
    (workflows.secrets, "pr-gate.yml", "${{ github.token }}", "${{ secrets.GITHUB_TOKEN }}"),
    (workflows.secrets, "nightly.yml", "${{ github.token }}", "${{ secrets['TOKEN'] }}"),
    (workflows.variables, "pr-gate.yml", "fromJSON(needs.plan.outputs.runner)", "vars.RUNNER"),
    (
        workflows.expressions_in_scripts,
        "pr-comment.yml",
        'pr-comment "$RUN_ID"',
        'pr-comment "${{ github.event.workflow_run.head_branch }}"',
    ),
    (
        workflows.foreign_code,
        "pr-gate.yml",
        "ref: ${{ github.event.pull_request.base.sha }}",
        "ref: ${{ github.event.pull_request.head.sha }}",
    ),
    (
        workflows.foreign_code,
        "pr-gate.yml",
        "          ref: ${{ github.event.pull_request.base.sha }}\n",
        "",
    ),
    (
        workflows.foreign_code,
        "pr-comment.yml",
        "          persist-credentials: false",
        "          persist-credentials: false\n          ref: ${{ github.sha }}",
    ),
    (
        workflows.foreign_code,
        "nightly.yml",
        "persist-credentials: false",
        "persist-credentials: true",
    ),
    (workflows.endless_jobs, "pr-gate.yml", "    timeout-minutes: 240\n", ""),
    (
        workflows.cancelled_measurements,
        "pr-gate.yml",
        "      queue: max\n      cancel-in-progress: false",
        "      cancel-in-progress: true",
    ),
    (workflows.cancelled_measurements, "nightly.yml", "      queue: max\n", ""),
    (workflows.cancelled_measurements, "nightly.yml", "group: draftgate-", "group: night-"),
    (workflows.unguarded_runners, "nightly.yml", "    environment: gpu\n", ""),
    (
        workflows.unguarded_runners,
        "pr-gate.yml",
        "      - if: always()\n        run: exec gpu-ci/scripts/clean-host --after\n",
        "      - run: exec gpu-ci/scripts/clean-host --after\n",
    ),
    (
        workflows.thick_scripts,
        "pr-gate.yml",
        "run: exec gpu-ci/scripts/pr-verdict",
        "run: test success = success",
    ),
    (workflows.thick_scripts, "nightly.yml", "scripts/history push", "scripts/historian push"),
)


def text_of(name: str) -> str:
    """Return a workflow's text."""
    return (WORKFLOWS / name).read_text(encoding="utf-8")


def test_all_workflows_are_looked_at() -> None:
    """The gate, its comment and the night are there, and no file that is not a workflow."""
    assert FILES == ["nightly.yml", "pr-comment.yml", "pr-gate.yml"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", FILES)
def test_workflow_keeps_the_rule(name: str, rule: Rule) -> None:
    """A committed workflow has no fault of any kind."""
    flow = read(text_of(name))

    assert rule(flow) == []


@pytest.mark.parametrize(("rule", "name", "good", "bad"), FAULTS)
def test_planted_fault_is_found(rule: Rule, name: str, good: str, bad: str) -> None:
    """A copy with one thing made wrong is found by the rule about it."""
    text = text_of(name)
    assert good in text

    flow = read(text.replace(good, bad, 1))

    assert rule(flow) != []


def test_every_rule_has_a_planted_fault() -> None:
    """No rule is trusted that was never seen to find anything."""
    assert {rule for rule, *_ in FAULTS} == set(RULES)


def test_gate_and_night_stand_in_one_line() -> None:
    """Stage one and the night wait for each other: their lines have one name."""
    gate = read(text_of("pr-gate.yml")).jobs["search"]["concurrency"]
    night = read(text_of("nightly.yml")).jobs["measure"]["concurrency"]

    assert gate == {**night, "group": "draftgate-${{ needs.plan.outputs.runner }}"}
    assert night == {**gate, "group": "draftgate-${{ needs.profiles.outputs.runner }}"}


def test_comment_listens_to_the_gate_by_its_name() -> None:
    """A renamed gate would leave its comment workflow without a signal."""
    heard = read(text_of("pr-comment.yml")).triggers["workflow_run"]["workflows"]

    assert heard == [read(text_of("pr-gate.yml")).data["name"]]


def test_verdict_waits_for_all_stages() -> None:
    """The status that a branch rule asks for runs whatever became of the stages."""
    verdict = read(text_of("pr-gate.yml")).jobs["verdict"]

    assert verdict["needs"] == ["plan", "search", "confirm"]
    assert verdict["if"].startswith("always() && ")
