"""The recorder's order and file, and what the gate says of invented recordings."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.gate import plantedtables, realtables
from benchmarks.gate.couples import as_pair, couples_of, header_of, in_order, shuffled
from benchmarks.gate.faults import KINDS, kinds_of, server
from benchmarks.gate.realpeers import peer_rows
from benchmarks.gate.realtables import END, START, placed, render
from benchmarks.gate.record import Hiccup, order_of
from benchmarks.gate.replay import (
    Replay,
    bad_start_row,
    hiccup_row,
    planted_row,
    replayed,
    unchanged_row,
)
from benchmarks.gate.starts import Recorded, append, check_setting, read, write
from draftgate.compare.records import Role, Stage
from draftgate.errors import BaselineError, SpecError
from draftgate.load.state import LoadProgress
from draftgate.specs import CompareSpec, PairedGateSpec
from tests.support.recorded import SETTING, recording, start
from tests.support.samples import make_profile

GATES = (PairedGateSpec("output_tokens_per_s", 0.01, 0.05),)
PROFILE = replace(make_profile(concurrencies=(8,)), compare=CompareSpec(gates=GATES))
SIZES = (20, 24)


def test_order_of_a_round_depends_on_seed_and_round_alone() -> None:
    """Equal rounds get equal orders whatever order the kinds are named in; others differ."""
    kinds = kinds_of("base,twin,step5,step10")

    orders = [order_of(kinds, seed=1, number=number) for number in range(20)]

    assert orders[3] == order_of(kinds[::-1], seed=1, number=3)
    assert len({tuple(kind.name for kind in order) for order in orders}) > 5


def test_each_place_is_as_likely_for_each_kind() -> None:
    """Over 400 rounds a kind comes first in a half of them, give or take 3 standard errors."""
    kinds = kinds_of("base,twin")

    first = sum(order_of(kinds, seed=1, number=n)[0].name == "base" for n in range(400))

    assert abs(first - 200) < 30


@pytest.mark.parametrize(
    ("text", "message"),
    [("base,slow", "Unknown: slow"), ("base,base", "Name each once"), ("step5", "add 'base'")],
)
def test_kinds_that_cannot_be_compared_are_refused(text: str, message: str) -> None:
    """A kind that is unknown, named twice or without its base is refused with what to do."""
    with pytest.raises(SpecError, match=message):
        kinds_of(text)


def test_planted_server_differs_from_its_base_by_the_planted_variables_alone() -> None:
    """The server of a planted kind is the base's but for its name and the fault."""
    base, slow = (server(KINDS[name], PROFILE, quick=True) for name in ("base", "step5"))

    unlike = set(slow.engine.env) - set(base.engine.env)

    assert unlike == {("DRAFTGATE_PLANTED_STEP_SHARE", "0.05")}
    assert set(base.engine.env) < set(slow.engine.env)
    assert replace(slow.engine, env=base.engine.env) == base.engine


def test_quick_starts_are_asked_of_every_server_or_of_none() -> None:
    """Forking is a variable that an unchanged server gets too, and only when asked for."""
    fork = ("DRAFTGATE_PLANTED_FORK", "1")

    assert fork in server(KINDS["twin"], PROFILE, quick=True).engine.env
    assert fork not in server(KINDS["twin"], PROFILE, quick=False).engine.env


def test_client_stands_still_once() -> None:
    """The client stands still at the second report of progress and at no other."""
    told = LoadProgress(1.0, 1, 1, 0, 1, 1)
    waits: list[float] = []
    hiccup = Hiccup(0.5, wait=waits.append)

    hiccup(told)
    before = list(waits)
    hiccup(told)
    hiccup(told)

    assert (before, waits) == ([], [0.5])


