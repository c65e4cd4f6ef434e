"""The scripted server of `draftgate.engines.fake_server`, driven like an engine.

Its step time, tokens per step and faults are set exactly, so the suite itself
can be tested against known truth. It stands in for no engine in any result.
"""

import json

from draftgate.engines.adapter import ENGINES, Command, Log, interpreter, listen_address
from draftgate.engines.counters import CounterSnapshot
from draftgate.engines.vllm import Vllm
from draftgate.specs import EngineSpec

SCRIPT_VARIABLE = "DRAFTGATE_FAKE_CONFIG"
"""Key under `[engine.env]` that holds the script as a JSON object."""


class Fake:
    """The scripted server; metrics by vLLM's names."""

    health_path = "/health"
    metrics_path: str | None = "/metrics"
    served_model = "fake"

    def command(self, spec: EngineSpec, port: int, log: Log) -> Command:  # noqa: ARG002 - protocol
        """Return the start command; `speculative` sets the counters' method and K."""
        script = json.loads(dict(spec.env).get(SCRIPT_VARIABLE, "{}"))
        if spec.speculative is not None:
            script.setdefault("method", spec.speculative.method)
            script.setdefault("k", spec.speculative.num_speculative_tokens)
        argv = [interpreter(spec), "-m", "draftgate.engines.fake_server"]
        argv += ["--host", listen_address(spec), "--port", str(port)]
        return Command(argv=(*argv, "--config", json.dumps(script, sort_keys=True)))

    def parse_counters(self, text: str) -> CounterSnapshot:
        """Return totals; the fake speaks vLLM's metric names."""
        return Vllm().parse_counters(text)


ENGINES.register("fake")(Fake())
