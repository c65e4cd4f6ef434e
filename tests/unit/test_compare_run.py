"""Whole comparisons without servers: what is taken, stored, resumed and decided."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.clock import ManualClock
from draftgate.compare.records import Stage
from draftgate.compare.run import (
    Sides,
    load_comparison,
    open_comparison,
    open_confirmation,
    run_comparison,
)
from draftgate.compare.schedule import Stages, order_of, suspects
from draftgate.compare.store import ComparisonFolder
from draftgate.compare.take import Place
from draftgate.errors import BaselineError, MeasurementError, SpecError
from draftgate.specs import CompareSpec, PairedGateSpec
from draftgate.verdict import Outcome
from tests.support.scripted_pairs import PLAN, SPEED, Build, Script, folder

SLOWER = Build(step_s=0.0324)
SECRET = "hf_planted-0123"


def quiet(_line: str) -> None:
    """Take a line of progress and drop it."""


def run(made: ComparisonFolder, script: Script, **settings: object) -> Outcome:
    """Run a comparison with a script and return its outcome."""
    run_comparison(made, quiet, take=script, **settings)  # type: ignore[arg-type]
    return load_comparison(made.path).result.outcome


def test_unchanged_builds_pass_at_the_first_look(tmp_path: Path) -> None:
    """Same against same ends green after eight pairs and takes no fresh ones."""
    made, script = folder(tmp_path), Script()

    assert run(made, script) is Outcome.PASS

    assert [place.slot for place in script.calls] == list(range(8))
    assert load_comparison(made.path).result.ended == "decided"


def test_slower_build_is_a_regression_on_fresh_pairs(tmp_path: Path) -> None:
    """A planted 8 % of step time is suspect after eight pairs and confirmed on 24 fresh ones."""
    made, script = folder(tmp_path), Script(candidate=SLOWER)

    assert run(made, script) is Outcome.REGRESSION

    stages = [place.stage for place in script.calls]
    assert stages == [Stage.SEARCH] * 8 + [Stage.CONFIRM] * 24
    (result,) = load_comparison(made.path).result.gates
    assert result.confirm is not None
    assert result.confirm.pairs == 24
    assert result.cause is not None
    assert result.cause.named == ("step time",)
    assert result.adjusted_p is not None
    assert result.adjusted_p < 0.002


def test_gain_is_an_improvement(tmp_path: Path) -> None:
    """A faster build is better by more than the margin."""
    assert run(folder(tmp_path), Script(candidate=Build(step_s=0.027))) is Outcome.IMPROVEMENT


def test_search_alone_leaves_suspects_for_a_later_job(tmp_path: Path) -> None:
    """With `--stage search` a suspect stays INCONCLUSIVE, counted, with the pairs it needs."""
    made, script = folder(tmp_path), Script(candidate=SLOWER)

    assert run(made, script, stages=Stages.SEARCH) is Outcome.INCONCLUSIVE

    stored = load_comparison(made.path)
    assert stored.result.gates[0].pairs_needed == 24
    assert "suspect" in stored.result.gates[0].reason
    assert suspects(stored.header, stored.pairs) == 1


def test_later_job_confirms_a_suspect_from_its_folder(tmp_path: Path) -> None:
    """Stage two in a new folder copies stage one, takes 24 pairs and says REGRESSION."""
    first = folder(tmp_path)
    run(first, Script(candidate=SLOWER), stages=Stages.SEARCH)

    second = open_confirmation(tmp_path, first, argv=("draftgate", "compare", "--confirm"))
    script = Script(candidate=SLOWER, seed=9)

    assert run(second, script, stages=Stages.CONFIRM) is Outcome.REGRESSION
    assert len(script.calls) == 24
    assert second.header().confirms == first.header().id
    assert len(first.pairs()) == 8, "the first folder is left alone"


def test_suspicion_by_chance_is_not_confirmed(tmp_path: Path) -> None:
    """Pairs that looked bad, then fresh ones that don't, end in a PASS that says so."""
    first = folder(tmp_path)
    run(first, Script(candidate=SLOWER), stages=Stages.SEARCH)

    second = open_confirmation(tmp_path, first, argv=())

    assert run(second, Script(), stages=Stages.CONFIRM) is Outcome.PASS
    assert "not confirmed" in load_comparison(second.path).result.gates[0].reason


def test_two_of_everything_still_needs_only_eight_pairs_of_each_arm(tmp_path: Path) -> None:
    """Arms take turns, each in an order of sides of its own."""
    made, script = folder(tmp_path, arms=2), Script()

    run(made, script)

    assert [place.arm for place in script.calls] == ["none", "ngram"] * 8
    head = made.header()
    assert order_of(head, "none", Stage.SEARCH) != order_of(head, "ngram", Stage.SEARCH)