def test_recording_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Two appended rounds are read back whole, failed starts with their reason included."""
    rng = np.random.default_rng(1)
    path = tmp_path / "starts.parquet"
    dead = replace(start(rng), cells=(), invalid=("did not start: no memory",))
    first = [Recorded("base", 0, 1, start(rng)), Recorded("twin", 0, 0, dead)]
    second = [Recorded("base", 1, 0, start(rng, invalid="stalled"))]

    append(path, SETTING, first)
    append(path, SETTING, second)

    assert read(path).starts == (*first, *second)
    assert read(path).setting == SETTING


def test_unlike_settings_do_not_mix(tmp_path: Path) -> None:
    """A round from other hardware is refused by name, and the file stays as it was."""
    path = tmp_path / "starts.parquet"
    write(path, SETTING, recording(rounds=1).starts)
    before = path.read_bytes()

    with pytest.raises(BaselineError, match="hardware: 'cpu-example-2c' and 'other'"):
        append(path, replace(SETTING, hardware="other"), [])

    assert path.read_bytes() == before


def test_other_definitions_of_the_metrics_are_refused(tmp_path: Path) -> None:
    """A recording whose metrics meant something else is not read."""
    path = tmp_path / "starts.parquet"
    write(path, replace(SETTING, definitions=0), recording(rounds=1).starts)

    with pytest.raises(BaselineError, match="got metrics of definitions 0"):
        read(path)


def test_tails_of_few_requests_are_asked_as_p95() -> None:
    """With 8 requests a start, 20 pairs hold no p99 and the p95 is asked; with 16 they do."""
    tails = CompareSpec(gates=(PairedGateSpec("ttft_p99_s", 0.02, 0.10),))

    profile = replace(PROFILE, compare=tails)
    few = recording(rounds=1)
    more = replace(few, setting=replace(few.setting, min_requests=16))

    (gate,) = header_of(few, profile, "none").gates
    (kept,) = header_of(more, profile, "none").gates

    assert (gate.metric, gate.instead_of) == ("ttft_p95_s", "ttft_p99_s")
    assert (kept.metric, kept.instead_of) == ("ttft_p99_s", None)


def test_quick_and_usual_starts_do_not_mix() -> None:
    """Rounds of forked servers are refused beside rounds of spawned ones."""
    with pytest.raises(BaselineError, match="quick"):
        check_setting(SETTING, replace(SETTING, quick=True))


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really"])
def test_damaged_recording_is_named(tmp_path: Path, content: bytes) -> None:
    """A file that is no recording is a BaselineError that says how to make one."""
    path = tmp_path / "starts.parquet"
    path.write_bytes(content)

    with pytest.raises(BaselineError, match=r"benchmarks\.gate\.record"):
        read(path)


def test_sixty_rounds_of_five_starts_are_small(tmp_path: Path) -> None:
    """Sixty rounds of five starts, of 60 metrics and 24 prompts each, stay under 2 MB."""
    rng = np.random.default_rng(1)
    held = recording(rounds=60, step5=0.05, step10=0.1, queue=0.0)
    starts = []
    for recorded in held.starts:
        (cell,) = recorded.start.cells
        values = tuple((f"metric_{n}_s", float(rng.normal())) for n in range(60))
        prompts = tuple((f"prompt-{n}", float(rng.normal())) for n in range(24))
        cells = tuple(
            replace(cell, concurrency=c, values=values, prompts=prompts, spreads=values[:12])
            for c in (1, 8)
        )
        starts.append(replace(recorded, start=replace(recorded.start, cells=cells)))

    write(tmp_path / "starts.parquet", SETTING, starts)

    assert (tmp_path / "starts.parquet").stat().st_size < 2_000_000


def test_swapped_couple_trades_places_and_roles() -> None:
    """Swapped, the twin is the base, and who was measured first goes with it."""
    couple = couples_of(recording(rounds=1), "twin")[0]
    plain = as_pair(couple, Stage.SEARCH, 0)

    swapped = as_pair(couple, Stage.SEARCH, 0, swap=True)

    assert swapped.candidate_first is not plain.candidate_first
    assert swapped.candidate == replace(plain.base, role=Role.CANDIDATE)
    assert swapped.base == replace(plain.candidate, role=Role.BASE)


def test_random_comparison_uses_fresh_couples_in_balanced_order() -> None:
    """No couple is in both stages, and each block of four has two with the candidate first."""
    couples = couples_of(recording(), "twin")

    pairs = shuffled(np.random.default_rng(1), couples, SIZES)

    speeds = {pair.base.cells[0].values[0][1] for pair in pairs}
    speeds |= {pair.candidate.cells[0].values[0][1] for pair in pairs}
    blocks = np.array([pair.candidate_first for pair in pairs]).reshape(-1, 4)
    assert len(speeds) == 2 * sum(SIZES)
    assert [pair.stage for pair in pairs] == [Stage.SEARCH] * 20 + [Stage.CONFIRM] * 24
    assert (blocks.sum(axis=1) == 2).all()


def test_planted_couples_keep_their_order_and_sides() -> None:
    """The base stays the base, and pairs stand in the order in which they were taken."""
    held = couples_of(recording(step5=0.05), "step5")

    pairs = in_order(held, SIZES)

    assert [pair.base.cells for pair in pairs] == [c.base.start.cells for c in held[:44]]
    assert [pair.candidate_first for pair in pairs] == [c.other_first for c in held[:44]]


def test_unchanged_builds_pass() -> None:
    """Equal starts with 1 % noise and 5 % drift give no REGRESSION in 60 comparisons."""
    row = unchanged_row(Replay(recording(), PROFILE), "twin", trials=60)

    assert row["regression"]["hits"] == 0
    assert row["pass"] > 0.9
    assert 8 <= row["mean_pairs"] <= 20
    assert row["gates"]["output_tokens_per_s x8"]["regression"]["trials"] == 60


def test_a_twin_that_is_slower_widens_the_spread() -> None:
    """Sides are random, so a twin that is always 20 % slower leaves most comparisons open."""
    biased = Replay(recording(twin=0.2), PROFILE)

    row = unchanged_row(biased, "twin", trials=40)

    assert row["inconclusive"] > 0.6
    assert row["mean_pairs"] > 16
    assert row["regression"]["hits"] == 0


def test_planted_loss_is_found_with_its_cause() -> None:
    """Steps 5 % longer give REGRESSION named step time, in the order taken and in all others."""
    row = planted_row(Replay(recording(step5=0.05), PROFILE), "step5", trials=10)

    (gate,) = row["gates"]
    assert row["outcome"] == "regression"
    assert row["orders"]["regression"]["hits"] == 10
    assert gate["named"] == ["step time"]
    assert abs(gate["loss"] - 0.0488) < 0.01
    assert row["pairs"] == 8 + 24


def test_too_few_couples_are_refused() -> None:
    """Forty couples don't suffice for both stages, and the message says how many would."""
    with pytest.raises(SpecError, match="got 40 valid couples with base, expected at least 44"):
        unchanged_row(Replay(recording(rounds=40), PROFILE), "twin", trials=1)


