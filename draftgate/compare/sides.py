"""The two sides of a comparison: from what a caller typed to the servers it means.

A side is one of these forms, or a form and assignments with `;` between them, as in
`image:vllm:new;engine.docker.gpus="all"`. Assignments are those of `--set`
(`draftgate.specfile.overrides`) and may also stand alone, which changes the profile:

    profile, or .                  the profile as it is
    KEY=VALUE                      the profile with an assignment: engine.args=["--foo"],
                                   arm.ngram.num_speculative_tokens=5
    NAME, or PATH.toml             another profile
    FOLDER, or INTERPRETER         the profile run by a venv's python (launch = "process")
    image:NAME                     the profile in containers of this image; the rest of
                                   [engine.docker] stays
    git:REF, or git:REF:PATH       the profile's file, or the one at PATH, as of a git ref
    http://HOST:PORT               a live server, for the only arm
    ARM=http://HOST:PORT,...       live servers by arm; arms without one are left out

In order: `--set` of both sides, the form, its assignments, the strict reader, `--arm`. A
profile has to be right before the form: by itself, or with `--set`. Starts nothing, asks no
server.
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from draftgate.compare.forms import ITSELF, Form, read_form, require_arms
from draftgate.compare.recipes import Recipe, recipe_at
from draftgate.compare.records import SideSpec
from draftgate.errors import SpecError
from draftgate.hidden import hide
from draftgate.specfile import load_profile, parse_profile
from draftgate.specfile.build import build_profile
from draftgate.specfile.overrides import assign
from draftgate.specfile.table import Place, show
from draftgate.specs import Arm, Profile, UrlLaunch


def resolve_side(
    text: str, profile_name: str, arms: Sequence[str] = (), *, overrides: Sequence[str] = ()
) -> tuple[SideSpec, Profile]:
    """Return the servers that one side means, and the profile they come from.

    Args:
        text: The side as typed; the module's docstring lists the forms.
        profile_name: Name or path of the profile that is compared.
        arms: Names of the arms to keep, in any order; empty for all.
        overrides: Assignments for both sides, as of `--set`.

    Returns:
        The side, its arms in the profile's order, and the profile as changed for
        it, with the same arms. What was changed is noted at the end of its text.

    Raises:
        SpecError: If the text is no form (the message lists them), what it names
            is not there, or the profile is wrong with it.
    """
    label = hide(text.strip())
    try:
        form = read_form(text, arms)
        recipe = _recipe(form, profile_name, overrides)
        document = _document(recipe, overrides)
        form.edit(document)
        for assignment in form.assignments:
            assign(document, assignment)
        content = recipe.text + _notes(label, recipe, overrides)
        profile = build_profile(document, Place(str(recipe.source)), recipe.source, content)
        profile = replace(profile, arms=_kept(profile.arms, arms))
    except SpecError as error:
        raise SpecError(f"side {label!r}: {hide(str(error))}") from error
    restarts = not any(isinstance(arm.engine.launch, UrlLaunch) for arm in profile.arms)
    return SideSpec(label, form.kind, profile.arms, restarts), profile


def check_sides(
    base_profile: Profile, candidate_profile: Profile, base: SideSpec, candidate: SideSpec
) -> None:
    """Do nothing if the two sides can be compared: same load, same questions, same arms.

    Two sides that are alike in everything are fine: same against same.

    Raises:
        SpecError: If the arms' names or their order differ, or anything of
            `workload`, `slo`, `compare` or `engine.keep_alive` does.
    """
    names = [[arm.name for arm in side.arms] for side in (base, candidate)]
    if names[0] != names[1]:
        raise SpecError(
            f"sides: got the arms {', '.join(names[0])} of base {base.label!r} and "
            f"{', '.join(names[1])} of candidate {candidate.label!r}, expected the same names in "
            f"the same order. {_common(*names)}"
        )
    for key, why in (
        ("workload", "both sides must be sent the same load"),
        ("slo", "both sides are held to the same limits"),
        ("compare", "one comparison has one set of gates"),
        ("keep_alive", "both sides' servers are run in one way"),
    ):
        ours, theirs = getattr(base_profile, key), getattr(candidate_profile, key)
        found = list(_differences(ours, theirs, key.replace("keep_alive", "engine.keep_alive")))
        if found:
            raise SpecError(
                f"sides: got {'; '.join(found)}, expected no difference there: {why}. Set it for "
                "both with --set."
            )


def _recipe(form: Form, profile_name: str, overrides: Sequence[str]) -> Recipe:
    """Return the profile's text that the side starts from; right as `_source` says."""
    if form.kind == "git":
        recipe = _committed(form.text.removeprefix("git:"), profile_name, overrides)
        _check(recipe, overrides)
        return recipe
    other = form.kind == "profile" and form.text not in ITSELF
    source = _source(form.text if other else profile_name, overrides)
    return Recipe(source.read_text(encoding="utf-8"), source)


