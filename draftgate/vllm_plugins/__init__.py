"""Plugins that run inside a vLLM server (entry point group `vllm.general_plugins`).

vLLM imports them in every one of its processes, so they import nothing of
draftgate but this module. All are off until named in DRAFTGATE_VLLM_PLUGINS:
installing draftgate changes no server.
"""

import os
import sys

VARIABLE = "DRAFTGATE_VLLM_PLUGINS"
"""Comma-separated names of the plugins that are on."""


def enabled(name: str) -> bool:
    """Return whether the plugin `name` is switched on for this process."""
    return name in os.environ.get(VARIABLE, "").split(",")


def announcement(name: str) -> str:
    """Return what stands in the server's log once the plugin `name` is on."""
    return f"draftgate vLLM plugin {name} is on"


def announce(name: str) -> None:
    """Write the line that draftgate looks for in the server's log."""
    sys.stderr.write(f"{announcement(name)} (pid {os.getpid()})\n")
    sys.stderr.flush()
