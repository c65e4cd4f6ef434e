"""What goes into a bundle: an engine's recipe, and what a host image already holds.

Recipes are TOML files in `recipes/`, hosts are lists of package names in
`hosts/`. Packs nothing.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from draftgate.errors import SpecError
from draftgate.specfile.table import Key, Place, read_table, string_table, strings
from draftgate.speculation.method import text

_RECIPES = Path(__file__).parent / "recipes"
_HOSTS = Path(__file__).parent / "hosts"

_KEYS = {
    "description": Key(text(), required=True),
    "requirements": Key(strings(), required=True),
    "skip": Key(strings()),
    "drop": Key(strings()),
    "env": Key(string_table()),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one engine is bundled.

    Attributes:
        name: Its name, for example `vllm-0.26.0`.
        description: What was tried with it, and where.
        requirements: The engine and what it needs beside, as pip takes them.
        skip: Packages that the engine runs without, never bundled.
        drop: Installed files whose path holds one of these texts are left out.
        env: Variables the engine needs when it runs from a bundle, sorted by name.
    """

    name: str
    description: str
    requirements: tuple[str, ...]
    skip: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


def recipe_names() -> tuple[str, ...]:
    """Return the names of the recipes that come with draftgate, sorted."""
    return tuple(sorted(path.stem for path in _RECIPES.glob("*.toml")))


def host_names() -> tuple[str, ...]:
    """Return the names of the known host images, sorted."""
    return tuple(sorted(path.stem for path in _HOSTS.glob("*.txt")))


def load_recipe(name_or_path: str) -> Recipe:
    """Return a recipe, by name or from a TOML file.

    Raises:
        SpecError: If there is none, or a key is wrong.
    """
    path = _path(name_or_path, _RECIPES, ".toml", "recipe", recipe_names())
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"recipe {path}: got {error}, expected a TOML file. Correct it.") from error
    place = Place(f"recipe {path}")
    found = read_table(raw, _KEYS, place)
    if not found["requirements"]:
        place.at("requirements").fail("nothing", "one or more", "Name the engine there.")
    return Recipe(path.stem, **found)


def load_host(name_or_path: str) -> frozenset[str]:
    """Return the packages that a host image holds, names as `canonical` spells them.

    Args:
        name_or_path: Known name, or a text file with one package a line; `#` begins a
            comment and `==VERSION` after a name is let through, so `pip freeze` will do.

    Raises:
        SpecError: If there is no such list, or it names no package.
    """
    path = _path(name_or_path, _HOSTS, ".txt", "host", host_names())
    lines = (line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    names = frozenset(package_name(line) for line in lines if line)
    if not names:
        raise SpecError(
            f"host {path}: got no package, expected one name a line. Write it on the runner with: "
            "python3 -m pip freeze > host.txt"
        )
    return names


def package_name(requirement: str) -> str:
    """Return the name in a requirement such as `Some.Pkg[extra]>=1`, as `some-pkg`."""
    return canonical(re.split(r"[\[<>=!~;@ ]", requirement.strip(), maxsplit=1)[0])


def canonical(name: str) -> str:
    """Return a distribution's name in its normal form.

    Source: the packaging specification "Names and normalization".
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def _path(name: str, folder: Path, suffix: str, what: str, known: tuple[str, ...]) -> Path:
    path = Path(name) if name.endswith(suffix) or "/" in name else folder / f"{name}{suffix}"
    if not path.is_file():
        raise SpecError(
            f"{what} {name!r}: got neither a file nor a known name. Known: {', '.join(known)}; or "
            f"give the path of a {suffix} file."
        )
    return path
