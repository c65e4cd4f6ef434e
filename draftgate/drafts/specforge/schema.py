"""What SpecForge accepts as a run config: its own JSON Schema, and what it asks of keys together.

Knows no recipe. For the keys that a generated run has it refuses what SpecForge
0.2.0 refuses: each key of the schema was set to 31 values in three runs and both
asked (15,996 configs). It is stricter where SpecForge converts types, and the chat
template has to be named.

Source:
    schema-0.2.0.json, and the validators of specforge/config/schema.py and
    specforge/application/planning.py in 0.2.0. Left to SpecForge itself are those
    about keys that only `--set` brings in: down-sampling, compact teacher, USP,
    expert and data parallelism of capture, several nodes, relays, watermarks,
    resuming, other modalities.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from draftgate.specfile.table import Key, Place, read_table, show
from draftgate.speculation.method import Problem, Rule, is_integer, is_number

VERSION = "0.2.0"
SCHEMA = Path(__file__).parent / f"schema-{VERSION}.json"

ATTENTION = {"eagle3": ("sdpa", "flex_attention", "fa", "usp"), "peagle": ("flex_attention",)}
"""Attention backends by strategy.

Source: `algorithm_spec` in specforge/algorithms/{eagle3,peagle}/providers.py.
"""

HEADROOM_TOKENS = 7
"""What a capture server's context has beyond `data.max_length`.

Source: `SGLANG_CAPTURE_CONTEXT_HEADROOM` in specforge/config/schema.py.
"""

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_integer,
    "number": is_number,
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

_BOUNDS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": (">=", lambda value, bound: value >= bound),
    "exclusiveMinimum": (">", lambda value, bound: value > bound),
    "maximum": ("<=", lambda value, bound: value <= bound),
}

Schema = Mapping[str, Any]


def check_config(config: Mapping[str, Any], source: str) -> None:
    """Refuse a run config that SpecForge 0.2.0 would refuse.

    Args:
        config: The document that `specforge train --config` reads.
        source: The file, as a person would name it.

    Raises:
        SpecError: At the first thing wrong; the message names key, value, rule and next step.
    """
    place = Place(source)
    _check_table(config, load_schema(), place)
    for problem in chain(_data(config), _strategy(config), _deployment(config)):
        place.at(problem.key).fail(problem.got, problem.expected, problem.next_step)


@cache
def load_schema() -> Schema:
    """Return SpecForge's JSON Schema of a run config."""
    schema: Schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return schema


def _check_table(raw: Any, schema: Schema, place: Place) -> None:
    """Check a table and the tables inside it, outermost first."""
    keys = {
        name: Key(_rule(inner), name in schema.get("required", ()))
        for name, inner in schema["properties"].items()
    }
    read_table(raw, keys, place)
    for name, value in raw.items():
        _check_inner(value, schema["properties"][name], place.at(name))


def _rule(schema: Schema) -> Rule:
    return Rule(_words(schema), lambda value: _fits(value, schema))


def _check_inner(value: Any, schema: Schema, place: Place) -> None:
    if isinstance(value, dict):
        inner = next(one for one in _choices(schema) if "properties" in one)
        _check_table(value, inner, place)
    elif isinstance(value, list):
        items = next(one for one in _choices(schema) if "items" in one)["items"]
        for number, entry in enumerate(value):
            _check_inner(entry, items, place.at(str(number)))


def _choices(schema: Schema) -> Iterator[Schema]:
    """Return the schemas of which a value has to fit one, references followed."""
    if "$ref" in schema:
        yield load_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _choices(one)
    else:
        yield schema


def _fits(value: Any, schema: Schema) -> bool:
    """Return whether a value fits, the insides of tables aside."""
    return any(_fits_one(value, one) for one in _choices(schema))


