"""What shellcheck and actionlint say about the scripts and workflows, and that they would."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ci_host import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


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
