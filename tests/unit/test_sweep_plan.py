"""Lists of engine configurations: what they ask for, and every mistake in them."""

import json
from pathlib import Path

import pytest

from draftgate.errors import SpecError
from draftgate.specfile import load_profile
from draftgate.specs import SpeculativeConfig
from draftgate.sweep import Cell, SweepPlan, load_plan
from tests.support.flow import NGRAM, NONE, ROOT, write_profile

LISTS = sorted((ROOT / "fixtures" / "sweeps").glob("*.toml"))


def plan_of(tmp_path: Path, text: str) -> SweepPlan:
    """Return the plan of a list about the fake servers `none` and `ngram`, at 1 and 4 streams."""
    profile = write_profile(tmp_path / "p.toml", {"none": NONE, "ngram": NGRAM}, repeats=2)
    profile.write_text(profile.read_text().replace("[1]", "[1, 4]"))
    path = tmp_path / "list.toml"
    path.write_text(f'schema = 1\nname = "l"\nprofile = "{profile}"\n{text}')
    return load_plan(path)


def configs(plan: SweepPlan) -> dict[str, SpeculativeConfig | None]:
    """Return the drafts of every configuration by name."""
    return {a.name: a.engine.speculative for g in plan.groups for a in g.profile.arms}


def test_every_k_meets_every_acceptance(tmp_path: Path) -> None:
    """Lists of K and acceptance multiply, names tell both, position i is accepted with a^i."""
    plan = plan_of(tmp_path, '[[run]]\narm = "ngram"\nk = [2, 3]\nacceptance = [0.5, 0]')
    found = configs(plan)

    assert list(found) == ["ngram-k2-a0.5", "ngram-k2-a0", "ngram-k3-a0.5", "ngram-k3-a0"]
    assert found["ngram-k3-a0.5"] == SpeculativeConfig(
        "ngram",
        3,
        None,
        (
            ("rejection_sample_method", "synthetic"),
            ("synthetic_acceptance_rates", (0.5, 0.25, 0.125)),
        ),
    )


def test_cells_are_the_profile_s_or_the_run_s(tmp_path: Path) -> None:
    """Without keys of its own a run takes all streams and repeats, repeats outermost."""
    plan = plan_of(
        tmp_path,
        '[[run]]\narm = "none"\n'
        '[[run]]\narm = "ngram"\nconcurrencies = [4]\nrepeats = 3\nset = ["engine.dtype=bfloat16"]',
    )
    (group,) = plan.groups

    assert dict(group.cells) == {
        "none": (Cell(1, 0), Cell(4, 0), Cell(1, 1), Cell(4, 1)),
        "ngram": (Cell(4, 0), Cell(4, 1), Cell(4, 2)),
    }
    assert (group.profile.workload.concurrencies, group.profile.workload.repeats) == ((1, 4), 3)
    assert [arm.engine.dtype for arm in group.profile.arms] == ["auto", "bfloat16"]


def test_equal_configurations_share_a_server(tmp_path: Path) -> None:
    """One that is named twice has one arm with the cells of both, none of them twice."""
    plan = plan_of(
        tmp_path,
        '[[run]]\narm = "none"\nconcurrencies = [1]\nrepeats = 1\n'
        '[[run]]\narm = "none"\nrepeats = 1',
    )
    (group,) = plan.groups

    assert group.cells == (("none", (Cell(1, 0), Cell(4, 0))),)


def test_another_load_is_another_group(tmp_path: Path) -> None:
    """Runs whose load differs never stand in one table, whose name tells them apart."""
    plan = plan_of(
        tmp_path,
        '[[run]]\narm = "none"\n[[run]]\narm = "none"\nset = ["workload.sampling.max_tokens=7"]',
    )

    assert [group.name for group in plan.groups] == ["fake-flow", "fake-flow-2"]
    assert [g.profile.workload.sampling.max_tokens for g in plan.groups] == [11, 7]


