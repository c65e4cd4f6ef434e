"""A whole profile: its tables, read one after the other, and what joins them.

What cannot go together across tables (concurrency and capacity, gates and
repeats) is checked here, where both sides are known.
"""

from pathlib import Path
from typing import Any

from draftgate.specfile.arms import EngineTable, read_arms
from draftgate.specfile.keys import (
    COMPARE_KEYS,
    GATE_KEYS,
    PAIRED_GATE_KEYS,
    SAMPLING_KEYS,
    SLO_KEYS,
    TARGET_KEYS,
    TOP_KEYS,
    WORKLOAD_KEYS,
)
from draftgate.specfile.paths import dataset_name, model_name
from draftgate.specfile.table import Place, read_list, read_table, show
from draftgate.specs import (
    SLO,
    Arm,
    CompareSpec,
    GateSpec,
    PairedGateSpec,
    PrefixCache,
    Profile,
    SamplingParams,
    WorkloadSpec,
)
from draftgate.speculation.method import is_integer

PROFILE_SCHEMA = 1
# 1: [engine], [target], [[arm]], [workload], [workload.sampling], [slo], [[gate]],
# [compare], [[compare.gate]].


def build_profile(document: dict[str, Any], place: Place, source: Path, content: str) -> Profile:
    """Return the profile that a TOML document describes.

    Args:
        document: The parsed file, overrides applied.
        place: The file as messages name it.
        source: The file; relative paths start at its folder.
        content: Its text, kept with the profile.

    Raises:
        SpecError: If anything is wrong.
    """
    _check_schema(document, place)
    top = read_table(document, TOP_KEYS, place)
    workload = _workload(top["workload"], place.at("workload"), source.parent)
    engine = EngineTable.read(top["engine"], place.at("engine"), source.parent)
    target = read_table(top["target"], TARGET_KEYS, place.at("target"))["model"]
    target = model_name(target, place.at("target.model"), source.parent)
    arms = read_arms(top["arm"], place, engine, target, workload)
    _check_capacity(arms, workload, place)
    return Profile(
        name=top["name"],
        description=top["description"],
        arms=arms,
        keep_alive=engine.given.get("keep_alive", True),
        workload=workload,
        slo=SLO(**read_table(top.get("slo", {}), SLO_KEYS, place.at("slo"))),
        gates=_gates(top.get("gate"), place.at("gate"), workload),
        source=source,
        text=content,
        compare=_compare(top.get("compare", {}), place.at("compare")),
    )


def _check_schema(document: dict[str, Any], place: Place) -> None:
    schema = document.get("schema", PROFILE_SCHEMA)
    if is_integer(schema) and schema != PROFILE_SCHEMA:
        place.at("schema").fail(
            show(schema),
            f"{PROFILE_SCHEMA}, the only one this version reads",
            "Update draftgate, or write the profile for this schema.",
        )


def _check_capacity(arms: tuple[Arm, ...], workload: WorkloadSpec, place: Place) -> None:
    for arm in arms:
        most = max(workload.concurrencies)
        if most > arm.engine.max_num_seqs:
            place.at("workload.concurrencies").fail(
                show(most),
                f"at most engine.max_num_seqs = {arm.engine.max_num_seqs}, or streams would queue",
                "Raise engine.max_num_seqs or drop that concurrency.",
            )
        if workload.sampling.max_tokens >= arm.engine.max_model_len:
            place.at("workload.sampling.max_tokens").fail(
                show(workload.sampling.max_tokens),
                f"less than engine.max_model_len = {arm.engine.max_model_len}, prompt included",
                "Raise engine.max_model_len or ask for fewer tokens.",
            )


def _workload(raw: Any, place: Place, folder: Path) -> WorkloadSpec:
    given = read_table(raw, WORKLOAD_KEYS, place)
    given["sampling"] = SamplingParams(
        **read_table(given["sampling"], SAMPLING_KEYS, place.at("sampling"))
    )
    given["dataset"] = dataset_name(given["dataset"], place.at("dataset"), folder)
    if "prefix_cache" in given:
        given["prefix_cache"] = PrefixCache(given["prefix_cache"])
    workload = WorkloadSpec(**given)
    if workload.stagger_s + workload.window_s >= workload.run_timeout_s:
        place.at("run_timeout_s").fail(
            show(workload.run_timeout_s),
            f"more than stagger_s + window_s = {workload.stagger_s + workload.window_s:g}",
            "Raise it, or every run ends before its window.",
        )
    fewest = min(workload.concurrencies)
    if workload.client_processes is not None and workload.client_processes > fewest:
        place.at("client_processes").fail(
            show(workload.client_processes),
            f"at most the smallest of workload.concurrencies, {fewest}",
            'Lower it, or write "auto".',
        )
    return workload


def _gates(raw: Any, place: Place, workload: WorkloadSpec) -> tuple[GateSpec, ...]:
    gates: list[GateSpec] = []
    for index, entry in enumerate(read_list(raw, place) if raw is not None else ()):
        here = Place(place.source, f"gate[{index}]")
        gate = GateSpec(**read_table(entry, GATE_KEYS, here))
        here = place.at(gate.metric)
        if any(gate.metric == other.metric for other in gates):
            here.fail("a second gate", "one gate a metric", "Drop one of the two.")
        if gate.min_runs > workload.repeats:
            here.at("min_runs").fail(
                f"{gate.min_runs}" + ("" if "min_runs" in entry else " (the default)"),
                f"at most workload.repeats = {workload.repeats}, or there is never a verdict",
                "Raise workload.repeats or lower min_runs.",
            )
        gates.append(gate)
    return tuple(gates)


def _compare(raw: Any, place: Place) -> CompareSpec:
    given = read_table(raw, COMPARE_KEYS, place)
    if "gate" in given:
        entries = enumerate(read_list(given["gate"], place.at("gate")))
        given["gate"] = [
            _paired_gate(e, Place(place.source, f"compare.gate[{i}]")) for i, e in entries
        ]
        names = [gate.metric for gate in given["gate"]]
        for name in names:
            if names.count(name) > 1:
                place.at(f"gate.{name}").fail("a second gate", "one gate a metric", "Drop one.")
        given["gates"] = tuple(given.pop("gate"))
    return CompareSpec(**given)


def _paired_gate(raw: Any, place: Place) -> PairedGateSpec:
    gate = PairedGateSpec(**read_table(raw, PAIRED_GATE_KEYS, place))
    if not gate.margin < gate.limit:
        place.at("limit").fail(
            show(gate.limit),
            f"more than the margin, {gate.margin:g}",
            "The margin is the loss that is let through, the limit the one that must be ruled out.",
        )
    return gate