def _fits_one(value: Any, schema: Schema) -> bool:
    if not _TYPES[schema["type"]](value) or value not in schema.get("enum", (value,)):
        return False
    if value != schema.get("const", value):
        return False
    if isinstance(value, list):
        enough = len(value) >= schema.get("minItems", 0)
        return enough and all(_fits(entry, schema["items"]) for entry in value)
    return all(holds(value, schema[name]) for name, (_, holds) in _BOUNDS.items() if name in schema)


def _words(schema: Schema) -> str:
    return " or ".join(_words_of_one(one) for one in _choices(schema))


def _words_of_one(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if "const" in schema:
        return show(schema["const"])
    bounds = [f"{sign} {schema[name]:g}" for name, (sign, _) in _BOUNDS.items() if name in schema]
    return " ".join([_NAMES[schema["type"]], " and ".join(bounds)]).strip()


_NAMES = {
    "string": "a text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "null": "null",
    "array": "a list",
    "object": "a table",
}


def _data(config: Mapping[str, Any]) -> Iterator[Problem]:
    """Check where samples come from, and how they are read."""
    data, training = config["data"], config.get("training", {})
    sources = ("train_data_path", "prompts_path", "hidden_states_path")
    given = [name for name in sources if data.get(name)]
    if len(given) != 1:
        yield Problem(
            "data", " and ".join(given) or "no source", f"one of {', '.join(sources)}", "Name one."
        )
    if "chat_template" not in data and not data.get("prompts_path"):
        yield Problem(
            "data.chat_template",
            "nothing",
            "SpecForge's name of the target's chat template",
            "Name it with --set data.chat_template=NAME; left out it would be llama3.",
        )
    measured = training.get("eval_interval", 0) > 0
    if bool(data.get("eval_hidden_states_path")) != measured:
        yield Problem(
            "training.eval_interval",
            show(training.get("eval_interval", 0)),
            "a number > 0 with data.eval_hidden_states_path, and 0 without",
            "Set both or neither.",
        )
    if measured and not data.get("hidden_states_path"):
        yield Problem(
            "data.eval_hidden_states_path",
            "a folder in a run that captures states as it goes",
            "no evaluation there",
            "Drop it with training.eval_interval.",
        )


def _strategy(config: Mapping[str, Any]) -> Iterator[Problem]:
    """Check what the two kinds of head ask for."""
    training, model = config.get("training", {}), config["model"]
    strategy = training.get("strategy", "eagle3")
    if strategy not in ATTENTION:
        names = ", ".join(ATTENTION)
        yield Problem("training.strategy", show(strategy), f"one of {names}", "Take a head's.")
        return
    backend = training.get("attention_backend", "flex_attention")
    if backend not in ATTENTION[strategy]:
        yield Problem(
            "training.attention_backend",
            show(backend),
            f"one of {', '.join(ATTENTION[strategy])} for {strategy}",
            "Correct the value.",
        )
    if strategy == "peagle" and training.get("batch_size", 1) != 1:
        yield Problem(
            "training.batch_size",
            show(training["batch_size"]),
            "1 for peagle",
            "Raise training.accumulation_steps instead.",
        )
    if strategy == "peagle" and config["data"].get("hidden_states_path"):
        yield Problem(
            "data.hidden_states_path",
            "stored states",
            "states captured in training for peagle",
            "Set store_states = false in [training] of the recipe.",
        )
    if strategy == "eagle3" and model.get("draft_num_hidden_layers") not in (None, 1):
        yield Problem(
            "model.draft_num_hidden_layers",
            show(model["draft_num_hidden_layers"]),
            "1 for eagle3",
            "Correct the value.",
        )
    yield from _layers(model.get("aux_hidden_state_layer_ids"))


def _layers(ids: list[int] | None) -> Iterator[Problem]:
    if ids is not None and (len(ids) != 3 or len(set(ids)) != 3 or min(ids) < 0):
        yield Problem(
            "model.aux_hidden_state_layer_ids",
            show(ids),
            "three different numbers >= 0",
            "Name three layers.",
        )


def _deployment(config: Mapping[str, Any]) -> Iterator[Problem]:
    """Check where the processes run."""
    deployment = config.get("deployment", {})
    online = not config["data"].get("hidden_states_path")
    spread = deployment.get("mode", "local_colocated") == "disaggregated"
    inner = deployment.get("disaggregated")
    if (online and not spread) or spread != (inner is not None):
        yield Problem(
            "deployment.mode",
            show(deployment.get("mode", "local_colocated")),
            "disaggregated, with its table, where states are captured in training",
            "Set both or neither.",
        )
        return
    if inner is not None:
        yield from _spread(config, inner, online=online)
    role = config.get("training", {}).get("role", "auto" if spread else "all")
    if (role == "all") == spread:
        yield Problem(
            "training.role", show(role), "all in one place, else another", "Drop the key."
        )
    if config.get("training", {}).get("tp_size", 1) != 1:
        yield Problem(
            "training.tp_size",
            show(config["training"]["tp_size"]),
            "1: the trainer's GPUs share the data",
            "Spread the target over more GPUs with --capture-gpus.",
        )


def _spread(
    config: Mapping[str, Any], inner: Mapping[str, Any], *, online: bool
) -> Iterator[Problem]:
    at = "deployment.disaggregated"
    if online and inner["backend"] != "mooncake":
        yield Problem(f"{at}.backend", show(inner["backend"]), "mooncake", "Correct the value.")
    if not config["model"].get("vocab_mapping_path"):
        yield Problem(
            "model.vocab_mapping_path",
            "nothing",
            "a file that both sides read",
            "Make one with SpecForge's scripts/build_vocab_mapping.py.",
        )
    managed = inner.get("managed_local")
    if managed is not None:
        yield from _managed(config, managed, f"{at}.managed_local")
        yield from _not_with_managed(inner, at)


def _not_with_managed(inner: Mapping[str, Any], at: str) -> Iterator[Problem]:
    derived = (
        "store_root",
        "server_urls",
        "mooncake_metadata_server",
        "mooncake_master_server_addr",
        "mooncake_local_hostname",
        "mooncake_protocol",
        "mooncake_rdma_devices",
        "producer_segment_size",
    )
    for name in derived:
        if inner.get(name):
            yield Problem(
                f"{at}.{name}", show(inner[name]), "nothing beside managed_local", "Drop the key."
            )


def _managed(config: Mapping[str, Any], managed: Mapping[str, Any], at: str) -> Iterator[Problem]:
    servers, trainers = managed["capture_servers"], managed["trainer_cuda_visible_devices"]
    processes = config["deployment"].get("trainer", {}).get("nproc_per_node", 1)
    if len(trainers) != processes:
        yield Problem(
            f"{at}.trainer_cuda_visible_devices",
            f"{len(trainers)} devices",
            f"{processes}, deployment.trainer.nproc_per_node",
            "Change both together.",
        )
    devices = [*trainers, *(one for server in servers for one in server["cuda_visible_devices"])]
    if len(set(devices)) != len(devices):
        yield Problem(at, f"devices {', '.join(devices)}", "each device once", "Share none.")
    for number, server in enumerate(servers):
        if server.get("tp_size", 1) != len(server["cuda_visible_devices"]):
            yield Problem(
                f"{at}.capture_servers.{number}.tp_size",
                show(server.get("tp_size", 1)),
                f"{len(server['cuda_visible_devices'])}, its devices",
                "Change both together.",
            )
    least = config["data"].get("max_length", 2048) + HEADROOM_TOKENS
    context = config["model"].get("sglang_context_length")
    if context is not None and context < least:
        yield Problem(
            "model.sglang_context_length",
            show(context),
            f"{least} or more, data.max_length + {HEADROOM_TOKENS}",
            "Raise it, or drop the key.",
        )
