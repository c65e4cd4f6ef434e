"""Which keys each table of a profile may hold, and what each value has to be.

The records of `draftgate.specs` say what the keys mean and hold the defaults;
here is only what a file may say.
"""

import itertools
import re
from typing import Any

from draftgate.specfile.table import Key, anything, number, string_table, strings
from draftgate.specs import PrefixCache
from draftgate.speculation import Rule
from draftgate.speculation.method import boolean, choice, integer, is_integer, text


def _matching(pattern: str, expected: str) -> Rule:
    compiled = re.compile(pattern)
    return Rule(
        expected,
        lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None,
    )


def _concurrencies() -> Rule:
    def accepts(value: Any) -> bool:
        return (
            isinstance(value, list)
            and bool(value)
            and all(is_integer(streams) and streams >= 1 for streams in value)
            and len(set(value)) == len(value)
        )

    return Rule("a list of different whole numbers >= 1", accepts, tuple)


def _looks() -> Rule:
    def accepts(value: Any) -> bool:
        whole = isinstance(value, list) and bool(value) and all(map(is_integer, value))
        return whole and value[0] >= 4 and all(a < b for a, b in itertools.pairwise(value))

    return Rule("a list of rising whole numbers >= 4, such as [8, 12, 16, 20]", accepts, tuple)


def _processes() -> Rule:
    def accepts(value: Any) -> bool:
        return value == "auto" or (is_integer(value) and value >= 1)

    return Rule(
        'a whole number >= 1, or "auto"', accepts, lambda value: None if value == "auto" else value
    )


def _gpus() -> Rule:
    def accepts(value: Any) -> bool:
        names = value if isinstance(value, list) else []
        return value in ("all", "none") or (
            bool(names) and all(is_integer(name) or isinstance(name, str) for name in names)
        )

    def convert(value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            return ("all",) if value == "all" else ()
        return tuple(str(name) for name in value)

    return Rule('"all", "none", or a list of indices or UUIDs', accepts, convert)


_SLUG = _matching(
    r"[A-Za-z0-9][A-Za-z0-9_-]*", "a name of letters, digits, '-' and '_' (it names folders)"
)
_PROFILE = _matching(
    r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[0-9][A-Za-z0-9_-]*)*",
    "a name of letters, digits, '-' and '_', with a dot before a digit only (it names folders)",
)
_VARIABLE = _matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")
_IMAGE = _matching(r"[a-z0-9][\w.:/@-]*", "the name of an image, such as vllm/vllm-openai:v0.33.0")
_SIZE = _matching(r"[0-9]+[bkmg]?", 'a size as Docker spells it, such as "8g"')
_URL = _matching(r"https?://[^\s/]+(/\S*)?", "an address such as http://127.0.0.1:8000")

TOP_KEYS = {
    "schema": Key(integer(1), required=True),
    "name": Key(_PROFILE, required=True),
    "description": Key(text(), required=True),
    "engine": Key(anything("a table [engine]"), required=True),
    "target": Key(anything("a table [target]"), required=True),
    "arm": Key(anything("one [[arm]] or more"), required=True),
    "workload": Key(anything("a table [workload]"), required=True),
    "slo": Key(anything("a table [slo]")),
    "gate": Key(anything("one [[gate]] or more")),
    "compare": Key(anything("a table [compare]")),
}
_URL_ONLY = ("url", "model", "api_key_env")
FOREIGN_KEYS = {
    "process": (*_URL_ONLY, "docker"),
    "url": ("python", "args", "env", "plugins", "startup_timeout_s", "docker"),
    "docker": (*_URL_ONLY, "python"),
}
"""Kinds of launch, each with the keys of [engine] that it has no use for."""
ENGINE_KEYS = {
    "name": Key(text(), required=True),
    "launch": Key(choice(*FOREIGN_KEYS)),
    "docker": Key(anything("a table [engine.docker]")),
    "keep_alive": Key(boolean()),
    "dtype": Key(text()),
    "quantization": Key(text()),
    "max_model_len": Key(integer(2)),
    "max_num_seqs": Key(integer(1)),
    "python": Key(text()),
    "args": Key(strings()),
    "env": Key(string_table()),
    "plugins": Key(strings()),
    "startup_timeout_s": Key(number(0, above=True)),
    "url": Key(_URL),
    "model": Key(text()),
    "api_key_env": Key(_VARIABLE),
}
DOCKER_KEYS = {
    "image": Key(_IMAGE, required=True),
    "python": Key(text()),
    "entrypoint": Key(text()),
    "gpus": Key(_gpus()),
    "network": Key(text()),
    "volumes": Key(strings()),
    "ipc": Key(text()),
    "shm_size": Key(_SIZE),
    "args": Key(strings()),
}
SPEC_KEYS = (
    "dtype",
    "quantization",
    "max_model_len",
    "max_num_seqs",
    "plugins",
    "startup_timeout_s",
)
TARGET_KEYS = {"model": Key(text(), required=True)}
ARM_KEYS = {
    "name": Key(_SLUG, required=True),
    "method": Key(text(), required=True),
    "num_speculative_tokens": Key(integer(1)),
    "model": Key(text()),
    "url": Key(_URL),
    "args": Key(strings()),
    "env": Key(string_table()),
}
WORKLOAD_KEYS = {
    "dataset": Key(text(), required=True),
    "concurrencies": Key(_concurrencies(), required=True),
    "sampling": Key(anything("a table [workload.sampling]"), required=True),
    "prefix_cache": Key(choice(*(state.value for state in PrefixCache))),
    "warmup_requests": Key(integer(0)),
    "repeats": Key(integer(1)),
    "window_s": Key(number(0, above=True)),
    "min_requests": Key(integer(1)),
    "stagger_s": Key(number(0)),
    "stall_timeout_s": Key(number(0, above=True)),
    "run_timeout_s": Key(number(0, above=True)),
    "max_failure_share": Key(number(0, 1)),
    "seed": Key(integer(0)),
    "client_processes": Key(_processes()),
    "api": Key(choice("chat", "completions")),
}
SAMPLING_KEYS = {
    "max_tokens": Key(integer(1), required=True),
    "temperature": Key(number(0)),
    "top_p": Key(
        Rule(
            "a number > 0 and <= 1",
            lambda value: number(0, 1).accepts(value) and value > 0,
            float,
        )
    ),
    "top_k": Key(integer(0)),
    "seed": Key(integer(0)),
    "ignore_eos": Key(boolean()),
}
SLO_KEYS = {
    "ttft_s": Key(number(0, above=True)),
    "per_token_s": Key(number(0, above=True)),
    "e2e_s": Key(number(0, above=True)),
}
GATE_KEYS = {
    "metric": Key(text(), required=True),
    "margin_ratio": Key(number(0, above=True), required=True),
    "confidence": Key(number(0, 1, above=True)),
    "min_runs": Key(integer(2)),
}
COMPARE_KEYS = {
    "gate": Key(anything("one [[compare.gate]] or more")),
    "looks": Key(_looks()),
    "confirm_pairs": Key(integer(6)),
    "family_level": Key(number(0, 0.5, above=True)),
    "seed": Key(integer(0)),
    "max_minutes": Key(number(0, above=True)),
    "single_stage": Key(boolean()),
}
PAIRED_GATE_KEYS = {
    "metric": Key(text(), required=True),
    "margin": Key(number(0), required=True),
    "limit": Key(number(0, above=True), required=True),
}
