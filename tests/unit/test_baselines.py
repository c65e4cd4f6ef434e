"""The baseline store: readable, exact about what fits, and never half-written."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from draftgate.baselines import (
    Session,
    accept,
    baseline_path,
    find_baseline,
    load_baseline,
    workload_digest,
)
from draftgate.baselines.comparable import FIRST_PROMPTS
from draftgate.clock import ManualClock
from draftgate.datasets import with_prompts_digest
from draftgate.errors import BaselineError
from draftgate.metrics import DEFINITIONS_VERSION, compute_all
from draftgate.records import ResourceUse
from draftgate.specfile import load_profile
from draftgate.specs import SLO, GateSpec, Profile, UrlLaunch
from tests.support.samples import make_environment, make_profile, make_runs

CLOCK = ManualClock()
ROOT = Path(__file__).parents[2]


@cache
def _session(
    profile: Profile | None = None, run_id: str = "run-1", seed: int = 0, **settings: Any
) -> Session:
    profile = profile or make_profile(concurrencies=(1, 2), repeats=2)
    runs = make_runs(profile, seed=seed, requests=4, **settings)
    return Session(run_id, profile, make_environment(), runs)


def _accept(root: Path, session: Session | None = None, **options: Any) -> Path:
    return accept(
        root, session or _session(), reason=options.pop("reason", "first"), clock=CLOCK, **options
    )


def _with_engine(profile: Profile, arm: str, **changes: Any) -> Profile:
    arms = tuple(
        replace(a, engine=replace(a.engine, **changes)) if a.name == arm else a
        for a in profile.arms
    )
    return replace(profile, arms=arms)


def _with_draft(profile: Profile, **changes: Any) -> Profile:
    speculative = profile.arm("draft_model").engine.speculative
    assert speculative is not None
    return _with_engine(profile, "draft_model", speculative=replace(speculative, **changes))


def _with_workload(profile: Profile, **changes: Any) -> Profile:
    return replace(profile, workload=replace(profile.workload, **changes))


def test_accepted_runs_come_back_with_six_digits(tmp_path: Path) -> None:
    """Every metric of every run is there, to six significant digits, in order of repeat."""
    session = _session()

    baseline = load_baseline(_accept(tmp_path, session))

    for run in session.samples:
        held = baseline.cell(run.arm, run.concurrency)
        computed = compute_all(run, session.profile.slo)
        assert len(held) == 2
        assert held[run.repeat] == pytest.approx(computed, rel=5.1e-6)
    assert baseline.cell("eagle3", 1) == ()
    assert baseline.cell("none", 64) == ()
    assert baseline.environment == make_environment()
    assert [entry.reason for entry in baseline.accepted] == ["first"]
    assert baseline.accepted[0].time == "2026-01-01T00:00:00+00:00"


def test_baseline_lies_by_hardware_engine_and_profile(tmp_path: Path) -> None:
    """The engine's version is no part of the path, so a new version meets the old runs."""
    profile = make_profile()
    old, new = make_environment(), make_environment(engine="vllm 0.33.0")

    assert baseline_path(tmp_path, old, profile) == tmp_path / "cpu-example-2c/vllm/example.json"
    assert baseline_path(tmp_path, new, profile) == baseline_path(tmp_path, old, profile)


def test_baseline_file_reads_well_in_a_diff(tmp_path: Path) -> None:
    """One metric a line, keys sorted, no long floats: a changed value is a changed line."""
    first = _accept(tmp_path / "a").read_text().splitlines()
    session = _session()
    slower = replace(
        session.samples[0], resources=ResourceUse(cpu_cores=1.23456789, rss_bytes=1_500_000_000)
    )
    changed = replace(session, samples=(slower, *session.samples[1:]))
    second = _accept(tmp_path / "b", changed).read_text().splitlines()

    different = [new for old, new in zip(first, second, strict=True) if old != new]
    assert different == ['    "server_cpu_cores": [1.23457, 1.8],']
    assert max(map(len, first)) < 200
    document = json.loads("\n".join(first))
    assert list(document) == sorted(document)


