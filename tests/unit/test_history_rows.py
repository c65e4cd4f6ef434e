"""Rows: what a session and a comparison add to the history."""

import math
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from draftgate.compare.records import Role
from draftgate.errors import MeasurementError
from draftgate.history.records import Row
from draftgate.history.rows import arm_digest, rows_of_comparison, rows_of_run
from draftgate.metrics import DEFINITIONS_VERSION, compute_all
from draftgate.specs import SLO, Arm, Profile
from tests.support.comparisons import stored_comparison
from tests.support.report_runs import SMALL, stored_run
from tests.support.samples import make_environment, make_profile, make_runs

PROFILE = make_profile(concurrencies=(1,), repeats=2)


def of(rows: tuple[Row, ...], **wanted: object) -> list[Row]:
    """Return the rows whose fields are as given."""
    return [
        row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())
    ]


def test_session_becomes_a_row_per_run_and_metric(tmp_path: Path) -> None:
    """Every metric of every run, with what is needed to compare it later."""
    run = stored_run(tmp_path, PROFILE)
    night = rows_of_run(run, "c0ffee")
    sample = run.samples[0]
    values = compute_all(sample, PROFILE.slo)

    assert (night.run_id, night.session_time) == (run.id, datetime.fromisoformat(run.started_at))
    assert (night.hardware, night.engines, night.profile) == ("cpu-example-2c", "vllm", "example")
    assert (night.draftgate, night.definitions) == ("0.1.0", DEFINITIONS_VERSION)
    assert len(night.rows) == sum(len(compute_all(one, PROFILE.slo)) for one in run.samples)
    (row,) = of(night.rows, arm=sample.arm, repeat=0, metric="ttft_p50_s")
    assert row == Row(
        time=datetime.fromisoformat(sample.started_at),
        repeat=0,
        engine="vllm",
        engine_version="0.32.0",
        arm="none",
        role="run",
        concurrency=1,
        metric="ttft_p50_s",
        value=values["ttft_p50_s"],
        unit="s",
        better="lower",
        commit="c0ffee",
        workload=arm_digest(PROFILE, PROFILE.arms[0]),
        requests=row.requests,
        invalid="",
    )
    assert 0 < row.requests < SMALL["requests"]
    assert night.notes == ()


def test_invalid_run_is_kept_with_its_reasons(tmp_path: Path) -> None:
    """Readers decide what to leave out; here nothing is lost."""
    samples = make_runs(PROFILE, **SMALL)
    bad = replace(samples[0], invalid=("client lag", "2 of 3 requests failed"))
    night = rows_of_run(stored_run(tmp_path, PROFILE, (bad, *samples[1:])))

    assert {row.invalid for row in of(night.rows, arm=bad.arm, repeat=0)} == {
        "client lag; 2 of 3 requests failed"
    }
    assert {row.invalid for row in of(night.rows, arm=bad.arm, repeat=1)} == {""}


def test_session_without_a_number_is_refused(tmp_path: Path) -> None:
    """An empty night would look like a night on which nothing was wrong."""
    with pytest.raises(MeasurementError, match="nothing to append"):
        rows_of_run(stored_run(tmp_path, PROFILE, ()))


def test_version_is_what_stands_behind_the_engines_name(tmp_path: Path) -> None:
    """A server that reports something else keeps it whole."""
    run = stored_run(tmp_path, PROFILE, make_runs(PROFILE, **SMALL)[:1])
    other = replace(run, environment=make_environment(engine="nightly build 7"))

    assert {row.engine_version for row in rows_of_run(run).rows} == {"0.32.0"}
    assert {row.engine_version for row in rows_of_run(other).rows} == {"nightly build 7"}


def test_clock_that_goes_backwards_inside_a_session_is_noted(tmp_path: Path) -> None:
    """Runs are in the order of measuring, so their times may only rise."""
    first, second = make_runs(PROFILE, **SMALL)[:2]
    back = replace(second, started_at="2026-01-01T00:00:30+00:00")
    late = replace(first, started_at="2026-01-01T00:02:00+00:00")
    (note,) = rows_of_run(stored_run(tmp_path, PROFILE, (late, back))).notes

    assert "clock went backwards" in note
    assert back.started_at in note


