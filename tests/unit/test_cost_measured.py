"""Which measured load counts, and why the others do not."""

from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.cost.measured import Load, Measurement, best_load, read_measurement, slo_text
from draftgate.errors import BaselineError, MeasurementError, SpecError
from draftgate.metrics import compute_all
from draftgate.specs import SLO, UrlLaunch
from tests.support.costs import distribution, make_summary, store_run, store_summary
from tests.support.samples import make_cell, make_profile, make_run, make_runs

LIMITS = SLO(ttft_s=0.5, per_token_s=0.02)


def loads(measurement: Measurement) -> dict[str, Load]:
    """Return the loads by name."""
    return {load.name: load for load in measurement.loads}


def test_run_gives_a_load_per_arm_and_streams(tmp_path: Path) -> None:
    """Every cell of the run is there, with the mean, slowest and fastest of its runs."""
    profile = make_profile()
    measured = read_measurement([store_run(tmp_path)], SLO())

    load = loads(measured)["ngram at 8 streams"]
    cell = [r for r in make_runs(profile) if (r.arm, r.concurrency) == ("ngram", 8)]
    speeds = [compute_all(run, SLO())["output_tokens_per_s"] for run in cell]
    assert len(measured.loads) == 6
    assert load.runs == 3
    assert load.output_tokens_per_s == pytest.approx(sum(speeds) / 3)
    assert (load.lowest_tokens_per_s, load.highest_tokens_per_s) == (min(speeds), max(speeds))
    assert (load.input_tokens, load.output_tokens) == (40, 32)
    assert load.num_speculative_tokens == 3
    assert measured.setup.gpus == ("NVIDIA H200",)
    assert measured.slo == profile.slo


def test_highest_load_within_the_limits_is_chosen(tmp_path: Path) -> None:
    """A faster load whose p99 is beyond the limit does not count."""
    runs = (
        *make_cell(arm="none", concurrency=1),
        *make_cell(arm="none", concurrency=8, ttft_s=0.4),
        *make_cell(arm="none", concurrency=32, ttft_s=2.0),
    )
    measured = read_measurement([store_run(tmp_path, runs)], SLO())

    held = loads(measured)
    assert best_load(measured).name == "none at 8 streams"
    assert held["none at 32 streams"].refused[0].startswith("time to first token p99 2")
    fast, best = held["none at 32 streams"], held["none at 8 streams"]
    assert (fast.output_tokens_per_s or 0) > (best.output_tokens_per_s or 0)
    assert not measured.all_meet


def test_every_run_of_a_load_has_to_meet_the_slo(tmp_path: Path) -> None:
    """One slow run of three refuses the load: the run is the unit."""
    cell = (*make_cell(2, arm="none", concurrency=8), make_run(concurrency=8, repeat=2, ttft_s=3.0))
    measured = read_measurement([store_run(tmp_path, cell)], SLO())

    assert len(measured.loads[0].refused) == 1


def test_run_without_a_load_within_the_slo_is_refused(tmp_path: Path) -> None:
    """The error names each load, what it broke and what to measure."""
    measured = read_measurement([store_run(tmp_path)], SLO(ttft_s=0.001))

    with pytest.raises(MeasurementError, match="Measure fewer streams") as caught:
        best_load(measured)

    for load in measured.loads:
        assert f"{load.name}: time to first token p99" in str(caught.value)
    assert "time to first token <= 0.001 s" in str(caught.value)


def test_invalid_runs_do_not_count(tmp_path: Path) -> None:
    """A cell whose runs are all invalid has no numbers, and says why."""
    cell = make_cell(arm="none", concurrency=8, invalid=["client too slow"])
    measured = read_measurement([store_run(tmp_path, cell)], SLO())

    (load,) = measured.loads
    assert load.output_tokens_per_s is None
    assert load.refused == ("no usable run: client too slow",)


def test_failed_requests_break_the_slo(tmp_path: Path) -> None:
    """More failures than p99 lets go are too many."""
    cell = make_cell(arm="none", concurrency=8, failures=1)
    measured = read_measurement([store_run(tmp_path, cell)], SLO())

    assert measured.loads[0].refused == ("1.6% of the requests failed",)


def test_options_replace_limits_of_the_profile(tmp_path: Path) -> None:
    """What is given replaces one limit; the other stays."""
    measured = read_measurement([store_run(tmp_path)], SLO(per_token_s=0.5))

    assert measured.slo == SLO(ttft_s=1.0, per_token_s=0.5)
    assert slo_text(measured.slo) == "time to first token <= 1 s, time per token <= 0.5 s"


def test_run_without_slo_is_refused(tmp_path: Path) -> None:
    """Throughput without a limit is no sustained throughput."""
    path = store_run(tmp_path, profile=replace(make_profile(), slo=SLO()))

    with pytest.raises(SpecError, match=r"Give --slo-ttft.*\[slo\] in the profile"):
        read_measurement([path], SLO())