def test_baseline_file_does_not_depend_on_the_order_of_runs(tmp_path: Path) -> None:
    """Runs are interleaved when measured; the file is sorted all the same."""
    session = _session()
    turned = replace(session, samples=session.samples[::-1])

    assert _accept(tmp_path / "a").read_text() == _accept(tmp_path / "b", turned).read_text()


def test_find_baseline_returns_none_only_where_none_is(tmp_path: Path) -> None:
    """Absent is None; present but damaged is an error, never None."""
    session = _session()
    assert find_baseline(tmp_path, session.environment, session.profile) is None

    path = _accept(tmp_path, session)
    assert find_baseline(tmp_path, session.environment, session.profile) == load_baseline(path)

    path.write_text("{")
    with pytest.raises(BaselineError, match="cannot be read"):
        find_baseline(tmp_path, session.environment, session.profile)


def test_accept_replaces_and_extends(tmp_path: Path) -> None:
    """Replacing leaves only the new runs; extending holds both sessions' and both reasons."""
    _accept(tmp_path)
    _accept(tmp_path, _session(run_id="run-2", seed=1), reason="again")
    path = _accept(tmp_path, _session(run_id="run-3", seed=2), reason="more", extend=True)

    baseline = load_baseline(path)

    assert [(a.run_id, a.reason) for a in baseline.accepted] == [
        ("run-2", "again"),
        ("run-3", "more"),
    ]
    assert baseline.cells[0].runs == ("run-2#0", "run-2#1", "run-3#0", "run-3#1")
    expected = [
        compute_all(run, baseline.slo)["output_tokens_per_s"]
        for seed in (1, 2)
        for run in _session(seed=seed).samples
        if (run.arm, run.concurrency) == ("none", 2)
    ]
    held = [values["output_tokens_per_s"] for values in baseline.cell("none", 2)]
    assert held == pytest.approx(expected, rel=1e-5)


def test_accept_extends_with_metrics_of_one_session_only(tmp_path: Path) -> None:
    """Where one session lacks a metric its runs lack it, and the others keep theirs."""
    bare = _session()
    bare = replace(
        bare, samples=tuple(replace(run, resources=ResourceUse()) for run in bare.samples)
    )
    _accept(tmp_path, bare)
    path = _accept(tmp_path, _session(run_id="run-2"), extend=True)

    held = load_baseline(path).cell("none", 1)

    assert ["server_cpu_cores" in values for values in held] == [False, False, True, True]
    assert all("step_time_s" in values for values in held)


def test_accept_extends_by_a_new_arm_and_load(tmp_path: Path) -> None:
    """A profile that gains an arm or a concurrency keeps its baseline for the rest."""
    profile = make_profile(concurrencies=(1,), repeats=2)
    fewer = replace(profile, arms=profile.arms[:2])
    _accept(tmp_path, _session(fewer))
    wider = _with_workload(profile, concurrencies=(1, 2))

    path = _accept(tmp_path, _session(wider, run_id="run-2"), extend=True)

    baseline = load_baseline(path)
    assert len(baseline.cell("none", 1)) == 4
    assert len(baseline.cell("none", 2)) == len(baseline.cell("draft_model", 1)) == 2
    assert set(baseline.arms) == {"none", "ngram", "draft_model"}


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_accept_wants_a_reason(tmp_path: Path, reason: str) -> None:
    """Without a reason nothing is written."""
    with pytest.raises(BaselineError, match="the reason is empty"):
        _accept(tmp_path, reason=reason)

    assert not list(tmp_path.rglob("*"))


