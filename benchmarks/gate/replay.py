"""The gate on recorded starts of the real engine: false alarms, verdicts, causes, power.

    python -m benchmarks.gate.replay        # reads starts.parquet, writes real.json

Unchanged builds: the couples of two equal starts are re-randomised into many
comparisons (order of couples, side of each start, fresh couples for stage two),
and `draftgate.compare.judge` gives each a verdict over all gates. All of them are
drawn from the same couples, so their rate says how the gate treats this engine's
noise; its interval is that of the draws and knows nothing of other days.

Planted faults: one verdict with all couples in the order in which they were
taken, then the share of random orders that find it. `one bad start` puts a start
30 % slower into one slot of an unchanged comparison; `hiccup` must be INVALID.

Peers get starts as they would in use: the base's first, then the candidate's.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.gate.cells import Row, rate
from benchmarks.gate.couples import Couple, as_pair, couples_of, header_of, in_order, shuffled
from benchmarks.gate.faults import KINDS
from benchmarks.gate.realpeers import peer_rows
from benchmarks.gate.simulate import as_text
from benchmarks.gate.starts import Recording, read
from draftgate.compare.judge import judge
from draftgate.compare.records import (
    ComparisonHeader,
    ComparisonResult,
    GateResult,
    Pair,
    Stage,
)
from draftgate.errors import DraftgateError, SpecError
from draftgate.specfile import load_profile
from draftgate.specs import Profile
from draftgate.verdict import Outcome

HERE = Path(__file__).parent
SEED = 20_004
TRIALS = 20_000
POWER_TRIALS = 400

Decide = Callable[[ComparisonHeader, Sequence[Pair]], ComparisonResult]


@dataclass(frozen=True, slots=True)
class Replay:
    """What every part of a replay shares.

    Attributes:
        recording: The starts.
        profile: Its gates and its plan.
        decide: From a header and pairs to verdicts: the product's, or a test's own.
    """

    recording: Recording
    profile: Profile
    decide: Decide = judge

    @property
    def sizes(self) -> tuple[int, int]:
        """Pairs of stage one and of stage two."""
        return self.profile.compare.looks[-1], self.profile.compare.confirm_pairs

    def header(self, kind: str) -> ComparisonHeader:
        """Return the header of a comparison of a kind with its base."""
        return header_of(self.recording, self.profile, KINDS[kind].arm)

    def usable(self, kind: str) -> tuple[Couple, ...]:
        """Return the valid couples of a kind in the order taken."""
        return tuple(couple for couple in couples_of(self.recording, kind) if couple.valid)


def unchanged_row(replay: Replay, kind: str, *, trials: int, seed: int = SEED) -> Row:
    """Return how often unchanged builds alarm, over random comparisons of a kind's couples.

    Raises:
        SpecError: If there are too few valid couples for both stages.
    """
    taken = couples_of(replay.recording, kind)
    couples = enough(replay, kind)
    rng = np.random.default_rng([seed, *kind.encode()])
    header = replay.header(kind)
    tally = Tally()
    for _ in range(trials):
        tally.add(replay.decide(header, shuffled(rng, couples, replay.sizes)), header)
    return {"kind": kind, "couples": len(couples), "left_out": len(taken) - len(couples)} | (
        tally.row(trials)
    )


def enough(replay: Replay, kind: str) -> tuple[Couple, ...]:
    """Return the valid couples of a kind.

    Raises:
        SpecError: If both stages need more.
    """
    couples = replay.usable(kind)
    if len(couples) < sum(replay.sizes):
        raise SpecError(
            f"{kind}: got {len(couples)} valid couples with {KINDS[kind].against}, expected at "
            f"least {sum(replay.sizes)}: record more rounds of both."
        )
    return couples


class Tally:
    """Counts verdicts over comparisons."""

    def __init__(self) -> None:
        self._any: Counter[str] = Counter()
        self._gates: dict[str, Counter[str]] = {}
        self._pairs = 0
        self._suspects = 0

    def add(self, result: ComparisonResult, header: ComparisonHeader) -> None:
        """Count one comparison."""
        self._any[result.outcome.value] += 1
        self._suspects += any(gate.confirm for gate in result.gates)
        self._pairs += pairs_taken(result, header)
        for gate in result.gates:
            counts = self._gates.setdefault(gate_name(gate), Counter())
            counts[gate.outcome.value] += 1
            counts["suspect"] += gate.confirm is not None

    def row(self, trials: int) -> Row:
        """Return all rates with their intervals."""
        return {
            "regression": rate(self._any[Outcome.REGRESSION.value], trials),
            "suspect": rate(self._suspects, trials),
            **{
                outcome.value: self._any[outcome.value] / trials
                for outcome in (Outcome.PASS, Outcome.IMPROVEMENT, Outcome.INCONCLUSIVE)
            },
            "mean_pairs": self._pairs / trials,
            "gates": {
                name: {
                    "regression": rate(counts[Outcome.REGRESSION.value], trials),
                    "suspect": counts["suspect"] / trials,
                    "pass": (counts["pass"] + counts["improvement"]) / trials,
                    "inconclusive": counts["inconclusive"] / trials,
                }
                for name, counts in self._gates.items()
            },
        }


def pairs_taken(result: ComparisonResult, header: ComparisonHeader) -> int:
    """Return how many pairs the comparison would have taken: until all gates were decided."""
    searched = max((gate.search.pairs for gate in result.gates if gate.search), default=0)
    fresh = header.plan.confirm_pairs if any(gate.confirm for gate in result.gates) else 0
    return searched + fresh


def gate_name(found: GateResult) -> str:
    """Return how tables name a gate."""
    return f"{found.gate.metric} x{found.gate.concurrency}"


def planted_row(replay: Replay, kind: str, *, trials: int, seed: int = SEED) -> Row:
    """Return the verdict on a planted fault in the order taken, and its power over orders."""
    couples = enough(replay, kind)
    header = replay.header(kind)
    result = replay.decide(header, in_order(couples, replay.sizes))
    rng = np.random.default_rng([seed, 1, *kind.encode()])
    tally = Tally()
    for _ in range(trials):
        order = rng.permutation(len(couples))
        pairs = in_order([couples[place] for place in order], replay.sizes)
        tally.add(replay.decide(header, pairs), header)
    return {
        "kind": kind,
        "told": KINDS[kind].told,
        "couples": len(couples),
        "outcome": result.outcome.value,
        "pairs": pairs_taken(result, header),
        "gates": [verdict_row(found) for found in result.gates],
        "orders": tally.row(trials),
    }


def verdict_row(found: GateResult) -> Row:
    """Return one verdict with its numbers and its cause."""
    numbers = found.confirm or found.search
    return {
        "gate": gate_name(found),
        "outcome": found.outcome.value,
        "loss": None if numbers is None else numbers.loss,
        "low": None if numbers is None else numbers.low,
        "high": None if numbers is None else numbers.high,
        "named": [] if found.cause is None else list(found.cause.named),
        "cause": "" if found.cause is None else found.cause.text,
    }


def bad_start_row(replay: Replay, *, trials: int, seed: int = SEED) -> Row:
    """Return what one bad start in the first eight pairs of unchanged builds does."""
    couples, bad = enough(replay, "twin"), replay.usable("bad")
    if not bad:
        raise SpecError("bad: got no valid couple, expected one or more. Record rounds of it.")
    rng = np.random.default_rng([seed, 2])
    header = replay.header("twin")
    tally = Tally()
    for _ in range(trials):
        pairs = shuffled(rng, couples, replay.sizes)
        slot = int(rng.integers(replay.profile.compare.looks[0]))
        pairs[slot] = as_pair(bad[rng.integers(len(bad))], Stage.SEARCH, slot)
        tally.add(replay.decide(header, pairs), header)
    return {"kind": "bad", "told": KINDS["bad"].told, "couples": len(bad), **tally.row(trials)}


def hiccup_row(replay: Replay) -> Row:
    """Return the verdict where the client stands still in every run of the candidate.

    A pair that can't be used is taken again, so each couple is a further try at one slot.
    """
    couples = couples_of(replay.recording, "hiccup")
    pairs = [as_pair(c, Stage.SEARCH, 0, attempt=number) for number, c in enumerate(couples)]
    result = replay.decide(replay.header("hiccup"), pairs)
    reasons = [pair.invalid[0].splitlines()[0] for pair in pairs if pair.invalid]
    return {
        "kind": "hiccup",
        "told": KINDS["hiccup"].told,
        "couples": len(couples),
        "invalid": len(reasons),
        "outcome": result.outcome.value,
        "reason": reasons[0] if reasons else "",
    }


def replayed(replay: Replay, *, trials: int, power_trials: int, seed: int = SEED) -> Row:
    """Return everything that the recorded kinds allow."""
    kinds = {recorded.kind for recorded in replay.recording.starts}
    twins = [kind for kind in ("twin", "draft_twin") if kind in kinds]
    special = {"twin", "draft_twin", "bad", "hiccup"}
    planted = [k for k in KINDS if k in kinds - special and KINDS[k].against != k]
    first = next(iter(replay.recording.starts)).start
    return {
        "seed": seed,
        "hardware": replay.recording.setting.hardware,
        "profile": replay.recording.setting.profile,
        "engine": first.engine,
        "quick_starts": replay.recording.setting.quick,
        "starts": len(replay.recording.starts),
        "unchanged": [unchanged_row(replay, kind, trials=trials, seed=seed) for kind in twins],
        "planted": [planted_row(replay, kind, trials=power_trials, seed=seed) for kind in planted],
        "bad_start": (
            [bad_start_row(replay, trials=power_trials, seed=seed)] if "bad" in kinds else []
        ),
        "hiccup": [hiccup_row(replay)] if "hiccup" in kinds else [],
        "peers": [
            row
            for kind in (*twins, *planted)
            for row in peer_rows(couples_of(replay.recording, kind), kind, trials=trials, seed=seed)
        ],
    }


def main() -> int:
    """Judge the recording, write real.json and the section of RESULTS.md."""
    from benchmarks.gate.realtables import rewrite  # noqa: PLC0415 - reads this module's rows

    parser = argparse.ArgumentParser(description="The gate on recorded starts.")
    parser.add_argument("--starts", type=Path, default=HERE / "starts.parquet")
    parser.add_argument("--trials", type=int, default=TRIALS, help="unchanged comparisons a kind")
    parser.add_argument("--power-trials", type=int, default=POWER_TRIALS, help="orders a fault")
    parser.add_argument("--profile", default="cpu-smollm2")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    try:
        replay = Replay(read(args.starts), load_profile(args.profile))
        result = replayed(replay, trials=args.trials, power_trials=args.power_trials)
    except DraftgateError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    (args.out / "real.json").write_text(as_text(json.loads(json.dumps(result))), encoding="utf-8")
    if args.out == HERE:
        rewrite(HERE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
