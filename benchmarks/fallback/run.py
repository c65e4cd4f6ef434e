"""Serve the same traffic with and without the fallback, and keep what came of it.

    python -m benchmarks.fallback.run          # half an hour on two cores, which nothing else uses
    python -m benchmarks.fallback.run --usual 20 --hard 30 --after 30 --window-steps 20   # a try

Usual traffic, then prompts that ruin the head's acceptance, then usual traffic again; to the
arm without drafts, to the head alone, and to the head with the fallback, one server after
the other. Writes results.json beside this file; `python -m benchmarks.fallback.page` makes the
tables of RESULTS.md from it.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np

from benchmarks.fallback.traffic import HARD, USUAL, Asked, Phase, Traffic
from draftgate.codec import encode
from draftgate.environment import describe

HERE = Path(__file__).parent
PROFILE = HERE / "cpu-fallback.toml"

SERVERS = {
    "none": ["--arm", "none"],
    "eagle3": ["--arm", "eagle3"],
    "fallback": ["--arm", "eagle3", "--fallback", "none"],
}
"""Options of each server, by what the tables call it."""


def main() -> None:
    """Run every server under the traffic, in turn."""
    args = _options()
    phases = (Phase(USUAL, args.usual), Phase(HARD, args.hard), Phase(USUAL, args.after))
    rule = ["--window-steps", str(args.window_steps), "--dwell", str(args.dwell)]
    rule += ["--probe-share", str(args.probe_share)]
    if args.break_even is not None:
        rule += ["--break-even", str(args.break_even)]
    rounds = []
    for number in range(args.rounds):
        for name, words in SERVERS.items():
            extra = rule if name == "fallback" else []
            print(f"round {number + 1}, {name}", flush=True)
            rounds.append({"round": number, "server": name, **_one([*words, *extra], phases, args)})
    document = {
        "settings": {
            "phases": [asdict(phase) for phase in phases],
            "streams": args.streams,
            "rounds": args.rounds,
            "window_steps": args.window_steps,
            "dwell_s": args.dwell,
            "probe_share": args.probe_share,
        },
        "environment": {k: v for k, v in encode(describe("vllm")).items() if k != "host"},
        "runs": rounds,
        "texts": _compared(rounds),
    }
    for run in rounds:
        del run["answers"]
    args.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _one(words: list[str], phases: tuple[Phase, ...], args: argparse.Namespace) -> dict[str, Any]:
    """Return what one server gave."""
    with _serving([*words, "--interval", str(args.interval)], args.profile) as served:
        url, model, lines = served
        traffic = Traffic(url, phases, args.streams, model)
        traffic.run()
        page = _get(f"{url}/metrics")
    lines_kept = [line for line in lines if "[fallback]" in line or "ENGINE GONE" in line]
    return {
        "phases": [_summary(traffic.asked, at, phase) for at, phase in enumerate(phases)],
        "lines": lines_kept,
        "metrics": [
            line
            for line in page.splitlines()
            if re.match(r"draftgate_serve_(switches|probes|resent|engine_restarts)_total", line)
        ],
        "answers": traffic.asked,
    }


def _summary(asked: list[Asked], at: int, phase: Phase) -> dict[str, Any]:
    """Return counts, tokens/s and latency of the requests that began in a phase.

    Tokens per second are those of whole answers over the time from the phase's first request
    to its last answer's end.
    """
    mine = [one for one in asked if one.phase == at]
    whole = [one for one in mine if one.whole]
    span_s = max(one.began_s + one.took_s for one in mine) - min(one.began_s for one in mine)
    p50, p99 = np.percentile([one.took_s for one in whole], [50, 99])
    return {
        "kind": phase.kind,
        "requests": len(mine),
        "failed": len(mine) - len(whole),
        "tokens_per_s": sum(one.tokens for one in whole) / span_s,
        "latency_p50_s": float(p50),
        "latency_p99_s": float(p99),
        "seconds": span_s,
    }


def _compared(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many answers have the text that the arm without drafts gave."""
    reference: dict[tuple[str, int], str] = {}
    for run in rounds:
        if run["server"] == "none":
            for one in run["answers"]:
                if one.whole:
                    reference.setdefault((one.kind, one.prompt), one.text)
    found: dict[str, Any] = {}
    for run in rounds:
        counts = found.setdefault(run["server"], {"compared": 0, "other": 0})
        for one in run["answers"]:
            if one.whole and (one.kind, one.prompt) in reference:
                counts["compared"] += 1
                counts["other"] += one.text != reference[one.kind, one.prompt]
    return found


@contextmanager
def _serving(words: list[str], profile: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield address, model and lines of a server; the lines are whole afterwards."""
    argv = [sys.executable, "-m", "draftgate.cli", "serve", "--profile", str(profile), *words]
    argv += ["--listen", "127.0.0.1:0", "--metrics"]
    lines: list[str] = []
    listening, address = (
        threading.Event(),
        re.compile(r"listening on (http://\S+)/v1, model (\S+),"),
    )

    def read(stream: IO[str]) -> None:
        for line in stream:
            lines.append(line.rstrip())
            if address.search(line) is not None:
                listening.set()
        listening.set()

    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        reader = threading.Thread(target=read, args=(process.stdout,))
        reader.start()
        try:
            listening.wait()
            found = address.search("\n".join(lines))
            if found is None:
                raise SystemExit(f"the server ended with {process.wait()} before it listened")
            yield found[1], found[2], lines
        finally:
            process.send_signal(signal.SIGTERM)
            reader.join()


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own address
        return str(answer.read().decode())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.fallback.run", description=__doc__)
    parser.add_argument("--usual", type=float, default=90.0, help="seconds of usual traffic")
    parser.add_argument("--hard", type=float, default=180.0, help="of hard traffic after it")
    parser.add_argument("--after", type=float, default=210.0, help="of usual traffic in the end")
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--window-steps", type=int, default=100)
    parser.add_argument("--dwell", type=float, default=20.0)
    parser.add_argument("--probe-share", type=float, default=0.2)
    parser.add_argument("--break-even", type=Path, help="baseline; that of this hardware")
    parser.add_argument("--profile", type=Path, default=PROFILE)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between lines")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