def test_accept_leaves_out_an_invalid_run_that_was_taken_again(tmp_path: Path) -> None:
    """A repeat that was measured once more with success is held by its usable run alone."""
    session = _session()
    bad = replace(session.samples[3], invalid=("client lagged 40 ms",))
    (plain, again) = (
        load_baseline(_accept(tmp_path / name, replace(session, samples=samples)))
        for name, samples in {"a": session.samples, "b": (bad, *session.samples)}.items()
    )

    assert again.cells == plain.cells


def test_accept_refuses_invalid_runs(tmp_path: Path) -> None:
    """One invalid run is enough to keep the whole session out, with its reason."""
    session = _session()
    bad = replace(session.samples[3], invalid=("client lagged 40 ms",))
    session = replace(session, samples=(*session.samples[:3], bad, *session.samples[4:]))

    with pytest.raises(BaselineError, match=r"1 of 12 runs are invalid.*client lagged 40 ms"):
        _accept(tmp_path, session)

    assert not list(tmp_path.rglob("*.json"))


def test_accept_refuses_a_session_with_holes(tmp_path: Path) -> None:
    """A session that broke off is no reference for what it did not reach."""
    session = _session()
    session = replace(session, samples=tuple(r for r in session.samples if r.arm != "ngram"))

    said = "no runs of ngram at concurrency 1, ngram at concurrency 2"
    with pytest.raises(BaselineError, match=said):
        _accept(tmp_path, session)


def test_accept_refuses_numbers_that_are_none(tmp_path: Path) -> None:
    """NaN never gets into a baseline."""
    resources = ResourceUse(cpu_cores=float("nan"))

    with pytest.raises(BaselineError, match=r"server_cpu_cores of .* is not a finite number"):
        _accept(tmp_path, _session(resources=resources))


def test_accept_never_counts_a_run_twice(tmp_path: Path) -> None:
    """Extending with what is already held would shrink the spread for nothing."""
    path = _accept(tmp_path)
    before = path.read_bytes()

    with pytest.raises(BaselineError, match="already holds run run-1"):
        _accept(tmp_path, extend=True)

    assert path.read_bytes() == before


def test_accept_extends_only_what_is_there(tmp_path: Path) -> None:
    """Extending nothing is an error that says what to do."""
    with pytest.raises(BaselineError, match=r"cannot be read .*draftgate baseline accept"):
        _accept(tmp_path, extend=True)


def test_accept_does_not_mix_engine_versions(tmp_path: Path) -> None:
    """Runs of another engine version may be judged against a baseline, not added to it."""
    _accept(tmp_path)
    other = replace(_session(run_id="run-2"), environment=make_environment(engine="vllm 0.33.0"))

    with pytest.raises(BaselineError, match=r"engine is 'vllm 0\.32\.0', expected 'vllm 0\.33\.0'"):
        _accept(tmp_path, other, extend=True)


def test_accept_on_an_unwritable_path_is_a_clear_error(tmp_path: Path) -> None:
    """A failed write names the file and leaves nothing."""
    (tmp_path / "cpu-example-2c").write_text("in the way")

    with pytest.raises(BaselineError, match=r"example\.json: cannot be written"):
        _accept(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, r"schema is 2, expected 1"),
        ({"schema": None}, r"schema is None, expected 1"),
        ({"definitions": 99}, rf"metric definitions is 99, expected {DEFINITIONS_VERSION}"),
        ({"profile": "other"}, r"profile in the file is 'other', expected 'example'"),
        ({"environment": {"hardware": "x"}}, r"damaged .*environment: .*missing keys"),
        ({"accepted": [{"time": "t"}]}, r"damaged .*accepted: .*missing keys"),
        ({"cells": [{"arm": "none"}]}, "damaged"),
        ({"cells": None}, "damaged"),
        ({"arms": {"none": []}}, r"damaged .*arms\.none: expected an object"),
        ({"slo": {"p99": 1}}, r"damaged .*slo: unknown keys \['p99'\]"),
    ],
)
def test_damaged_or_foreign_baseline_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    """Each way in which a file can be wrong is named, with what to do next."""
    path = _accept(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    with pytest.raises(BaselineError, match=message) as caught:
        load_baseline(path)

    assert str(path) in str(caught.value)
    assert 'draftgate baseline accept --reason "..."' in str(caught.value)


@pytest.mark.parametrize("values", [[1.0], [1.0, "2"], [1.0, float("nan")], [True, 1.0]])
def test_damaged_values_are_refused(tmp_path: Path, values: list[Any]) -> None:
    """Too few values, text, NaN: none becomes a number to compare with."""
    path = _accept(tmp_path)
    document = json.loads(path.read_text())
    document["cells"][0]["values"]["step_time_s"] = values
    path.write_text(json.dumps(document))

    with pytest.raises(BaselineError, match=r"damaged .*step_time_s"):
        load_baseline(path)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "null"])
