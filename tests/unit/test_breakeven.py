"""Break-even maps: planted costs are found again, and what follows from them is the best."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from draftgate.breakeven import (
    acceptance_for,
    best_choices,
    break_even_acceptance,
    document,
    fit_step_cost,
    inflection,
    markdown,
    pay_map,
    schedule,
    tokens_per_step,
)
from draftgate.breakeven.model import StepCost
from draftgate.cli import main
from draftgate.errors import SpecError

STREAMS = (1, 8, 32)
ALPHA_S = 0.002


def step_s(method: str, k: int, streams: int) -> float:
    """Return the planted time of a step: drafts in turn or at once, verification that grows."""
    drafting = 0.001 * k if method == "eagle3" else 0.003
    verifying = 0.02 * (1 + 0.004 * streams * (k + 1))
    return verifying + (0.0 if k == 0 else drafting)


def row(method: str, k: int, streams: int, acceptance: float) -> dict[str, Any]:
    """Return a row of a summary as the planted costs give it."""
    length = tokens_per_step(acceptance, k)
    per_token_s = ALPHA_S + step_s(method, k, streams) / length
    metrics = {"output_tokens_per_s": {"mean": streams / per_token_s}}
    if k:
        metrics["mean_acceptance_length"] = {"mean": length}
    return {"arm": "a", "method": method, "k": k, "streams": streams, "metrics": metrics}


def group(
    methods: Iterable[str] = ("eagle3",),
    ks: Iterable[int] = (1, 3, 7),
    levels: Iterable[float] = (0.0, 0.8),
) -> dict[str, Any]:
    """Return a group of a summary: the reference and every method, K and level."""
    rows = [row("none", 0, c, 0.0) for c in STREAMS]
    rows += [row(m, k, c, a) for m, k, c, a in itertools.product(methods, ks, STREAMS, levels)]
    return {"name": "g", "note": "", "rows": rows}


@pytest.mark.parametrize("levels", [(0.0, 0.8), (0.2, 0.5, 0.9)])
def test_planted_costs_are_found(levels: tuple[float, ...]) -> None:
    """From two levels of acceptance or more, alpha and T of every cell come back."""
    for cell in pay_map(group(levels=levels)).cells:
        planted = step_s("eagle3", cell.k, cell.streams)

        assert cell.cost.step_s == pytest.approx(planted)
        assert cell.cost.alpha_s == pytest.approx(ALPHA_S)
        assert cell.cost.misfit_ratio == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("k", [1, 3, 7])
def test_at_break_even_drafts_are_as_fast_as_none(k: int) -> None:
    """The speed predicted at the break-even acceptance is that of no speculation."""
    pays = pay_map(group(ks=(k,)))
    paying = [cell for cell in pays.cells if cell.break_even is not None]

    assert paying
    for cell in paying:
        assert cell.break_even is not None
        assert cell.speed(cell.break_even) == pytest.approx(pays.reference[cell.streams])


def test_predictions_are_the_planted_truth() -> None:
    """At an acceptance that was not measured the map gives what the planted costs give."""
    cells = pay_map(group()).cells

    assert [cell.speed(0.6) for cell in cells] == pytest.approx(
        [
            row("eagle3", cell.k, cell.streams, 0.6)["metrics"]["output_tokens_per_s"]["mean"]
            for cell in cells
        ]
    )


def test_drafts_that_cost_too_much_never_pay() -> None:
    """A step longer than K + 1 plain ones has no break-even; the schedule drops drafts."""
    rows = group()["rows"]
    for entry in rows:
        if entry["k"] and entry["streams"] == 32:
            entry["metrics"]["output_tokens_per_s"]["mean"] /= 20
    pays = pay_map({"name": "g", "note": "", "rows": rows})
    best = best_choices(pays, 0.9, "eagle3")

    assert {cell.break_even for cell in pays.cells if cell.streams == 32} == {None}
    assert (best[-1].method, best[-1].k, best[-1].over_none) == ("none", 0, 1.0)
    assert schedule(best, 64)[-1] == (17, 64, 0)


def test_drafts_that_cost_nothing_always_pay() -> None:
    """Where a step is as fast as without drafts, acceptance 0 breaks even."""
    cost = StepCost(0.0, 0.01, 0.0, 2)

    assert break_even_acceptance(cost, 0.02, 3) == 0.0
    assert break_even_acceptance(StepCost(0.02, 0.01, 0.0, 2), 0.02, 3) is None


@pytest.mark.parametrize(("k", "length"), [(1, 1.5), (3, 2.952), (7, 7.9)])
def test_acceptance_and_length_are_inverse(k: int, length: float) -> None:
    """Looked for on a grid of a million steps, the acceptance of a length is the same."""
    found = acceptance_for(length, k)
    grid = next(i for i in range(1_000_001) if tokens_per_step(i / 1e6, k) >= length) / 1e6

    assert found == pytest.approx(grid, abs=1e-6)
    assert acceptance_for(k + 1.001, k) is None
    assert acceptance_for(1.0, k) == 0.0


def test_the_best_number_of_drafts_is_that_of_a_search() -> None:
    """At each number of streams no measured K, 0 included, is faster in the planted truth."""
    pays = pay_map(group())
    for choice in best_choices(pays, 0.7, "eagle3"):
        truth = {
            k: row("eagle3" if k else "none", k, choice.streams, 0.7)["metrics"][
                "output_tokens_per_s"
            ]["mean"]
            for k in (0, 1, 3, 7)
        }

        assert choice.k == max(truth, key=lambda k: truth[k])
        assert choice.speed == pytest.approx(truth[choice.k])


def test_a_schedule_has_no_gap_and_no_step_twice() -> None:
    """It covers 1 to the largest batch, switches at geometric means, and joins equal steps."""
    pays = pay_map(group())
    best = best_choices(pays, 0.7, "eagle3")
    steps = schedule(best, 256)

    assert steps[0][0] == 1
    assert steps[-1][1] == 256
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(steps))
    assert all(a[2] != b[2] for a, b in itertools.pairwise(steps))
    assert {a[1] for a in steps[:-1]} <= {2, 16}
    with pytest.raises(SpecError, match="got 31, expected at least the 32 streams"):
        schedule(best, 31)


def test_the_lead_of_one_method_over_another_is_told() -> None:
    """Drafting at once wins where K is large and few stream; a planted crossing is found."""
    rows = group(("eagle3", "peagle"), ks=(7,))["rows"]
    ahead = inflection(pay_map({"name": "g", "note": "", "rows": rows}), 0.8, "eagle3", "peagle")
    for entry in rows:
        if entry["method"] == "peagle" and entry["streams"] == 32:
            entry["metrics"]["output_tokens_per_s"]["mean"] /= 2
    crossing = inflection(pay_map({"name": "g", "note": "", "rows": rows}), 0.8, "eagle3", "peagle")

    assert ahead == "peagle is ahead of eagle3 at all numbers of streams measured (1, 8, 32)."
    assert crossing == (
        "peagle is ahead of eagle3 at 1 streams; the lead changes between 8 and 32 streams."
    )


def test_what_cannot_be_said_is_left_out_with_a_reason() -> None:
    """One level of acceptance, or no reference at as many streams, gives no cell but a sentence."""
    one_level = pay_map(group(levels=(0.8,), ks=(3,)))
    rows = [r for r in group(ks=(3,))["rows"] if (r["method"], r["streams"]) != ("none", 8)]
    no_reference = pay_map({"name": "g", "note": "", "rows": rows})

    assert one_level.cells == ()
    assert len(one_level.left_out) == 3
    assert "eagle3 with K = 3 at 1 streams: got lengths" in one_level.left_out[0]
    assert [cell.streams for cell in no_reference.cells] == [1, 32]
    assert "at 8 streams: no run without speculation" in no_reference.left_out[0]


def test_noise_is_told_by_the_misfit() -> None:
    """Three points off a line have their largest relative distance stated; two never do."""
    good = fit_step_cost([1.0, 2.0, 4.0], [0.022, 0.012, 0.007])
    bad = fit_step_cost([1.0, 2.0, 4.0], [0.022, 0.015, 0.007])

    assert good.misfit_ratio == pytest.approx(0, abs=1e-9)
    assert 0.05 < bad.misfit_ratio < 0.25
    with pytest.raises(ValueError, match="got 1 lengths and 2 times"):
        fit_step_cost([1.0], [0.1, 0.2])


def test_mistakes_are_told() -> None:
    """No reference, an unknown method and an impossible acceptance are one clear error each."""
    rows = [r for r in group()["rows"] if r["method"] != "none"]
    pays = pay_map(group())

    with pytest.raises(SpecError, match="got no run without speculation"):
        pay_map({"name": "g", "note": "", "rows": rows})
    with pytest.raises(SpecError, match=r"method 'mtp': got no cell.*It has: eagle3"):
        best_choices(pays, 0.5, "mtp")
    with pytest.raises(SpecError, match=r"acceptance: got 1\.5, expected 0 to 1"):
        best_choices(pays, 1.5, "eagle3")


def test_pages_show_map_schedule_and_note() -> None:
    """Markdown and values have break-even shares, the schedule, crossings and what the twin is."""
    held = {**group(("eagle3", "peagle")), "note": "Shapes true, weights random, x."}
    pays = pay_map(held)
    shown = document(pays, [0.7], 64)
    text = markdown(pays, shown)

    assert json.loads(json.dumps(shown)) == shown
    assert len(shown["cells"]) == 18
    assert text.startswith("**Shapes true, weights random, x.**")
    assert "| eagle3 | 3 | " in text
    assert "num_speculative_tokens_per_batch_size = [[1, " in text
    assert "At acceptance 0.7: peagle is ahead of" in text or "At acceptance 0.7: eagle3" in text


def test_command_reads_a_sweep_s_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`draftgate breakeven` takes the folder of a sweep; what is no summary ends with code 2."""
    (tmp_path / "summary.json").write_text(json.dumps({"groups": [group()]}))
    argv = ["breakeven", str(tmp_path), "--acceptance", "0.7", "--max-num-seqs", "64"]
    code, text = main(argv), capsys.readouterr().out
    main([*argv, "--json"])
    values = json.loads(capsys.readouterr().out)

    assert code == 0
    assert "## Break-even acceptance" in text
    assert values["choices"][0]["acceptance"] == 0.7
    assert main(["breakeven", str(tmp_path / "gone.json")]) == 2
