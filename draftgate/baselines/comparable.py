"""What decides whether runs can be compared: what is sent and what is served.

Hashes and documents of profiles; opens no baseline.
"""

import hashlib
import json
from typing import Any

from draftgate.codec import encode
from draftgate.datasets import dataset_label, with_prompts_digest
from draftgate.specs import Profile, WorkloadSpec

_FREE_WORKLOAD = frozenset(
    # How often, at which loads, how patiently and from where: none changes what one cell measures.
    {
        "concurrencies",
        "repeats",
        "stall_timeout_s",
        "run_timeout_s",
        "max_failure_share",
        "client_processes",
    }
)
_FREE_ENGINE = frozenset(
    # How the server is brought up. These may differ, because whether they matter
    # is what a comparison with the baseline is for.
    {"launch", "args", "env", "plugins", "startup_timeout_s"}
)
FIRST_PROMPTS = {
    "arithmetic": "add390baa2d21062",
    "chat": "4ee3f7f5eb765ce4",
    "code": "b00473d011e421f8",
    "mixed": "6ea4cf0a2553f5b8",
}
"""What the built-in datasets held since the first baseline. Records from before digests were kept
name the dataset alone and mean these: prompts/*.jsonl have not changed since (git log), and the
acceptance baseline of that time holds the same digests."""

_FREE_SPECULATIVE = frozenset({"model"})  # a newly trained draft head is judged, not refused


def workload_digest(profile: Profile) -> str:
    """Return a short hash of what decides whether two runs can be compared.

    That is what is sent, prompts included, and what each arm serves; not the
    description, gates or limits, not how often or how the server is started, and
    not which draft model is used, because that is what a comparison may be about.

    Raises:
        SpecError: If the prompts of a workload that was not sent yet can't be read.
    """
    text = json.dumps(decisive(profile), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def decisive(profile: Profile) -> dict[str, Any]:
    """Return what decides comparability, as a document that a diff can show."""
    return {
        "workload": _sent(profile.workload),
        "arms": {arm.name: _served(encode(arm.engine)) for arm in profile.arms},
    }


def _sent(workload: WorkloadSpec) -> dict[str, Any]:
    """Return what is sent: prompts by content, and by name where the name alone has always told.

    Where a file of prompts lies does not matter.
    """
    held = encode(with_prompts_digest(workload))
    kept = {key: value for key, value in held.items() if key not in _FREE_WORKLOAD}
    kept["dataset"] = dataset_label(workload.dataset)
    if kept["prompts_digest"] == FIRST_PROMPTS.get(workload.dataset):
        del kept["prompts_digest"]
    if kept["api"] == "chat":
        del kept["api"]  # what every baseline was sent through before there was a choice
    return kept


def _served(engine: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in engine.items() if key not in _FREE_ENGINE}
    speculative = kept["speculative"]
    if speculative is not None:
        kept["speculative"] = {k: v for k, v in speculative.items() if k not in _FREE_SPECULATIVE}
    return kept
