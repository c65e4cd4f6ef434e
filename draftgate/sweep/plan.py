"""What a sweep is to measure: a list in TOML or JSON, turned into arms and cells.

A list names profiles and what to change in them: drafts per step, forced
acceptance, streams, any key. Everything is checked before a server starts.
Starts nothing.

    schema = 1
    name = "llama-k"
    profile = "shape-llama3.3-70b-fp8"   # of every run that names none
    set = ["workload.repeats=1"]         # before a run's own

    [[run]]
    arm = "none"

    [[run]]
    arm = "eagle3"
    k = [1, 3, 5]                        # one configuration each
    acceptance = [0.0, 0.8]              # times each of these: position i is accepted with a^i
    concurrencies = [1, 8, 32]
"""

import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftgate.errors import SpecError
from draftgate.specfile import load_profile
from draftgate.specfile.table import Key, Place, number, read_list, read_table, show, strings
from draftgate.specs import Arm, Profile, WorkloadSpec
from draftgate.speculation import render
from draftgate.speculation.method import Rule, integer, is_integer, is_number, text
from draftgate.twins import geometric_rates, with_forced_rates

PLAN_SCHEMA = 1
# 1: name, profile, set, [[run]] with arm, k, acceptance, rates, concurrencies, repeats.


@dataclass(frozen=True, slots=True)
class Cell:
    """One run to take: streams, and its running number from 0."""

    concurrency: int
    repeat: int