def test_order_of_sides_is_balanced_in_every_block(tmp_path: Path) -> None:
    """Each four pairs have the candidate first twice, in stage one and two."""
    head = folder(tmp_path).header()

    for stage, most in ((Stage.SEARCH, 20), (Stage.CONFIRM, 24)):
        order = order_of(head, "none", stage)
        assert len(order) == most
        assert all(sum(order[i : i + 4]) == 2 for i in range(0, most, 4))


def test_budget_ends_it_open_with_the_pairs_it_needs(tmp_path: Path) -> None:
    """Three minutes a pair and a budget of ten: three pairs, INCONCLUSIVE, five more needed."""
    clock = ManualClock()
    script = Script(before=lambda _place: clock.advance(180))
    made = folder(tmp_path, replace(PLAN, max_minutes=10.0))

    assert run(made, script, clock=clock) is Outcome.INCONCLUSIVE

    stored = load_comparison(made.path)
    assert len(stored.pairs) == 3
    assert (stored.result.ended, stored.result.minutes) == ("budget", pytest.approx(9.0))
    assert stored.result.gates[0].pairs_needed == 5


def test_budget_counts_earlier_sittings(tmp_path: Path) -> None:
    """What was spent before a resume is spent."""
    clock = ManualClock()
    script = Script(before=lambda _place: clock.advance(180))
    made = folder(tmp_path, replace(PLAN, max_minutes=10.0))
    run(made, script, clock=clock)

    run(made, script, clock=clock)

    assert len(script.calls) == 3


def kill_at(slot: int) -> Callable[[Place], None]:
    """Return a hook that dies when the pair of a slot is being taken for the first time."""
    killed: list[int] = []

    def die(place: Place) -> None:
        if place.slot == slot and not killed:
            killed.append(slot)
            raise KeyboardInterrupt

    return die


def test_killed_comparison_resumes_where_it_was(tmp_path: Path) -> None:
    """The pair that was being taken is named and taken again; no other one is."""
    made, script = folder(tmp_path), Script(before=kill_at(5))
    with pytest.raises(KeyboardInterrupt):
        run(made, script)
    assert load_comparison(made.path).result.ended == "interrupted"
    assert len(made.pairs()) == 5

    assert run(made, script) is Outcome.PASS

    assert [place.slot for place in script.calls] == [0, 1, 2, 3, 4, 5, 5, 6, 7]
    assert any(
        "none-search-06 was interrupted" in n for n in load_comparison(made.path).result.notes
    )


def with_secret(made: ComparisonFolder, *, argument: bool = False) -> ComparisonFolder:
    """Return a new comparison like this one whose servers are given a secret."""
    held = made.header()
    args = ("--api-key", SECRET) if argument else ()
    engine = replace(held.base.arms[0].engine, args=args, env=(("A", "1"), ("HF_TOKEN", SECRET)))
    arms = (replace(held.base.arms[0], engine=engine),)
    sides = Sides(
        replace(held.profile, arms=arms, text=f"HF_TOKEN = '{SECRET}'"),
        replace(held.base, arms=arms),
        replace(held.candidate, arms=arms),
    )
    argv = ("draftgate", "compare", f"engine.env.HF_TOKEN={SECRET}")
    return open_comparison(made.path, sides, held.gates, held.plan, argv=argv)


def secrets_given(script: Script) -> set[str | None]:
    """Return what the servers of a script's pairs were given as HF_TOKEN."""
    return {
        dict(arm.engine.env).get("HF_TOKEN")
        for bench in script.benches
        for side in (bench.base, bench.candidate)
        for arm in side.arms
    }


def test_secrets_reach_servers_and_no_file(tmp_path: Path) -> None:
    """The servers get the real value; neither a file nor a line of progress holds it."""
    made, told = with_secret(folder(tmp_path)), list[str]()
    script = Script(trouble={("*", 0, 0): f"the server died: {{'api_key': ['{SECRET}']}}"})

    run_comparison(made, told.append, take=script)

    assert secrets_given(script) == {SECRET}
    assert any("the server died" in line for line in told)
    assert SECRET not in "\n".join(told)
    held = [path for path in made.path.rglob("*") if path.is_file()]
    assert len(held) > 8
    assert [path.name for path in held if SECRET in path.read_text()] == []


