"""What README.md states about commands, options and files is what the code does."""

import inspect
import re
from pathlib import Path

import pytest

from draftgate import plugin
from draftgate.baselines import load_baseline
from draftgate.cli import Exit, _parser
from draftgate.datasets import load_prompts
from draftgate.datasets.builtin import KINDS, stored
from draftgate.engines import ENGINES
from draftgate.metrics import METRICS
from draftgate.specfile import load_profile, parse_profile
from draftgate.specfile.keys import DOCKER_KEYS
from draftgate.specs import CompareSpec
from draftgate.targets import CACHE_VARIABLE
from draftgate.verdict import Outcome

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def table(head: str) -> list[list[str]]:
    """Return the cells of the one table whose head line is `head`, without the head."""
    found = re.findall(rf"^{re.escape(head)}\n\|[ |-]+\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert len(found) == 1, f"expected one table with head {head!r}, got {len(found)}"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found[0].splitlines()]


def test_exit_code_table_is_that_of_the_command() -> None:
    """The table lists every exit code with the meaning that the code gives it."""
    assert table("| exit code | meaning |") == [[str(int(e)), e.meaning] for e in Exit]


def test_outcome_table_lists_every_outcome() -> None:
    """The table lists the outcomes, and says "passes" for the green ones alone."""
    rows = table("| outcome | meaning | test |")

    assert [row[0] for row in rows] == [outcome.name for outcome in Outcome]
    assert [row[2] == "passes" for row in rows] == [outcome.green for outcome in Outcome]


@pytest.mark.parametrize("row", table("| command | does |"), ids=lambda row: row[0])
def test_command_is_understood(row: list[str]) -> None:
    """Each command in the table parses as it stands, and without its optional parts."""
    usage = row[0].strip("`").removeprefix("draftgate ").replace('"..."', "because")
    full = re.sub(r"[][]", "", usage)
    brief = re.sub(r"\[.*?\]", "", usage)

    for arguments in (full, brief):
        assert callable(_parser().parse_args(arguments.split()).run)


def test_fixture_table_lists_what_the_plugin_offers() -> None:
    """Every fixture of the plugin is in the table, and nothing else is."""
    assert {row[0].strip("`") for row in table("| fixture | gives |")} == set(plugin.__all__)


def test_docker_table_lists_every_key() -> None:
    """Every key of [engine.docker] is in the table, in the reader's order."""
    rows = table("| key of `[engine.docker]` | meaning | default |")

    assert [row[0].strip("`") for row in rows] == list(DOCKER_KEYS)


def test_every_plugin_option_is_described() -> None:
    """The README names each option that the plugin adds to pytest."""
    options = re.findall(r'addoption\(\s*"(--[a-z-]+)"', inspect.getsource(plugin))

    assert "--profile" in options
    assert [option for option in options if not re.search(rf"{option}\b", README)] == []


def test_report_sections_are_explained_in_order() -> None:
    """The README walks through the sections of the page in the order they have there."""
    page = ROOT / "draftgate" / "report" / "templates" / "report.html.j2"
    sections = re.findall(r"<h2>(.*?)</h2>", page.read_text(encoding="utf-8"))
    guide = README.split("## Reading the report")[1].split("\n## ")[0]

    assert sections == re.findall(r"^- \*\*(.*?)\*\*", guide, re.MULTILINE)


@pytest.mark.parametrize("number", range(2))
def test_profile_example_is_a_profile(number: int) -> None:
    """Each profile in the README is accepted as it stands, and its gates name real metrics."""
    examples = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(examples) == 3, "two profiles, and the table [compare]"

    profile = parse_profile(examples[number], ROOT / "example.toml")
    load_prompts(profile.workload.dataset, profile.workload.seed)
    for arm in profile.arms:
        ENGINES.get(arm.engine.engine)
    assert profile.gates
    assert {gate.metric for gate in profile.gates} <= set(METRICS.names())


def test_compare_example_is_part_of_a_profile() -> None:
    """The table [compare] in the README is accepted at the end of the profile before it."""
    examples = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)

    profile = parse_profile(examples[0] + examples[2], ROOT / "example.toml")

    assert profile.compare.looks == CompareSpec().looks
    assert profile.compare.confirm_pairs == CompareSpec().confirm_pairs
    assert profile.compare.family_level == CompareSpec().family_level
    (gate,) = profile.compare.gates
    assert gate in CompareSpec().gates


@pytest.mark.parametrize("override", sorted(set(re.findall(r"--set '?([a-z0-9_.*]+=\w+)", README))))
def test_override_example_is_accepted(override: str, tmp_path: Path) -> None:
    """Each --set in the README can be applied to the first profile there."""
    path = tmp_path / "example.toml"
    path.write_text(README.split("```toml\n")[1].split("```")[0], encoding="utf-8")

    assert f"# override: {override}" in load_profile(str(path), (override,)).text


def test_number_of_prompts_is_that_of_the_package() -> None:
    """The README states how many prompts each kind has."""
    stated = re.search(r"\((\d+) prompts each", README)

    assert stated is not None
    assert {len(stored(kind)) for kind in KINDS} == {int(stated[1])}


def test_cache_variable_is_named() -> None:
    """The README names the variable that moves the cache."""
    assert f"`{CACHE_VARIABLE}`" in README


def test_results_are_those_of_the_committed_baseline() -> None:
    """Every number of the results table is the mean over the runs of the baseline it names."""
    table = README.split("## Results")[1].split("\n## ")[0]
    path = re.search(r"`(baselines/\S+\.json)`", table)
    assert path is not None
    baseline = load_baseline(ROOT / path.group(1))
    cells = {(cell.arm, cell.concurrency): cell.per_run() for cell in baseline.cells}

    def mean(arm: str, streams: int, metric: str) -> float:
        values = [run[metric] for run in cells[arm, streams]]
        return sum(values) / len(values)

    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.*) \|$", table, re.MULTILINE)
    assert {(arm, int(streams)) for streams, arm, _ in rows} == set(cells)
    for number, arm, numbers in rows:
        streams = int(number)
        speed = mean(arm, streams, "output_tokens_per_s")
        drafts = arm != "none"
        acceptance = f"{mean(arm, streams, 'mean_acceptance_length'):.2f}" if drafts else "-"
        assert numbers.split(" | ") == [
            f"{speed:.1f}",
            f"{speed / mean('none', streams, 'output_tokens_per_s'):.2f}",
            f"{mean(arm, streams, 'tokens_per_step'):.2f}",
            f"{1e3 * mean(arm, streams, 'step_time_s'):.0f}",
            acceptance,
        ]
