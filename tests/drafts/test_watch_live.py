"""A real vLLM with a draft head under `draftgate watch` and a real Prometheus.

Traffic does not change; the head does. Behind the same address stand the server with
the head as it is and one with noise on the head's weights, so that the switch looks
like a roll-out: another process, counters that begin anew, and worse drafts.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.datasets import load_prompts
from draftgate.engines.pool import EnginePool
from draftgate.engines.running import free_port
from draftgate.plugin.session import GateSession
from draftgate.specs import Arm
from draftgate.targets import resolve_target, weakened_copy
from tests.support.flow import Started, assert_clean
from tests.support.prometheus import firing, prometheus, require, short_rules, wait_for
from tests.support.traffic_live import Switch, busy

pytestmark = [pytest.mark.drift, pytest.mark.slow]

NOISE_RATIO = 0.3
STREAMS, MAX_TOKENS = 16, 32
PATIENCE_S = 400.0

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: draftgate-watch
    static_configs: [{{targets: ["127.0.0.1:{watch}"]}}]
  - job_name: vllm
    static_configs: [{{targets: ["{engine}"]}}]
"""


@pytest.fixture
def heads(draftgate_session: GateSession, tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the addresses of a server and of one with a weakened head, and the model's name."""
    arms = {arm.name: arm for arm in draftgate_session.profile.arms}
    if "eagle3" not in arms:
        pytest.skip("the profile has no arm eagle3 whose head could be weakened")
    arm = arms["eagle3"]
    speculative = arm.engine.speculative
    assert speculative is not None
    head = Path(resolve_target(str(speculative.model), log=draftgate_session.say))
    weak = weakened_copy(head, noise_ratio=NOISE_RATIO, seed=1, log=draftgate_session.say)
    worse = replace(speculative, model=str(weak))
    weakened = Arm("eagle3-weakened", replace(arm.engine, speculative=worse))
    (tmp_path / "logs").mkdir()
    with EnginePool(tmp_path / "logs", draftgate_session.say, max_alive=2) as pool:
        good, bad = pool.require([arm, weakened])
        yield good.base_url, bad.base_url, good.model


def of_the_watch(url: str) -> set[str]:
    """Return the names of the alerts of the watch that fire."""
    return {name for name in firing(url) if name.startswith("Draft")}


def test_weakened_head_fires_and_the_old_one_resolves(
    heads: tuple[str, str, str], tmp_path: Path
) -> None:
    """No alert before; a drop within minutes of the switch; none after the head is back."""
    require("prometheus")
    good, bad, model = heads
    (tmp_path / "rules.yml").write_text(short_rules("2s"), encoding="utf-8")
    prompts = load_prompts("mixed", 1)
    exported = free_port()
    words = ["--window", "50", "--learn", "20", "--interval", "1"]
    words += ["--listen", f"127.0.0.1:{exported}"]
    with closing(Switch(good)) as front:
        config = CONFIG.format(watch=exported, engine=front.url.removeprefix("http://"))
        with (
            busy(front.url, model, prompts, streams=STREAMS, max_tokens=MAX_TOKENS) as counts,
            prometheus(tmp_path, config) as url,
        ):
            argv = [sys.executable, "-m", "draftgate.cli", "watch", "--url", front.url, *words]
            watch = Started(argv, cwd=tmp_path)
            watch.read_until("reference length")
            assert of_the_watch(url) == set()

            front.to = bad
            wait_for("the drop", lambda: "DraftAcceptanceDropped" in of_the_watch(url), PATIENCE_S)
            front.to = good
            wait_for("its end", lambda: of_the_watch(url) == set(), PATIENCE_S)
            watch.send(signal.SIGINT)
            ended = watch.end()

    assert ended.output.count("the engine was restarted") >= 1, ended.output
    assert "ALARM drop" in ended.output
    assert "over: drop" in ended.output
    assert counts["ended"] > 100
    assert_clean(ended, tmp_path)
