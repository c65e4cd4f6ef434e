"""Names in a profile that may be paths: models, datasets, interpreters.

A model is taken for a path if it starts with `.`, `/` or `~`; anything else is
a name. Relative paths start at the profile's folder.
"""

import shutil
from pathlib import Path

from draftgate.datasets import dataset_names, split_published
from draftgate.specfile.table import Place, show, suggestion


def model_name(name: str, place: Place, folder: Path) -> str:
    """Return a model's name as it is, or the absolute path of its folder.

    Raises:
        SpecError: If it is written as a path and no folder is there.
    """
    if not _is_path(name):
        return name
    path = (folder / Path(name).expanduser()).resolve()
    if not path.is_dir():
        place.fail(show(name), f"a folder; there is none at {path}", "Correct the path.")
    return str(path)


def dataset_name(name: str, place: Place, folder: Path) -> str:
    """Return a dataset's name, or a file's with its absolute path.

    Raises:
        SpecError: If it is neither; the known names are listed.
    """
    published = split_published(name)
    if published is not None:
        known_name, file = published
        return known_name if file is None else f"{known_name}:{_file(file, name, place, folder)}"
    if name.endswith(".jsonl"):
        return str(_file(Path(name), name, place, folder))
    known = dataset_names()
    if name not in known:
        place.fail(
            show(name),
            f"one of {', '.join(known)}, or the path of a .jsonl file",
            f"Correct the name.{suggestion(name, known)}",
        )
    return name


def _file(file: Path, name: str, place: Place, folder: Path) -> Path:
    path = (folder / file.expanduser()).resolve()
    if not path.is_file():
        place.fail(show(name), f"a file; there is none at {path}", "Correct the path.")
    return path


def interpreter(name: str, place: Place, folder: Path) -> str:
    """Return an interpreter's path; links stay, since a venv's python is one.

    Raises:
        SpecError: If it cannot be run.
    """
    found = str(folder / Path(name).expanduser()) if "/" in name else name
    if shutil.which(found) is None:
        place.fail(
            show(name), "an interpreter that can be run", "Give the python of the engine's venv."
        )
    return found


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~"))