def test_broken_json_is_refused(tmp_path: Path, text: str) -> None:
    """What is no baseline at all is an error that names the file."""
    path = _accept(tmp_path)
    path.write_text(text)

    with pytest.raises(BaselineError, match=r"example\.json"):
        load_baseline(path)


def test_baseline_of_other_hardware_in_its_place_is_refused(tmp_path: Path) -> None:
    """A file copied into another machine's folder is found out."""
    path = _accept(tmp_path)
    copy = tmp_path / "1x-nvidia-h200" / "vllm" / path.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes())

    with pytest.raises(BaselineError, match=r"is 'cpu-example-2c', expected '1x-nvidia-h200'"):
        load_baseline(copy)


PROFILE = make_profile(concurrencies=(1, 2), repeats=2)
SAME = {
    "description": replace(PROFILE, description="other"),
    "gates": replace(PROFILE, gates=(GateSpec("ttft_p50_s", 0.5),)),
    "repeats": _with_workload(PROFILE, repeats=9),
    "concurrencies": _with_workload(PROFILE, concurrencies=(1, 2, 4)),
    "arguments": _with_engine(PROFILE, "ngram", args=("--enforce-eager",)),
    "launch": _with_engine(PROFILE, "ngram", launch=UrlLaunch("http://127.0.0.1:1")),
    "draft model": _with_draft(PROFILE, model="newly-trained"),
}
OTHER = {
    "workload.dataset": _with_workload(PROFILE, dataset="code"),
    "workload.window_s": _with_workload(PROFILE, window_s=2.0),
    "workload.seed": _with_workload(PROFILE, seed=7),
    "arms.ngram.dtype": _with_engine(PROFILE, "ngram", dtype="float32"),
    "arms.none.target": _with_engine(PROFILE, "none", target="qwen3"),
    "arms.draft_model.speculative": _with_draft(PROFILE, num_speculative_tokens=5),
    "profile": replace(PROFILE, name="other"),
}


@pytest.mark.parametrize("what", SAME)
def test_comparable_profiles_share_a_baseline(tmp_path: Path, what: str) -> None:
    """What does not change the question, or is the question, does not refuse the answer."""
    baseline = load_baseline(_accept(tmp_path, _session(PROFILE)))
    same = baseline.comparable_with(make_environment(host="elsewhere"), SAME[what])

    assert same.cell("ngram", 2) == baseline.cell("ngram", 2)
    assert workload_digest(SAME[what]) == workload_digest(PROFILE)


@pytest.mark.parametrize("what", OTHER)
def test_other_profiles_are_refused_by_what_differs(tmp_path: Path, what: str) -> None:
    """A changed workload or model is named with its key, and what was held and wanted."""
    baseline = load_baseline(_accept(tmp_path, _session(PROFILE)))

    with pytest.raises(BaselineError, match=f"{what} is .*, expected "):
        baseline.comparable_with(make_environment(), OTHER[what])

    assert (workload_digest(OTHER[what]) != workload_digest(PROFILE)) == (what != "profile")