def test_resume_takes_secrets_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not stored is asked for by name, and then reaches the servers again."""
    path, script = with_secret(folder(tmp_path)).path, Script()
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(SpecError, match=r"arm 'none': got no value of HF_TOKEN, which was not"):
        run(ComparisonFolder(path), script)
    assert script.calls == []
    monkeypatch.setenv("HF_TOKEN", SECRET)

    assert run(ComparisonFolder(path), script) is Outcome.PASS

    assert secrets_given(script) == {SECRET}


def test_confirmation_takes_secrets_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later job that confirms starts its servers with the real value, and stores it no more."""
    made, script = with_secret(folder(tmp_path)), Script(candidate=SLOWER)
    run_comparison(made, quiet, take=script, stages=Stages.SEARCH)
    monkeypatch.setenv("HF_TOKEN", SECRET)

    later = open_confirmation(tmp_path, ComparisonFolder(made.path), argv=())
    fresh = Script(candidate=SLOWER)
    run_comparison(later, quiet, take=fresh, stages=Stages.CONFIRM)

    assert secrets_given(fresh) == {SECRET}
    assert SECRET not in (later.path / "comparison.json").read_text()


def test_argument_that_was_not_stored_is_not_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server is never started with what stands in the place of a secret."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    path, script = with_secret(folder(tmp_path), argument=True).path, Script()

    with pytest.raises(SpecError, match=r"arm 'none': got an argument that was not stored"):
        run(ComparisonFolder(path), script)

    assert script.calls == []


def test_resumed_comparison_says_the_same_as_one_sitting(tmp_path: Path) -> None:
    """Losses, numbers and verdict do not depend on where it was cut."""
    whole, cut = folder(tmp_path), folder(tmp_path)
    run(whole, Script(candidate=SLOWER))
    script = Script(candidate=SLOWER, before=kill_at(3))
    with pytest.raises(KeyboardInterrupt):
        run(cut, script)

    run(cut, script)

    assert load_comparison(cut.path).result.gates == load_comparison(whole.path).result.gates


def test_pair_that_cannot_be_used_is_taken_again_in_its_slot(tmp_path: Path) -> None:
    """Order and blocks hold, the reason stands in the notes, and the verdict is green."""
    made = folder(tmp_path)
    script = Script(trouble={("*", 2, 0): "the clock jumped by +3.00 s while it was measured"})

    assert run(made, script) is Outcome.PASS

    assert [(place.slot, place.attempt) for place in script.calls[2:4]] == [(2, 0), (2, 1)]
    assert script.calls[2].candidate_first == script.calls[3].candidate_first
    notes = load_comparison(made.path).result.notes
    assert any("pair 3 was left out: candidate: the clock jumped" in note for note in notes)


def test_client_that_is_always_too_slow_is_invalid_and_no_regression(tmp_path: Path) -> None:
    """Three unusable pairs in a row end it as INVALID_RUN, also if the candidate looks slower."""
    made = folder(tmp_path)
    trouble = {("*", 0, attempt): "the client itself may have moved it" for attempt in range(9)}
    script = Script(candidate=SLOWER, trouble=trouble)

    assert run(made, script) is Outcome.INVALID_RUN

    assert len(script.calls) == 3
    (result,) = load_comparison(made.path).result.gates
    assert "3 of 3 pairs could not be used" in result.reason


def test_arm_that_does_not_start_leaves_the_others_judged(tmp_path: Path) -> None:
    """One arm is INVALID_RUN with its reason, the other passes."""
    made = folder(tmp_path, arms=2)
    trouble = {("ngram", 0, attempt): "did not start: no such image" for attempt in range(9)}

    assert run(made, Script(trouble=trouble)) is Outcome.INVALID_RUN

    outcomes = {r.gate.arm: r.outcome for r in load_comparison(made.path).result.gates}
    assert outcomes == {"none": Outcome.PASS, "ngram": Outcome.INVALID_RUN}


def test_engine_that_changes_in_the_middle_is_refused(tmp_path: Path) -> None:
    """A pair of another build never enters, and what was taken before stays."""
    made = folder(tmp_path)
    script = Script(before=kill_at(4))
    with pytest.raises(KeyboardInterrupt):
        run(made, script)
    script.candidate = Build(engine="vllm 2.0")

    with pytest.raises(MeasurementError, match=r"candidate none: got engine vllm 2\.0"):
        run(made, script)

    assert len(made.pairs()) == 4


def test_other_hardware_is_refused(tmp_path: Path) -> None:
    """A folder begun elsewhere does not go on here."""
    made = folder(tmp_path)
    path = made.path / "comparison.json"
    document = json.loads(path.read_text())
    document["environment"]["hardware"] = "8x-other"
    path.write_text(json.dumps(document))

    with pytest.raises(BaselineError, match="unlike hardware don't mix"):
        run(made, Script())


