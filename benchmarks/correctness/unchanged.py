"""How often real servers that are right alarm: A/A runs on the CPU build of vLLM.

    .venv/bin/python -m benchmarks.correctness.unchanged

writes unchanged.json after each dtype, and leaves out one that is there. Five arms in
bfloat16 and in float32, one server at a time; each takes three runs of seven settings,
all of them mixed in its batches. Sampled text is held against the target's law, greedy
text against its logits and the flips of the arm without speculation. The target is read
in float32 in this process.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.correctness.machine import machine
from draftgate.checks.collect import Asked, Server, seed_of
from draftgate.checks.conditions import condition
from draftgate.checks.regret import Regrets, judge_greedy, regrets
from draftgate.checks.spelling import LocalSpelling
from draftgate.clock import SYSTEM_CLOCK
from draftgate.datasets import load_prompts
from draftgate.engines.pool import EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.files import write_text
from draftgate.laws.answer import Answer
from draftgate.laws.forward import ForwardReference, special_token_ids
from draftgate.laws.parameters import LawParameters
from draftgate.load.requests import Endpoint
from draftgate.specfile import load_profile
from draftgate.specs import Arm, Profile, SpeculativeConfig
from draftgate.stats.directions import Direction, directions
from draftgate.stats.eprocess import evidence
from draftgate.stats.scores import Scores
from draftgate.targets import resolve_target, weakened_copy

FILE = Path(__file__).parent / "unchanged.json"

GREEDY = "greedy"
SETTINGS = (GREEDY, "T=0.3", "T=0.8", "T=1", "T=1.5", "T=0.8,top_p=0.95", "T=1,top_k=40")
DTYPES = ("bfloat16", "float32")
RUNS = 3
"""Runs of each setting on each server: 5 x 2 x 7 x 3 = 210."""

ANSWERS = 4
TOKENS = 65
"""A run is 4 answers of 65 tokens; the first of each is not speculated: 256 are looked at."""

STREAMS = 32
ALPHA = 1e-4
WEAK_NOISE = 0.1
"""Noise on the weak draft's weights, as a share of their spread: the target rejects about
a third of what it proposes."""

K = 4
SEED = 29

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """What all servers share."""

    folder: Path
    prompts: tuple[tuple[str, tuple[int, ...]], ...]
    pool: EnginePool


def arms(profile: Profile, folder: Path) -> list[tuple[Arm, Path | None]]:
    """Return each arm with the draft model that its reference knows."""
    weak = weakened_copy(folder, noise_ratio=WEAK_NOISE, seed=1, log=print)

    own = profile.arm("draft_model")

    def weakly(name: str, how: str) -> Arm:
        drafts = SpeculativeConfig(
            method="draft_model",
            num_speculative_tokens=K,
            model=str(weak),
            options=(("draft_sample_method", how),),
        )
        return Arm(name, replace(own.engine, speculative=drafts))

    return [
        (profile.arm("none"), None),
        (profile.arm("ngram"), None),
        (own, None),
        (weakly("weak_greedy", "greedy"), weak),
        (weakly("weak_sampled", "probabilistic"), weak),
    ]


def parameters(setting: str) -> LawParameters:
    """Return what a setting asks for."""
    if setting == GREEDY:
        return LawParameters(temperature=0, ignore_eos=True)
    return condition(setting).parameters


def requests(bench: Bench) -> list[Asked]:
    """Return the requests of all runs of one server, settings in turn; `condition` is the cell."""
    wanted = []
    cells = [(setting, run) for run in range(RUNS) for setting in SETTINGS]
    for turn in range(ANSWERS):
        for cell, (setting, _) in enumerate(cells):
            number = len(wanted)
            prompt_id, ids = bench.prompts[(turn + cell // len(SETTINGS)) % len(bench.prompts)]
            law = parameters(setting)
            seed = None if law.greedy else seed_of(SEED, number)
            wanted.append(
                Asked(
                    request=number,
                    condition=cell,
                    prompt_id=prompt_id,
                    prompt=ids,
                    parameters=law,
                    max_tokens=TOKENS,
                    seed=seed,
                )
            )
    return wanted


def server_rows(
    bench: Bench, arm: Arm, draft: Path | None, same: Regrets | None
) -> tuple[list[Row], Regrets]:
    """Return the rows of one server's runs, and the greedy flips of all of them.

    Args:
        bench: What all share.
        arm: What to start.
        draft: Folder of the draft model that the reference knows; None for none.
        same: Greedy flips without speculation in this dtype; None takes this server's own.
    """
    dtype, drafts = arm.engine.dtype, arm.engine.speculative
    k = None if drafts is None else drafts.num_speculative_tokens
    (engine,) = bench.pool.require([arm])
    begin_ns = SYSTEM_CLOCK.now_ns()
    by_cell = _answers(engine, requests(bench))
    served_s = (SYSTEM_CLOCK.now_ns() - begin_ns) / 1e9
    bench.pool.discard(arm)
    reference = ForwardReference(
        bench.folder,
        draft=draft,
        drafts_sampled=arm.name == "weak_sampled",
        special_ids=special_token_ids(bench.folder),
        numerics=dtype,
    )
    greedy = [cell for cell in by_cell if SETTINGS[cell % len(SETTINGS)] == GREEDY]
    flips = {cell: flips_of(reference, by_cell[cell]) for cell in greedy}
    all_flips = sum(flips.values(), Regrets(0))
    family = directions(reference.vocabulary, len(reference.special_ids))
    rows = []
    for cell, answers in sorted(by_cell.items()):
        run, place = divmod(cell, len(SETTINGS))
        row: Row = {"dtype": dtype, "arm": arm.name, "setting": SETTINGS[place], "run": run}
        if cell in flips:
            rows.append(row | _greedy(flips[cell], same or all_flips, dtype))
        else:
            rows.append(row | _sampled(reference.score(answers, k), family))
    print(f"{arm.name} {dtype}: {served_s:.0f} s of serving, {_told(rows)}", flush=True)
    return rows, all_flips


def _answers(engine: RunningEngine, wanted: Sequence[Asked]) -> dict[int, list[Answer]]:
    endpoint = Endpoint(engine.base_url, engine.model)
    found = Server(endpoint, "vllm", streams=STREAMS).ask(wanted)
    if found.failures:
        raise SystemExit(f"{engine.arm.name}: {len(found.failures)} failed: {found.failures[0]}")
    by_cell: dict[int, list[Answer]] = {}
    for answer in found.answers:
        by_cell.setdefault(wanted[answer.request].condition, []).append(answer)
    return by_cell


def _sampled(scores: Scores, family: Sequence[Direction]) -> Row:
    found = evidence(scores, family)
    return {
        "tokens": len(found.path),
        "log_e": round(float(found.path.max()), 3),
        "alarm_at": found.alarm_at(ALPHA),
        "direction": family[found.best[0]].label,
    }


def flips_of(reference: ForwardReference, answers: Sequence[Answer]) -> Regrets:
    """Return the flips of greedy answers."""
    return sum((regrets(a, reference.logits(a)) for a in answers), Regrets(0))


def _greedy(found: Regrets, same: Regrets, dtype: str) -> Row:
    result = judge_greedy(found, same, dtype)
    return {
        "tokens": found.tokens,
        "flips": len(found.flips),
        "largest_regret": round(found.largest, 4),
        "faults": [*result.faults, *result.doubts],
        "alarm_at": None if result.passed else found.tokens,
    }


def _told(rows: Sequence[Row]) -> str:
    alarms = sum(row["alarm_at"] is not None for row in rows)
    largest = max(row.get("log_e", 0.0) for row in rows)
    return f"{len(rows)} runs, {alarms} alarms, largest log e-value {largest:.1f}"


def main() -> None:
    """Take what the file lacks."""
    parser = argparse.ArgumentParser(description="A/A runs on real servers.")
    parser.add_argument("--profile", default="cpu-smollm2")
    parser.add_argument("--out", type=Path, default=FILE)
    args = parser.parse_args()
    rows: list[Row] = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
    profile = load_profile(args.profile)
    folder = Path(resolve_target(profile.arms[0].engine.target, log=print))
    spelling = LocalSpelling(str(folder))
    prompts = tuple((p.prompt_id, spelling.ids(p)) for p in load_prompts("mixed", SEED))
    with tempfile.TemporaryDirectory() as logs, EnginePool(Path(logs), print, max_alive=1) as pool:
        bench = Bench(folder, prompts, pool)
        started = arms(profile, folder)
        for dtype in DTYPES:
            if any(row["dtype"] == dtype for row in rows):
                continue
            same: Regrets | None = None
            for arm, draft in started:
                cast = replace(arm, engine=replace(arm.engine, dtype=dtype))
                found, flips = server_rows(bench, cast, draft, same)
                same = same or flips  # the first arm is the one without speculation
                rows += found
            document = {"machine": machine(), "alpha": ALPHA, "seed": SEED, "rows": rows}
            write_text(args.out, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