def test_other_hardware_is_refused(tmp_path: Path) -> None:
    """Numbers of another machine are never compared with."""
    baseline = load_baseline(_accept(tmp_path))

    with pytest.raises(
        BaselineError, match="hardware is 'cpu-example-2c', expected 'cpu-other-4c'"
    ):
        baseline.comparable_with(make_environment(hardware="cpu-other-4c"), PROFILE)


def test_goodput_under_other_limits_is_left_out(tmp_path: Path) -> None:
    """New SLO limits make goodput another metric; the rest stays comparable."""
    baseline = load_baseline(_accept(tmp_path, _session(PROFILE)))
    held = baseline.comparable_with(make_environment(), replace(PROFILE, slo=SLO(ttft_s=0.2)))

    assert all("goodput_per_s" in values for values in baseline.cell("none", 1))
    assert not any("goodput_per_s" in values for values in held.cell("none", 1))
    assert all("requests_per_s" in values for values in held.cell("none", 1))


def _with_file(path: Path, *texts: str) -> Profile:
    """Return the profile with a dataset of these prompts at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return _with_workload(PROFILE, dataset=str(path))


def test_file_of_prompts_is_known_by_its_content(tmp_path: Path) -> None:
    """Another path is the same workload, and another prompt in the same file is another one."""
    profile = _with_file(tmp_path / "a" / "mine.jsonl", "Hi", "Name a river.")
    baseline = load_baseline(_accept(tmp_path, _session(profile)))
    moved = _with_file(tmp_path / "b" / "mine.jsonl", "Hi", "Name a river.")

    assert workload_digest(moved) == workload_digest(profile)
    assert baseline.comparable_with(make_environment(), moved).cells == baseline.cells
    before = workload_digest(profile)
    changed = _with_file(tmp_path / "a" / "mine.jsonl", "Hi", "Name a lake.")
    assert workload_digest(changed) != before
    with pytest.raises(BaselineError, match=r"workload\.prompts_digest is '.*', expected '"):
        baseline.comparable_with(make_environment(), changed)


def test_runs_count_for_the_prompts_that_were_sent(tmp_path: Path) -> None:
    """A file that is changed or gone after a run does not change what the run was of."""
    path = tmp_path / "mine.jsonl"
    sent = _with_file(path, "Hi")
    sent = replace(sent, workload=with_prompts_digest(sent.workload))
    before = workload_digest(sent)

    path.unlink()

    assert workload_digest(sent) == before


def test_built_in_prompts_that_change_are_another_workload(tmp_path: Path) -> None:
    """A baseline that names a built-in dataset alone means its first prompts and no later ones."""
    baseline = load_baseline(_accept(tmp_path))
    later = _with_workload(PROFILE, prompts_digest="0123456789abcdef")

    assert "prompts_digest" not in baseline.workload
    assert workload_digest(later) != workload_digest(PROFILE)
    with pytest.raises(BaselineError, match=r"workload\.prompts_digest is None, expected '0123"):
        baseline.comparable_with(make_environment(), later)


def test_committed_acceptance_holds_the_first_prompts() -> None:
    """The digests that stand for a bare name are those that were measured then."""
    files = list((ROOT / "baselines").rglob("*.acceptance.json"))
    held = {
        entry["kind"]: entry["setting"]["prompts"]
        for path in files
        for entry in json.loads(path.read_text())["traffic"]
    }

    assert held.items() <= FIRST_PROMPTS.items()
    assert len(held) == 3


def test_committed_baselines_apply_to_their_profiles() -> None:
    """No baseline of the repository is refused for the workload that its profile sends now."""
    paths = [path for path in (ROOT / "baselines").glob("*/*/*.json") if path.suffixes == [".json"]]

    assert paths
    for path in paths:
        baseline = load_baseline(path)
        profile = load_profile(baseline.profile)
        assert baseline.comparable_with(baseline.environment, profile).cells