def test_a_list_may_be_json(tmp_path: Path) -> None:
    """The same tables in JSON give the same plan."""
    plan = plan_of(tmp_path, '[[run]]\narm = "ngram"\nk = 2\nrates = [0.8, 0.5]')
    document = {
        "schema": 1,
        "name": "l",
        "profile": str(tmp_path / "p.toml"),
        "run": [{"arm": "ngram", "k": 2, "rates": [0.8, 0.5]}],
    }
    path = tmp_path / "list.json"
    path.write_text(json.dumps(document))

    assert configs(load_plan(path)) == configs(plan)


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_shipped_lists_can_be_read(path: Path) -> None:
    """Each starts with the reference and forces acceptance of every head; names are its file's."""
    plan = load_plan(path)
    arms = [arm for group in plan.groups for arm in group.profile.arms]

    assert plan.name == path.stem
    assert arms[0].name == "none"
    assert all(
        "synthetic" in str(arm.engine.speculative)
        for arm in arms
        if arm.engine.speculative is not None and arm.engine.speculative.method != "ngram"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"run: got nothing, expected one \[\[run\]\] or more"),
        ("[[run]]\nk = 2", r"run\[0\]\.arm: got nothing"),
        ('[[run]]\narm = "gone"', r"has no arm 'gone'. It has: none, ngram"),
        ('[[run]]\narm = "ngram"\nkk = 2', r"run\[0\]\.kk: .*Did you mean 'k'"),
        ('[[run]]\narm = "ngram"\nk = 0', r"run\[0\]\.k: got 0, expected a whole number >= 1, or"),
        ('[[run]]\narm = "ngram"\nk = []', r"run\[0\]\.k: got \[\]"),
        ('[[run]]\narm = "ngram"\nacceptance = 1.5', r"acceptance: got 1\.5, expected a number in"),
        (
            '[[run]]\narm = "none"\nk = 2',
            r"run\[0\]\.k: .*none for arm 'none', which has no drafts",
        ),
        (
            '[[run]]\narm = "ngram"\nacceptance = 0.5\nrates = [0.5, 0.2, 0.1]',
            r"rates: .*one of acceptance and rates",
        ),
        ('[[run]]\narm = "ngram"\nrates = [0.5]', r"run\[0\]: .*got 1 acceptance rates"),
        ('[[run]]\narm = "ngram"\nrates = [0.1, 0.5, 0.2]', r"run\[0\]: .*that never rise"),
        (
            '[[run]]\narm = "none"\nconcurrencies = [2]',
            r"concurrencies: got 2, expected some of the profile's \[1, 4\]",
        ),
        (
            '[[run]]\narm = "none"\n[[run]]\narm = "none"\nset = ["engine.dtype=float16"]',
            r"two different configurations called 'none'.*Give one of them name",
        ),
        ('[[run]]\narm = "none"\nset = ["engine.dtyp=x"]', r"engine\.dtyp: .*Did you mean 'dtype'"),
        ('[[run]]\narm = "none"\nset = 3', r"run\[0\]\.set: got 3, expected a list of strings"),
        ("[[run]", r"expected a list in TOML or JSON"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    """Each mistake is one error that names the run and the key."""
    with pytest.raises(SpecError, match=message):
        plan_of(tmp_path, text)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    """A list of a schema that this version does not read says so."""
    path = tmp_path / "list.toml"
    path.write_text('schema = 2\nname = "l"\n[[run]]\narm = "none"')

    with pytest.raises(SpecError, match=r"schema: got 2, expected 1, the only one"):
        load_plan(path)


def test_profiles_of_a_plan_are_whole(tmp_path: Path) -> None:
    """A group's profile keeps the load of its file and no gates, since a sweep judges nothing."""
    (group,) = plan_of(tmp_path, '[[run]]\narm = "none"').groups
    own = load_profile(str(tmp_path / "p.toml"))

    assert group.profile.workload == own.workload
    assert group.profile.gates == ()