def _committed(ref_and_path: str, profile_name: str, overrides: Sequence[str]) -> Recipe:
    ref, _, path = ref_and_path.partition(":")
    if path:
        return recipe_at(ref, Path.cwd(), path)
    source = _source(profile_name, overrides)
    return recipe_at(ref, source.parent, f"./{source.name}")


def _source(name_or_path: str, overrides: Sequence[str]) -> Path:
    """Return the file of a profile that is right by itself or with the overrides.

    Either will do: one may be completed by an override, and an override may be meant for
    what the form makes of the profile, as `engine.docker.gpus` is for `image:NAME`.
    """
    try:
        return load_profile(name_or_path).source
    except SpecError:
        if not overrides:
            raise
        return load_profile(name_or_path, overrides).source


def _check(recipe: Recipe, overrides: Sequence[str]) -> None:
    """Do nothing if a recipe is right by itself or with the overrides, as in `_source`."""
    try:
        parse_profile(recipe.text, recipe.source)
    except SpecError:
        if not overrides:
            raise
        document, place = _assigned(recipe, overrides), Place(str(recipe.source))
        build_profile(document, place, recipe.source, recipe.text)


def _assigned(recipe: Recipe, overrides: Sequence[str]) -> dict[str, Any]:
    try:
        document = tomllib.loads(recipe.text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(
            f"profile {recipe.source}: got text that is not TOML: {error}. Correct that line."
        ) from error
    for assignment in overrides:
        assign(document, assignment)
    return document


def _document(recipe: Recipe, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the recipe's document with the overrides made, its tables still tables."""
    document = _assigned(recipe, overrides)
    engine, arms = document["engine"], document["arm"]
    if (
        not isinstance(engine, dict)
        or not isinstance(engine.get("docker", {}), dict)
        or not isinstance(arms, list)
        or not arms
        or not all(isinstance(arm, dict) and isinstance(arm.get("name"), str) for arm in arms)
    ):
        raise SpecError(
            f"got the overrides {', '.join(overrides)}, expected [engine], [engine.docker] and each"
            " [[arm]] to stay tables. Assign to their keys, as in engine.dtype=float32."
        )
    return document


def _notes(label: str, recipe: Recipe, overrides: Sequence[str]) -> str:
    """Return comments that say what was made of the text."""
    commit = f" (commit {recipe.commit})" if recipe.commit else ""
    notes = [f"override: {hide(assignment)}" for assignment in overrides]
    return "".join(
        f"\n# {' '.join(note.splitlines())}" for note in (*notes, f"side: {label}{commit}")
    )


def _kept(arms: Sequence[Arm], wanted: Sequence[str]) -> tuple[Arm, ...]:
    require_arms(wanted, [arm.name for arm in arms])
    return tuple(arm for arm in arms if not wanted or arm.name in wanted)


def _common(base: Sequence[str], candidate: Sequence[str]) -> str:
    """Return what to do about arms that differ."""
    both = [name for name in base if name in candidate]
    if not both:
        return "Name an arm of each side alike."
    if len(both) == len(base) == len(candidate):
        return "Put the arms of both profiles in one order."
    return f"Keep those of both with {' '.join(f'--arm {name}' for name in both)}."


def _differences(base: object, candidate: object, key: str) -> Iterable[str]:
    """Yield one text per setting that differs, records inside records taken apart."""
    if base == candidate:
        return
    if is_dataclass(base) and is_dataclass(candidate):
        for part in fields(base):
            ours, theirs = (getattr(side, part.name) for side in (base, candidate))
            yield from _differences(ours, theirs, f"{key}.{part.name}")
        return
    yield f"{key} = {show(base)} (base) and {show(candidate)} (candidate)"
