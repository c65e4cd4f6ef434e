"""Error rates and power of the paired gate and of other tools' rules, by simulation.

    .venv/bin/python -m benchmarks.gate.simulate            # all, some minutes on one core
    .venv/bin/python -m benchmarks.gate.simulate --trials 4000 --out /tmp   # a quick look

Writes simulation.json; seeds are fixed, equal settings give equal numbers. Otava runs
where `apache-otava` can be imported (it pins numpy 2.2, so give it by PYTHONPATH).

Assumptions, all log units (`scenarios.py`), a start being one server start:

- quiet: 0.5 % between starts. typical: 2 %. noisy: 4 %.
- drift: 2 %, and the machine's level walks by 1 % per start.
- steps: 2 %, and with a chance of 5 % per start the level jumps for good, by 10 % (sd).
- host x build: 2 %, and the second slot (port, cores, place in the pair) is slower by an
  amount drawn once per session with an sd of 3 %. The gate gives slots at random in
  balanced blocks of four pairs; the peers keep a build in its slot.
- Not one of the six, to state the limit: a bias with an sd of 1 % of one build on one host
  that nothing randomises, with stage two on another host or on the same one.
- Requests of a start: 200, or 1,000; log speed varies by 5 %, log latency by 25 % (normal).
  tokens/s is a mean over requests, p95 and p99 are plain order statistics. Requests share
  nothing but their start.

The gate: looks at 8, 12, 16, 20 pairs, relevance limit 5 % (10 % where named), the order's
effect taken out except where named, stage two of 24 fresh pairs in a new session. Margins
1 % (tokens/s) and 2 % (tails). `regression` is for one gate alone, p < .05 in stage two;
`regression_in_family` at the level of the first of 48 gates in `stats.family`.

Peers, 10 starts a side, all of the base first; pytest-benchmark against a stored baseline
(100 starts ago, 5 starts a side), Otava with 30 base starts before the 10 new.

Beside the cells: 48 gates at once, what was tried to need fewer pairs in "noisy", and the
requests that `stats.power` asks for with the power that they give (`studies.py`). `tables`
turns the numbers into RESULTS.md.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy

from benchmarks.gate.cells import GATES, SEED, Cell, Row
from benchmarks.gate.rates import gate_rows, interaction_row, otava_rows, peer_rows, sign_row
from benchmarks.gate.scenarios import METRICS, SCENARIOS, TOKENS
from benchmarks.gate.studies import family_rows, level_rows, power_rows, remedy_rows
from draftgate.stats.family import judge_family


def cells(trials: int) -> Iterator[Cell]:
    """Yield all cells: unchanged builds, then a loss with a tenth of the trials."""
    for loss_of in ((0.0, 0.0), (0.05, 0.10)):
        for scenario in SCENARIOS:
            for metric in METRICS:
                loss = loss_of[metric is not TOKENS]
                yield Cell(scenario, metric, loss, trials // (10 if loss else 1))


def as_text(result: Row) -> str:
    """Return JSON with one row per line."""
    parts = []
    for key, value in result.items():
        rows = ",\n  ".join(map(json.dumps, value)) if isinstance(value, list) else ""
        text = f"[\n  {rows}\n ]" if rows else json.dumps(value)
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Run everything and write simulation.json."""
    parser = argparse.ArgumentParser(description="Error rates and power of the paired gate.")
    parser.add_argument("--trials", type=int, default=200_000, help="unchanged comparisons a cell")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    gate: list[Row] = []
    peer: list[Row] = []
    for cell in cells(args.trials):
        sys.stderr.write(f"{cell.place()}\n")
        gate += [*gate_rows(cell), sign_row(cell)]
        peer += peer_rows(Cell(cell.scenario, cell.metric, cell.loss, cell.trials // 4))
        few = Cell(cell.scenario, cell.metric, cell.loss, max(100, args.trials // 100))
        peer += otava_rows(few)
    gate += [interaction_row(args.trials, other_host=other) for other in (False, True)]
    result = {
        "seed": SEED,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "level_of_first_in_family": judge_family([0.0], gates=GATES).levels[0],
        "stage_one_level": list(level_rows(10 * args.trials)),
        "gate": gate,
        "peers": peer,
        "family": list(family_rows(args.trials // 4)),
        "remedies": list(remedy_rows(args.trials // 2)),
        "power": list(power_rows(args.trials // 10)),
    }
    (args.out / "simulation.json").write_text(as_text(result), encoding="utf-8")


if __name__ == "__main__":
    main()
