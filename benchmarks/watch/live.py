"""Watch an unchanged real server and write down what the monitor said.

    python -m benchmarks.watch.live --minutes 30

The default profile's server with its EAGLE-3 head answers the
built-in prompts of all kinds in turn, greedily, 16 streams. The monitor learns from the
first windows and then watches for so many minutes. Written to `live.json`.
"""

import argparse
import json
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from draftgate.clock import SYSTEM_CLOCK
from draftgate.datasets import load_prompts
from draftgate.engines.pool import EnginePool
from draftgate.environment import describe
from draftgate.errors import DraftgateError, EngineError
from draftgate.files import write_text
from draftgate.specfile import load_profile
from draftgate.watch.monitor import Event, Monitor, Plan
from draftgate.watch.run import WatchHooks, WatchSpec, run_watch
from draftgate.watch.windows import WindowSize
from tests.support.traffic_live import busy

RESULTS = Path(__file__).parent / "live.json"
STREAMS, MAX_TOKENS = 16, 32


@dataclass(slots=True)
class Log:
    """What happened while it was watched.

    Attributes:
        minutes: From the moment the level was learned.
        lengths: Acceptance length of each window after it.
        largest: Largest evidence of each detector, as a share of what alarms.
        alarms: Alarms that were raised.
        failures: Readings that failed.
        level: Mean and spread of a window's log length, as learned.
        stop: Set when the time is over.
    """

    minutes: float
    stop: threading.Event = field(default_factory=threading.Event)
    lengths: list[float] = field(default_factory=list)
    largest: dict[str, float] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    level: dict[str, float] = field(default_factory=dict)

    def start(self, _monitor: Monitor, _port: int) -> None:
        """Nothing is known yet."""

    def event(self, event: Event) -> None:
        """Note a window, a level, an alarm."""
        judged = event.after.judged
        self.alarms += [alarm.value for alarm in event.raised]
        if event.learned and judged.level is not None:
            self.level = {"log_mean": judged.level.mean, "log_sd": judged.level.sd}
            threading.Timer(60.0 * self.minutes, self.stop.set).start()
        elif event.window and judged.level is not None and judged.last is not None:
            last = judged.last
            self.lengths.append(round(1.0 + last.accepted / last.drafts, 4))
            for one in judged.evidence:
                name = one.shift.value
                self.largest[name] = max(self.largest.get(name, 0.0), round(one.share, 4))
            print(f"window {len(self.lengths)}: {self.lengths[-1]}, {self.largest}", flush=True)

    def reading(self, error: EngineError | None) -> None:
        """Note a failure."""
        self.failures += [] if error is None else [str(error)]


def main() -> int:
    """Serve, watch, write; return 1 if there was an alarm."""
    parser = argparse.ArgumentParser(description="Watch an unchanged real server.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--learn", type=int, default=50, help="windows")
    parser.add_argument("--window", type=int, default=100, help="requests")
    parser.add_argument("--arm", default="eagle3")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    profile = load_profile("cpu-smollm2")
    log = Log(args.minutes)
    hooks = WatchHooks(log.start, log.event, log.reading)
    plan = Plan(size=WindowSize(args.window, None), learn_windows=args.learn)
    with TemporaryDirectory() as logs, EnginePool(Path(logs), print, max_alive=1) as pool:
        (engine,) = pool.require([profile.arm(args.arm)])
        version = engine.version()
        spec = WatchSpec(f"{engine.base_url}/metrics", plan, interval_s=2.0)
        prompts = load_prompts("mixed", profile.workload.seed)
        with busy(
            engine.base_url, engine.model, prompts, streams=STREAMS, max_tokens=MAX_TOKENS
        ) as counts:
            run_watch(spec, hooks, SYSTEM_CLOCK, log.stop)
    result = {
        "engine": version,
        "hardware": describe(version).hardware,
        "arm": args.arm,
        "minutes": args.minutes,
        "window_requests": args.window,
        "learn_windows": args.learn,
        "streams": STREAMS,
        "level": log.level,
        "requests": counts,
        "lengths": log.lengths,
        "largest_evidence": log.largest,
        "alarms": log.alarms,
        "failed_readings": log.failures,
    }
    write_text(args.out, json.dumps(result, indent=1) + "\n")
    print(f"{len(log.lengths)} windows, alarms: {log.alarms or 'none'}")
    return 1 if log.alarms else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DraftgateError as error:
        sys.exit(f"live: {error}")
