"""Measure a head on its target and on the target's next version, before and after re-training.

    python -m benchmarks.stale.measure --retrained HEAD

Four servers of the default profile, one after the other: the head that comes with the
project and the one that was trained on for some minutes, each on both versions. Every
prompt of the built-in kinds once, greedy, 64 tokens. `results.json` holds what was
found and `made.json` what the making took; `python -m benchmarks.stale.page` writes
the tables of RESULTS.md.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.stale.merge import TARGET, make_next
from draftgate.drafts.check import by_kind, judged, read_draft, served
from draftgate.drift.judge import tokens_per_step
from draftgate.engines.pool import EnginePool
from draftgate.environment import describe
from draftgate.errors import DraftgateError, MeasurementError
from draftgate.files import write_text
from draftgate.records import TrafficAcceptance
from draftgate.shipped import shipped_heads
from draftgate.specfile import load_profile

RESULTS = Path(__file__).parent / "results.json"
HEAD = "smollm2-eagle3"
TOKENS = 3
PROMPTS = 72


def row(head: str, target: str, found: TrafficAcceptance) -> dict[str, Any]:
    """Return one kind on one server as JSON values.

    Raises:
        MeasurementError: If the measurement cannot be used.
    """
    if found.invalid or found.counters is None:
        raise MeasurementError(f"{head} on {target}, {found.kind}: {found.invalid}")
    mean = tokens_per_step(found)
    if mean is None:
        raise MeasurementError(f"{head} on {target}, {found.kind}: too few prompts")
    counts = found.counters
    return {
        "head": head,
        "target": target,
        "kind": found.kind,
        "tokens_per_step": round(mean.estimate, 4),
        "low": round(mean.low, 4),
        "high": round(mean.high, 4),
        "accepted_by_position": [
            round(accepted / counts.num_drafts, 4)
            for accepted in counts.num_accepted_tokens_per_pos
        ],
        "prompts": len(found.tokens_per_step),
    }


def sha256(folder: Path) -> str:
    """Return the digest of a head's weights."""
    with (folder / "model.safetensors").open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def main() -> int:
    """Measure all four and write the results; return 0."""
    parser = argparse.ArgumentParser(description="Measure a stale head and its successor.")
    parser.add_argument("--retrained", type=Path, required=True, help="folder of the head")
    parser.add_argument("--prompts", type=int, default=PROMPTS, help="most of each kind")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    profile = load_profile("cpu-smollm2")
    heads = {"old": shipped_heads()[HEAD], "re-trained": args.retrained}
    rows: list[dict[str, Any]] = []
    held: dict[tuple[str, str], Sequence[TrafficAcceptance]] = {}
    with TemporaryDirectory() as scratch, EnginePool(Path(scratch), print, max_alive=1) as pool:
        targets = {"old": TARGET, "next": str(make_next(Path(scratch) / "next"))}
        for head, folder in heads.items():
            draft = read_draft(folder, tokens=TOKENS)
            for target, model in targets.items():
                found = tuple(by_kind(draft, model, profile, args.prompts, pool, print))
                held[head, target] = found
                rows.extend(row(head, target, one) for one in found)
                (engine,) = pool.require([served(draft, model, profile)])
                version = engine.version()
    verdicts = judged(held["old", "old"], held["old", "next"])
    result = {
        "engine": version,
        "hardware": describe(version).hardware,
        "num_speculative_tokens": TOKENS,
        "heads": {name: sha256(folder) for name, folder in heads.items()},
        "rows": rows,
        "verdicts": [
            {"place": one.arm, "outcome": one.outcome.name, "reason": one.reason}
            for one in verdicts
        ],
    }
    write_text(args.out, json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DraftgateError as error:
        sys.exit(f"stale: {error}")
