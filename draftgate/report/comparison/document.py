"""A comparison as JSON for other programs, with field names of its own.

`schema.json` beside this file describes it; both change together with
DOCUMENT_VERSION. Independent of the records' own spelling, so that a record
may be renamed without breaking a reader. JSON has no NaN and no infinity:
what is not a finite number is null.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftgate.compare.gates import higher_is_better, title
from draftgate.compare.losses import change_of
from draftgate.compare.records import (
    Cause,
    FactorLoss,
    Gate,
    GateResult,
    Pair,
    Role,
    Scale,
    ServerStart,
    SideSpec,
    StageNumbers,
    StoredComparison,
)
from draftgate.compare.schedule import suspects
from draftgate.records import Environment
from draftgate.report.comparison.answer import engines, headline
from draftgate.report.comparison.words import decisive, unit

DOCUMENT_VERSION = 1
"""History: 1 first version. A field that is added, dropped or changes meaning raises it."""

FORMAT = "draftgate.comparison"

_SCHEMA = Path(__file__).with_name("schema.json")

JsonObject = dict[str, Any]


def schema() -> JsonObject:
    """Return the JSON Schema (draft 2020-12) that `document` keeps to."""
    loaded: JsonObject = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    return loaded


def document(comparison: StoredComparison) -> JsonObject:
    """Return the comparison as JSON values; `schema` says what each field means."""
    header, result = comparison.header, comparison.result
    return {
        "format": FORMAT,
        "version": DOCUMENT_VERSION,
        "definitions_version": header.definitions,
        "id": header.id,
        "started_at": header.started_at,
        "confirms_id": header.confirms,
        "argv": list(header.argv),
        "profile": header.profile.name,
        "outcome": result.outcome.value,
        "green": result.outcome.green,
        "suspects": suspects(header, comparison.pairs),
        "headline": headline(comparison),
        "ended": result.ended,
        "duration_min": _finite(result.minutes),
        "family_level_ratio": result.family_level,
        "base": _side(comparison, header.base, Role.BASE),
        "candidate": _side(comparison, header.candidate, Role.CANDIDATE),
        "environment": _environment(header.environment),
        "plan": {
            "looks_pairs": list(header.plan.looks),
            "confirm_pairs": header.plan.confirm_pairs,
            "seed": header.plan.seed,
            "max_duration_min": header.plan.max_minutes,
            "single_stage": header.plan.single_stage,
        },
        "gates": [_gate(gate) for gate in result.gates],
        "pairs": [_pair(pair) for pair in comparison.pairs],
        "notes": list(result.notes),
    }


def _side(comparison: StoredComparison, side: SideSpec, role: Role) -> JsonObject:
    return {
        "label": side.label,
        "kind": side.kind,
        "restarts": side.restarts,
        "arms": [arm.name for arm in side.arms],
        "engines": list(engines(comparison, role)),
    }


def _environment(found: Environment) -> JsonObject:
    return {
        "hardware": found.hardware,
        "host": found.host,
        "cpu_model": found.cpu_model,
        "cpu_count": found.cpu_count,
        "memory_bytes": found.memory_bytes,
        "gpus": list(found.gpus),
        "gpu_driver": found.gpu_driver,
        "platform": found.platform,
        "python": found.python,
        "draftgate": found.draftgate,
        "engine": found.engine,
        "packages": dict(found.packages),
    }


def _gate(result: GateResult) -> JsonObject:
    gate = result.gate
    return {
        "arm": gate.arm,
        "concurrency": gate.concurrency,
        "metric": gate.metric,
        "title": title(gate.metric),
        "unit": unit(gate.metric),
        "higher_is_better": higher_is_better(gate.metric),
        "scale": gate.scale.value,
        "change_unit": "ratio" if gate.scale is Scale.RATIO else unit(gate.metric),
        "margin": gate.margin,
        "limit": gate.limit,
        "instead_of": gate.instead_of,
        "note": gate.note,
        "outcome": result.outcome.value,
        "green": result.outcome.green,
        "reason": result.reason,
        "next_step": result.next_step,
        "base_value": _finite(result.base_value),
        "candidate_value": _finite(result.value),
        "change": _change(gate, result),
        "stage_one": _stage(result.search),
        "stage_two": _stage(result.confirm),
        "adjusted_p": _finite(result.adjusted_p),
        "pairs_needed": result.pairs_needed,
        "requests": result.requests,
        "cause": _cause(result.cause),
    }


def _change(gate: Gate, result: GateResult) -> JsonObject | None:
    numbers = decisive(result)
    if numbers is None:
        return None
    found = change_of(gate, numbers)
    return {
        "estimate": _finite(found.estimate),
        "low": _finite(found.low),
        "high": _finite(found.high),
    }


def _stage(numbers: StageNumbers | None) -> JsonObject | None:
    if numbers is None:
        return None
    return {
        "pairs": numbers.pairs,
        "loss": _finite(numbers.loss),
        "loss_low": _finite(numbers.low),
        "loss_high": _finite(numbers.high),
        "p_value": _finite(numbers.p_value),
        "pair_losses": [_finite(loss) for loss in numbers.losses],
    }


def _cause(found: Cause | None) -> JsonObject | None:
    if found is None:
        return None
    return {
        "text": found.text,
        "factors": [_factor(factor) for factor in found.factors],
        "positions": [_position(entry) for entry in found.positions],
    }


def _factor(factor: FactorLoss) -> JsonObject:
    return {
        "label": factor.label,
        "metric": factor.metric,
        "change_unit": factor.unit or "ratio",
        "change": _finite(factor.change),
        "low": _finite(factor.low),
        "high": _finite(factor.high),
        "share_ratio": _finite(factor.share),
        "named": factor.named,
    }


def _position(entry: Sequence[float]) -> JsonObject:
    position, base, candidate, low, high = entry
    return {
        "position": int(position),
        "base_ratio": _finite(base),
        "candidate_ratio": _finite(candidate),
        "difference_low_ratio": _finite(low),
        "difference_high_ratio": _finite(high),
    }


def _pair(pair: Pair) -> JsonObject:
    return {
        "arm": pair.arm,
        "stage": pair.stage.value,
        "slot": pair.slot,
        "attempt": pair.attempt,
        "candidate_first": pair.candidate_first,
        "host": pair.host,
        "invalid": list(pair.invalid),
        "base": _start(pair.base),
        "candidate": _start(pair.candidate),
    }


def _start(start: ServerStart) -> JsonObject:
    return {
        "started_at": start.started_at,
        "ready_s": _finite(start.ready_s),
        "engine": start.engine,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