@dataclass(frozen=True, slots=True)
class Group:
    """Configurations that are sent the same load, so that they can be compared.

    Attributes:
        name: Names its run folder's profile.
        profile: Arms of all of them, in order of measuring; concurrencies and
            repeats cover every cell.
        cells: (arm name, its cells), in the profile's order.
    """

    name: str
    profile: Profile
    cells: tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Everything a list asks for.

    Attributes:
        name: The list's own name.
        source: Its file.
        groups: In order of first mention.
    """

    name: str
    source: str
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class _Configured:
    """One engine configuration of the list with its cells."""

    profile: Profile
    arm: Arm
    cells: tuple[Cell, ...]


def load_plan(path: Path) -> SweepPlan:
    """Return the plan of a list.

    Args:
        path: A TOML file, or a JSON file of the same tables.

    Raises:
        SpecError: If it cannot be read, a key or value is wrong, a profile or arm
            is unknown, or two configurations of one name differ.
    """
    place = Place(str(path))
    top = read_table(_document(path), _TOP_KEYS, place)
    if top["schema"] != PLAN_SCHEMA:
        place.at("schema").fail(
            show(top["schema"]), f"{PLAN_SCHEMA}, the only one", "Take a draftgate that reads it."
        )
    found: list[_Configured] = []
    for index, raw in enumerate(read_list(top["run"], place.at("run"))):
        found += _configured(raw, place.at(f"run[{index}]"), top)
    return SweepPlan(top["name"], str(path), tuple(_groups(found, place)))


def _document(path: Path) -> Any:
    try:
        text_ = path.read_text(encoding="utf-8")
        return json.loads(text_) if path.suffix == ".json" else tomllib.loads(text_)
    except (OSError, ValueError) as error:
        raise SpecError(
            f"sweep {path}: got {error}, expected a list in TOML or JSON. See docs/gpu.md."
        ) from error


def _configured(raw: Any, place: Place, top: Mapping[str, Any]) -> Iterator[_Configured]:
    run = read_table(raw, _RUN_KEYS, place)
    name = run.get("profile", top.get("profile"))
    if name is None:
        place.at("profile").fail("nothing", "a profile here or above", "Add the key.")
    profile = load_profile(name, (*top.get("set", ()), *run.get("set", ())))
    cells = _cells(run, profile.workload, place)
    for arm in _arms(run, profile.arm(run["arm"]), place):
        yield _Configured(profile, arm, cells)


def _cells(run: Mapping[str, Any], workload: WorkloadSpec, place: Place) -> tuple[Cell, ...]:
    streams = run.get("concurrencies", workload.concurrencies)
    unknown = [c for c in streams if c not in workload.concurrencies]
    if unknown:
        place.at("concurrencies").fail(
            show(unknown[0]),
            f"some of the profile's {list(workload.concurrencies)}",
            'Set them for the profile: set = ["workload.concurrencies=[...]"].',
        )
    repeats = run.get("repeats", workload.repeats)
    return tuple(Cell(c, repeat) for repeat in range(repeats) for c in streams)


def _arms(run: Mapping[str, Any], base: Arm, place: Place) -> Iterator[Arm]:
    """Yield the arm once for each number of drafts and each forced acceptance."""
    speculative = base.engine.speculative
    forced = [key for key in ("acceptance", "rates") if key in run]
    given = [key for key in ("k", *forced) if key in run]
    if speculative is None and given:
        place.at(given[0]).fail(
            show(run[given[0]]), f"none for arm {base.name!r}, which has no drafts", "Drop the key."
        )
    if len(forced) > 1:
        place.at("rates").fail(
            show(run["rates"]), "one of acceptance and rates", "Keep one of the two."
        )
    if speculative is None:
        yield replace(base, name=run.get("name", base.name))
        return
    for k, acceptance in itertools.product(
        run.get("k", (speculative.num_speculative_tokens,)), run.get("acceptance", (None,))
    ):
        rates = run.get("rates") if acceptance is None else geometric_rates(acceptance, k)
        yield _drafting(run, base, k, acceptance, rates, place)


def _drafting(
    run: Mapping[str, Any],
    base: Arm,
    k: int,
    acceptance: float | None,
    rates: Sequence[float] | None,
    place: Place,
) -> Arm:
    name = run.get("name", base.name)
    name += f"-k{k}" if "k" in run else ""
    name += f"-a{acceptance:g}" if acceptance is not None else ""
    speculative = base.engine.speculative
    assert speculative is not None
    arm = Arm(
        name,
        replace(base.engine, speculative=replace(speculative, num_speculative_tokens=k)),
    )
    try:
        if rates is not None:
            arm = with_forced_rates(arm, rates)
        assert arm.engine.speculative is not None
        render(arm.engine.speculative, arm.engine.engine, lambda model: model)
    except SpecError as error:
        raise SpecError(f"{place.source}: {place.path}: {error}") from error
    return arm


def _groups(found: Sequence[_Configured], place: Place) -> Iterator[Group]:
    groups: dict[tuple[str, Any], list[_Configured]] = {}
    for item in found:
        load = replace(item.profile.workload, concurrencies=(), repeats=0)
        groups.setdefault((item.profile.name, (load, item.profile.slo)), []).append(item)
    for number_, ((name, _), items) in enumerate(groups.items()):
        same = sum(key[0] == name for key in list(groups)[:number_])
        yield _group(f"{name}-{same + 1}" if same else name, items, place)


def _group(name: str, items: Sequence[_Configured], place: Place) -> Group:
    arms: dict[str, Arm] = {}
    cells: dict[str, dict[Cell, None]] = {}
    for item in items:
        held = arms.setdefault(item.arm.name, item.arm)
        if held.engine != item.arm.engine:
            place.at("run").fail(
                f"two different configurations called {item.arm.name!r}",
                "a name of its own for each",
                'Give one of them name = "...".',
            )
        cells.setdefault(item.arm.name, {}).update(dict.fromkeys(item.cells))
    every = [cell for own in cells.values() for cell in own]
    first = items[0].profile
    workload = replace(
        first.workload,
        concurrencies=tuple(sorted({cell.concurrency for cell in every})),
        repeats=1 + max(cell.repeat for cell in every),
    )
    notes = f"\n# sweep {place.source}: arms {', '.join(arms)}"
    profile = replace(
        first,
        name=name,
        arms=tuple(arms.values()),
        workload=workload,
        gates=(),
        text=first.text + notes,
    )
    return Group(name, profile, tuple((arm, tuple(own)) for arm, own in cells.items()))


def _one_or_more(rule: Rule, expected: str) -> Rule:
    def accepts(value: Any) -> bool:
        held = value if isinstance(value, list) else [value]
        return bool(held) and all(rule.accepts(item) for item in held)

    return Rule(
        expected, accepts, lambda value: tuple(value) if isinstance(value, list) else (value,)
    )


def _rates() -> Rule:
    return Rule(
        "a list of probabilities in 0..1",
        lambda value: (
            isinstance(value, list)
            and bool(value)
            and all(is_number(rate) and 0 <= rate <= 1 for rate in value)
        ),
        tuple,
    )


def _streams() -> Rule:
    return Rule(
        "a list of different whole numbers >= 1",
        lambda value: (
            isinstance(value, list)
            and bool(value)
            and all(is_integer(item) and item >= 1 for item in value)
            and len(set(value)) == len(value)
        ),
        tuple,
    )


_TOP_KEYS = {
    "schema": Key(integer(1), required=True),
    "name": Key(text(), required=True),
    "profile": Key(text()),
    "set": Key(strings()),
    "run": Key(Rule("one [[run]] or more", lambda _: True), required=True),
}
_RUN_KEYS = {
    "arm": Key(text(), required=True),
    "name": Key(text()),
    "profile": Key(text()),
    "set": Key(strings()),
    "k": Key(_one_or_more(integer(1), "a whole number >= 1, or a list of them")),
    "acceptance": Key(_one_or_more(number(0, 1), "a number in 0..1, or a list of them")),
    "rates": Key(_rates()),
    "concurrencies": Key(_streams()),
    "repeats": Key(integer(1)),
}