def test_invalid_couples_are_left_out_and_counted() -> None:
    """A couple whose twin stalled is no part of any comparison, and the row says how many."""
    held = recording()
    spoilt = [
        replace(r, start=replace(r.start, invalid=("stalled",)))
        if (r.kind, r.round) == ("twin", 5)
        else r
        for r in held.starts
    ]

    row = unchanged_row(Replay(replace(held, starts=tuple(spoilt)), PROFILE), "twin", trials=2)

    assert (row["couples"], row["left_out"]) == (47, 1)


def test_one_bad_start_is_no_regression() -> None:
    """A start 30 % slower in one slot of unchanged builds gives no REGRESSION in 30 comparisons."""
    row = bad_start_row(Replay(recording(bad=0.26), PROFILE), trials=30)

    assert row["regression"]["hits"] == 0
    assert row["mean_pairs"] > 8


def test_hiccup_of_the_client_is_invalid() -> None:
    """Pairs whose runs the client spoilt give INVALID_RUN with the reason, never REGRESSION."""
    held = recording(rounds=4, hiccup=0.5)
    spoilt = [
        replace(r, start=start(np.random.default_rng(1), invalid="the client was too slow"))
        if r.kind == "hiccup"
        else r
        for r in held.starts
    ]

    row = hiccup_row(Replay(replace(held, starts=tuple(spoilt)), PROFILE))

    assert row["outcome"] == "invalid_run"
    assert (row["invalid"], row["couples"]) == (4, 4)
    assert "the client was too slow" in row["reason"]


def test_peers_alarm_where_the_machine_drifts_and_find_what_is_planted() -> None:
    """On 5 % drift a stored threshold alarms without a change, and finds a planted 20 %."""
    held = recording(step10=0.2)

    rows = [
        row
        for kind in ("twin", "step10")
        for row in peer_rows(couples_of(held, kind), kind, trials=200, seed=1)
    ]

    rates = {
        row["kind"]: row["regression"]["rate"]
        for row in rows
        if row["metric"] == "output_tokens_per_s" and "mean" in row["method"]
    }
    assert 0.0 < rates["twin"] < 0.5
    assert rates["step10"] > 0.95


def test_equal_seeds_give_equal_results() -> None:
    """A replay is a function of the recording, the trials and the seed."""
    replay = Replay(recording(), PROFILE)

    once, again = (unchanged_row(replay, "twin", trials=10, seed=7) for _ in range(2))

    assert once == again


def test_page_holds_what_the_replay_found() -> None:
    """The section is added once, and rewritten in place the second time."""
    held = recording(step5=0.05, bad=0.26)
    result = json.loads(json.dumps(replayed(Replay(held, PROFILE), trials=5, power_trials=3)))

    page = placed("# Results\n", render(result))

    assert "| twin, any of 1 gates | 5 |" in page
    assert "step5: every step 5 % longer | REGRESSION" in page
    assert page.count(START) == page.count(END) == 1
    assert placed(page, render(result)) == page


@pytest.mark.parametrize("part", [realtables, plantedtables])
def test_committed_page_says_what_the_committed_numbers_say(part: ModuleType) -> None:
    """RESULTS.md holds the tables that its JSON files give."""
    folder = Path(part.__file__ or "").parent
    name = {"realtables": "real.json", "plantedtables": "planted.json"}[
        part.__name__.split(".")[-1]
    ]
    result = json.loads((folder / name).read_text(encoding="utf-8"))
    page = (folder / "RESULTS.md").read_text(encoding="utf-8")

    assert part.placed(page, part.render(result)) == page