def test_other_prompts_are_refused(tmp_path: Path) -> None:
    """Prompts that changed since the first pair are named, and no pair is taken with them."""
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "Hi"}\n')
    made, script = folder(tmp_path), Script()
    held = made.header()
    workload = replace(held.profile.workload, dataset=str(path), prompts_digest=None)
    sides = Sides(replace(held.profile, workload=workload), held.base, held.candidate)
    made = open_comparison(tmp_path, sides, held.gates, held.plan, argv=())
    path.write_text('{"prompt": "Ho"}\n')

    with pytest.raises(BaselineError, match=r"mine\.jsonl': its prompts are not those"):
        run(made, script)

    assert script.calls == []


def test_other_definitions_are_refused(tmp_path: Path) -> None:
    """Pairs of another version of the metrics are not read."""
    made = folder(tmp_path)
    path = made.path / "comparison.json"
    document = json.loads(path.read_text())
    document["definitions"] += 1
    path.write_text(json.dumps(document))

    with pytest.raises(BaselineError, match="equal names would hide unequal things"):
        load_comparison(made.path)


def test_damaged_pair_is_named(tmp_path: Path) -> None:
    """A cut file is an error with its name, never a pair less."""
    made = folder(tmp_path)
    run(made, Script())
    path = sorted((made.path / "pairs").iterdir())[3]
    path.write_text(path.read_text()[:100])

    with pytest.raises(BaselineError, match=path.name):
        load_comparison(made.path)


def test_noise_alone_stays_open_and_tells_the_pairs(tmp_path: Path) -> None:
    """Pairs that differ by 40 % at random decide nothing in 20; the result says how many would."""
    made, script = folder(tmp_path), Script(base=Build(sd=0.3), candidate=Build(sd=0.3))

    assert run(made, script) is Outcome.INCONCLUSIVE

    assert len(script.calls) == 20
    assert load_comparison(made.path).result.gates[0].pairs_needed > 0


def test_tail_of_too_few_requests_is_never_judged(tmp_path: Path) -> None:
    """A p99 over 8 x 20 requests waits for 299, which 20 x 10 never reach."""
    tail = PairedGateSpec("ttft_p99_s", 0.02, 0.10)
    made = folder(tmp_path, replace(PLAN, gates=(tail,)))
    few = Build(requests=10)

    assert run(made, Script(base=few, candidate=few)) is Outcome.INCONCLUSIVE

    (result,) = load_comparison(made.path).result.gates
    assert "200 requests a side are behind it and 299 are needed" in result.reason


def test_tail_is_judged_at_the_first_look_with_enough_requests(tmp_path: Path) -> None:
    """40 requests a start reach 299 at eight pairs, 30 at twelve only."""
    tail = PairedGateSpec("ttft_p99_s", 0.02, 0.10)
    for requests, looked in ((40, 8), (30, 12)):
        made = folder(tmp_path, replace(PLAN, gates=(tail,)))
        build = Build(requests=requests)
        assert run(made, Script(base=build, candidate=build)) is Outcome.PASS
        assert len(made.pairs()) == looked


def test_sign_process_decides_in_one_stage(tmp_path: Path) -> None:
    """Every pair worse by 8 % is a REGRESSION by signs; unchanged builds pass."""
    plan = CompareSpec(gates=(SPEED,), single_stage=True)
    slower, same = folder(tmp_path, plan), folder(tmp_path, plan)

    assert run(slower, Script(candidate=SLOWER)) is Outcome.REGRESSION
    assert run(same, Script()) is Outcome.PASS

    assert all(pair.stage is Stage.SEARCH for pair in slower.pairs())
    assert len(slower.pairs()) <= 30
    (result,) = load_comparison(slower.path).result.gates
    assert result.adjusted_p is not None
    assert result.adjusted_p <= 0.002


def test_one_bad_start_is_no_regression(tmp_path: Path) -> None:
    """A single start of the candidate at a third of its speed confirms nothing."""

    class OneBadStart(Script):
        """A script whose candidate is slow in one pair only."""

        def __call__(self, bench, place):  # type: ignore[no-untyped-def]
            """Return the pair, the third of stage one three times slower."""
            slow = place.slot == 2 and place.stage is Stage.SEARCH
            self.candidate = Build(step_s=0.09) if slow else Build()
            return super().__call__(bench, place)

    assert run(folder(tmp_path), OneBadStart()) in (Outcome.PASS, Outcome.INCONCLUSIVE)