def test_digest_of_an_arm_knows_its_own_server_and_workload_alone() -> None:
    """Another arm more, or another load more, starts no new series; other traffic does."""
    none, ngram, _ = PROFILE.arms
    fewer = replace(PROFILE, arms=(none,))
    more_streams = make_profile(concurrencies=(1, 32), repeats=9)
    longer = replace(
        PROFILE,
        workload=replace(
            PROFILE.workload, sampling=replace(PROFILE.workload.sampling, max_tokens=64)
        ),
    )
    quantised = Arm("none", replace(none.engine, quantization="fp8"))

    assert arm_digest(fewer, none) == arm_digest(PROFILE, none) == arm_digest(more_streams, none)
    distinct = {
        arm_digest(PROFILE, none),
        arm_digest(PROFILE, ngram),
        arm_digest(longer, none),
        arm_digest(PROFILE, quantised),
    }
    assert len(distinct) == 4


def test_other_limits_start_a_new_series_of_goodput_alone(tmp_path: Path) -> None:
    """Goodput under other limits is another metric; the rest goes on."""

    def workloads(profile: Profile) -> dict[str, str]:
        samples = make_runs(profile, **SMALL)[:1]
        night = rows_of_run(stored_run(tmp_path, profile, samples))
        return {row.metric: row.workload for row in night.rows}

    before, after = workloads(PROFILE), workloads(replace(PROFILE, slo=SLO(ttft_s=9.0)))

    assert [name for name in before if before[name] != after[name]] == ["goodput_per_s"]


def test_comparison_becomes_a_row_per_start_and_metric() -> None:
    """Base and candidate have roles, engines and commits of their own."""
    comparison = stored_comparison()
    night = rows_of_comparison(comparison, "c0ffee")
    pair = comparison.pairs[0]
    cell = pair.candidate.cells[0]
    name, value = cell.values[0]
    (row,) = of(
        night.rows,
        role="candidate",
        repeat=0,
        concurrency=cell.concurrency,
        metric=name,
    )

    assert night.run_id == comparison.header.id
    assert (row.value, row.arm, row.requests) == (value, pair.arm, cell.requests)
    assert row.time == datetime.fromisoformat(pair.candidate.started_at)
    assert len(night.rows) == sum(
        len(cell.values)
        for pair in comparison.pairs
        for start in (pair.base, pair.candidate)
        for cell in start.cells
    )
    assert {row.role for row in night.rows} == {"base", "candidate"}
    assert {row.commit for row in of(night.rows, role="base")} == {""}
    assert {row.commit for row in of(night.rows, role="candidate")} == {"c0ffee"}
    assert {row.engine_version for row in of(night.rows, role="base")} == {"0.31.0"}


def test_start_that_failed_is_kept_and_does_not_spoil_its_partner() -> None:
    """An invalid start is marked; the other start of the pair stands for itself."""
    comparison = stored_comparison()
    pair = comparison.pairs[0]
    broken = replace(pair, base=replace(pair.base, invalid=("the clock jumped",)))
    night = rows_of_comparison(replace(comparison, pairs=(broken,)))

    assert {row.invalid for row in of(night.rows, role=Role.BASE.value)} == {"the clock jumped"}
    assert {row.invalid for row in of(night.rows, role=Role.CANDIDATE.value)} == {""}


def test_comparison_without_pairs_is_refused() -> None:
    """A comparison that was killed before its first pair adds nothing."""
    with pytest.raises(MeasurementError, match="nothing to append"):
        rows_of_comparison(replace(stored_comparison(), pairs=()))


def test_metric_that_this_version_does_not_know_is_kept() -> None:
    """An old comparison may hold a metric that was since renamed; it has no better way."""
    comparison = stored_comparison()
    pair = comparison.pairs[0]
    cell = replace(pair.base.cells[0], values=(("gone_s", math.nan),))
    old = replace(pair, base=replace(pair.base, cells=(cell,)))
    night = rows_of_comparison(replace(comparison, pairs=(old,)))
    (row,) = of(night.rows, metric="gone_s")

    assert (row.better, row.unit) == ("neither", "")
    assert math.isnan(row.value)