def test_server_behind_a_url_has_unknown_hardware(tmp_path: Path) -> None:
    """The recorded machine is the client's, so its GPUs are not taken for the server's."""
    profile = make_profile()
    launched = UrlLaunch("http://127.0.0.1:8000")
    arms = tuple(replace(a, engine=replace(a.engine, launch=launched)) for a in profile.arms)
    measured = read_measurement([store_run(tmp_path, profile=replace(profile, arms=arms))], SLO())

    assert measured.setup.hardware is None
    assert measured.setup.gpus == ()


def test_summaries_give_a_load_each(tmp_path: Path) -> None:
    """Files of one set-up make one curve; lengths are tokens / requests."""
    slow = store_summary(tmp_path / "c8.json", make_summary(output_tokens_per_s=500.0))
    fast = store_summary(tmp_path / "c32.json", make_summary(output_tokens_per_s=900.0))
    late = make_summary(output_tokens_per_s=950.0, ttft_p99_s=0.6)
    path = store_summary(tmp_path / "c64.json", late)

    measured = read_measurement([slow, fast, path], LIMITS)

    best = best_load(measured)
    assert best.name.startswith("c32 ")
    assert (best.input_tokens, best.output_tokens) == (300, 100)
    assert measured.loads[2].refused == ("time to first token p99 0.6 s > 0.5 s",)


def test_summary_of_an_open_loop_counts_from_when_requests_were_due(tmp_path: Path) -> None:
    """Time that a request waited to be sent is part of its latency."""
    summary = make_summary()
    waited = replace(summary.latency, ttft_from_scheduled_s=distribution(0.7))
    path = store_summary(tmp_path / "open.json", replace(summary, latency=waited))

    (load,) = read_measurement([path], LIMITS).loads

    assert load.ttft_p99_s == 0.7
    assert load.refused == ("time to first token p99 0.7 s > 0.5 s",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"steady": False}, "not sustained: no steady window"),
        ({"invalid": ("the client was late",)}, "invalid: the client was late"),
        ({"failed": 3}, "1.5% of the requests failed"),
    ],
)
def test_summary_that_cannot_be_used_is_refused(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    """A load test that is not steady, not valid or lost requests is no sustained load."""
    path = store_summary(tmp_path / "load.json", make_summary(**changes))  # type: ignore[arg-type] # names of its own arguments

    assert read_measurement([path], LIMITS).loads[0].refused == (reason,)


def test_summaries_of_unlike_set_ups_do_not_mix(tmp_path: Path) -> None:
    """Another model or evaluation set is another curve."""
    first = store_summary(tmp_path / "a.json", make_summary())
    model = store_summary(tmp_path / "b.json", make_summary(model="other"))
    prompts = store_summary(tmp_path / "c.json", make_summary(prompts="code; max_tokens: 100"))

    with pytest.raises(SpecError, match=r"b\.json: model is 'other', expected 'm'"):
        read_measurement([first, model], LIMITS)
    with pytest.raises(SpecError, match=r"c\.json: evaluation_set is"):
        read_measurement([first, prompts], LIMITS)


def test_summary_without_limits_is_refused(tmp_path: Path) -> None:
    """A summary has no SLO of its own."""
    path = store_summary(tmp_path / "load.json", make_summary())

    with pytest.raises(SpecError, match="Give --slo-ttft"):
        read_measurement([path], SLO())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected a run folder"),
        ("[]", "schema_version None"),
        ('{"schema_version": 9}', "schema_version 9"),
        ('{"schema_version": 1}', "got no load summary"),
    ],
)
def test_file_that_is_no_summary_is_named(text: str, said: str, tmp_path: Path) -> None:
    """Each kind of wrong file is one error with its path."""
    path = tmp_path / "load.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SpecError, match=r"load\.json") as caught:
        read_measurement([path], LIMITS)

    assert said in str(caught.value)


def test_missing_file_and_folder_without_a_run_are_named(tmp_path: Path) -> None:
    """Neither becomes an empty measurement."""
    with pytest.raises(SpecError, match=r"nothing\.json"):
        read_measurement([tmp_path / "nothing.json"], LIMITS)
    with pytest.raises(BaselineError, match=r"run\.json"):
        read_measurement([tmp_path], LIMITS)


def test_costs_of_a_twin_say_what_it_is(tmp_path: Path) -> None:
    """Loads of random weights are told as such beside what was sent; others are not."""
    profile = make_profile()
    arms = tuple(replace(a, engine=replace(a.engine, target="shape-tiny")) for a in profile.arms)
    twin = read_measurement([store_run(tmp_path, profile=replace(profile, arms=arms))], SLO())
    real = read_measurement([store_run(tmp_path)], SLO())

    assert "; shapes true, weights random, " in twin.setup.evaluation_set
    assert "weights random" not in real.setup.evaluation_set
