"""Where numbers were made: machine, versions and what the laws depend on."""

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from benchmarks.correctness.contexts import Setting
from draftgate.environment import describe


def machine() -> dict[str, Any]:
    """Return the machine and the versions that numbers depend on."""
    return {
        "hardware": describe("none").hardware,
        **{name: version(name) for name in ("numpy", "scipy", "torch", "transformers")},
        **asdict(Setting()),
    }
