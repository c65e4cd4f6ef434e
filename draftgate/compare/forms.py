"""The forms in which a side of a comparison is written.

From one form to the change that it makes in a profile's document, before the strict
reader sees it. Looks at the files and folders of this machine that a form names; reads
no profile, starts nothing. The table of forms stands in `draftgate.compare.sides`.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from draftgate.errors import SpecError
from draftgate.specfile import profile_names
from draftgate.specfile.keys import FOREIGN_KEYS
from draftgate.specfile.table import show, suggestion

FORMS = (
    "profile, or .",
    "KEY=VALUE",
    "NAME, or PATH.toml",
    "FOLDER, or INTERPRETER",
    "image:NAME",
    "git:REF, or git:REF:PATH",
    "http://HOST:PORT",
    "ARM=http://HOST:PORT,...",
)
"""How a side may be written, for messages and help; `sides` explains each."""

Edit = Callable[[dict[str, Any]], None]
"""Makes a form's change in a profile's document, in place."""

ITSELF = ("profile", ".")
"""Spellings of the profile as it is."""

_PART = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[^;])+""")
_ASSIGNMENT = re.compile(r"[\w-]+(\.[\w*-]+)*\s*=")
_LIVE = re.compile(r"([\w-]+=)?https?://")
_ADDRESS = re.compile(r"(?:([\w-]+)=)?(https?://[^\s/@?#]+(?:/[^\s@?#]*)?)")


@dataclass(frozen=True, slots=True)
class Form:
    """A side as it was written, taken apart.

    Attributes:
        kind: `profile`, `venv`, `image`, `git` or `url`.
        text: The form, without assignments.
        edit: The change it makes.
        assignments: What is to be assigned after that.
    """

    kind: str
    text: str
    edit: Edit
    assignments: tuple[str, ...] = ()


def read_form(text: str, arms: Sequence[str]) -> Form:
    """Return the form and the assignments that `text` is made of.

    Args:
        text: A side; quotes keep a `;` together.
        arms: Names of the arms that are asked for; empty for all.

    Raises:
        SpecError: If it is no form; the message lists them. Or if it names an
            interpreter that is not there or an address that is none.
    """
    parts = [part.strip() for part in _PART.findall(text)]
    parts = [part for part in parts if part] or [""]
    if _ASSIGNMENT.match(parts[0]) and not _LIVE.match(parts[0]):
        parts.insert(0, ITSELF[0])
    kind, edit = _kind_and_edit(parts[0], arms)
    return Form(kind, parts[0], edit, tuple(parts[1:]))


def require_arms(names: Iterable[str], known: Sequence[str]) -> None:
    """Do nothing if all names are known.

    Raises:
        SpecError: Otherwise; the message lists the known.
    """
    for name in names:
        if name not in known:
            raise SpecError(
                f"it has no arm {name!r}. It has: {', '.join(known)}.{suggestion(name, known)}"
            )


def _kind_and_edit(form: str, arms: Sequence[str]) -> tuple[str, Edit]:
    if form.startswith("git:"):
        return "git", _unchanged
    if form.startswith("image:"):
        return "image", partial(_use_image, image=form.removeprefix("image:"))
    if _LIVE.match(form):
        return "url", partial(_use_servers, addresses=_addresses(form), wanted=arms)
    if form in ITSELF or form.endswith(".toml") or form in profile_names():
        return "profile", _unchanged
    if _is_path(form):
        return "venv", partial(_use_interpreter, python=_interpreter(form))
    raise SpecError(
        f"got {form!r}, expected one of: {' | '.join(FORMS)}; further KEY=VALUE after a ';'. Known "
        f"profiles: {', '.join(profile_names())}."
        f"{suggestion(form, (*profile_names(), ITSELF[0]))}"
    )


def _unchanged(document: dict[str, Any]) -> None:
    """Leave the document as it is."""


def _use_interpreter(document: dict[str, Any], python: str) -> None:
    launch = _launch(document)
    if launch != "process":
        raise SpecError(
            f'an interpreter needs a profile with engine.launch = "process", got {show(launch)}. '
            "Give image:NAME, or the profile of a process."
        )
    document["engine"]["python"] = python


def _use_image(document: dict[str, Any], image: str) -> None:
    _relaunch(document, "docker")
    for arm in document["arm"]:
        arm.pop("url", None)
    document["engine"].setdefault("docker", {})["image"] = image


def _use_servers(
    document: dict[str, Any], addresses: dict[str, str], wanted: Sequence[str]
) -> None:
    _relaunch(document, "url")
    known = [arm["name"] for arm in document["arm"]]
    if "" in addresses:
        addresses = {_only(wanted or known): addresses[""]}
    require_arms(addresses, known)
    document["arm"] = [
        {key: value for key, value in arm.items() if key not in ("args", "env")}
        | {"url": addresses[arm["name"]]}
        for arm in document["arm"]
        if arm["name"] in addresses
    ]


def _launch(document: dict[str, Any]) -> str:
    return str(document["engine"].get("launch", "process"))


def _relaunch(document: dict[str, Any], kind: str) -> None:
    """Set `engine.launch`, without the keys that belong to another kind."""
    engine = document["engine"]
    if _launch(document) != kind:
        for key in FOREIGN_KEYS[kind]:
            engine.pop(key, None)
    engine["launch"] = kind


def _addresses(text: str) -> dict[str, str]:
    """Return address by arm; the name of a lone one without a name is empty."""
    parts = text.split(",")
    addresses: dict[str, str] = {}
    for part in parts:
        found = _ADDRESS.fullmatch(part.strip())
        name = (found.group(1) or "") if found else ""
        if not found or name in addresses or (not name and len(parts) > 1):
            raise SpecError(
                f"got {part.strip()!r}, expected http://HOST:PORT for one arm, or ARM=http://HOST:"
                "PORT once for each, with ',' between them; no user, password or query in it. A "
                "key goes into a variable that engine.api_key_env names."
            )
        addresses[name] = found.group(2)
    return addresses


def _is_path(form: str) -> bool:
    return os.access(form, os.F_OK) or ("/" in form and "://" not in form)


def _interpreter(text: str) -> str:
    """Return the path of the interpreter; links stay, since a venv's python is one."""
    try:
        path = Path(text).expanduser().absolute()
        python = path / "bin" / "python" if path.is_dir() else path
        there = python.is_file()
    except (OSError, RuntimeError) as error:  # a name too long, a folder that is shut, no such user
        raise SpecError(f"got {text!r}: {error}, expected a venv. Correct the path.") from error
    if not there:
        raise SpecError(
            f"there is no file {python}, expected an interpreter or the folder of a venv with "
            f"bin/python. Correct the path; or write one of: {' | '.join(FORMS)}."
        )
    if not os.access(python, os.X_OK):
        raise SpecError(
            f"{python} cannot be run, expected an interpreter. Give the engine's python, or make "
            "it executable."
        )
    return str(python)


def _only(names: Sequence[str]) -> str:
    if len(set(names)) != 1:
        raise SpecError(
            f"got one address for the arms {', '.join(names)}, expected to be told which arm it "
            f"serves. Write {names[0]}=http://HOST:PORT, or keep one arm with --arm."
        )
    return names[0]
