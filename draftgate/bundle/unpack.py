"""Check the parts of a bundle, join them, and put what they hold into a folder.

Needs the standard library alone, because the runner that gets a bundle may hold
nothing else: a copy of this file lies beside the parts and is run by path. Knows
no engine and imports nothing of draftgate.
"""

import argparse
import hashlib
import importlib.metadata
import io
import json
import os
import shlex
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
MANIFEST_SCHEMA = 1
# 1: name, python, parts with sizes and sha256, left_out, env, unpacked_bytes.

ACTIVATE = "activate"
_BLOCK = 1 << 20

Say = Callable[[str], None]


class UnpackError(Exception):
    """A bundle cannot be unpacked here; the message says why and what to do."""


def unpack(
    folders: Sequence[Path], target: Path, *, say: Say = lambda _line: None, check_host: bool = True
) -> Path:
    """Put a bundle into `target`, whole or not at all.

    Args:
        folders: Where the manifest and the parts lie, at any depth below.
        target: Folder to make. If it holds this very bundle nothing is done.
        say: Takes lines of progress.
        check_host: Whether Python and the packages that were left out because the
            host holds them are looked for in the interpreter that runs this.

    Returns:
        The file to source in a shell before the engine is started.

    Raises:
        UnpackError: If a part is missing or damaged, this is another Python, a
            package of the host is missing, the disk is full, or `target` holds
            something else.
    """
    found, text = _manifest(folders)
    if _held(target) == text:
        say(f"{target} already holds bundle {found['name']}")
        return target / ACTIVATE
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UnpackError(
            f"folder {target}: got one that holds something else, expected none, an empty one or "
            f"this bundle. Name another folder, or remove it."
        )
    if check_host:
        _check_host(found, say)
    parts = _parts(found, folders)
    try:
        _check_room(found, target)
        _extract(parts, target, found, text)
    except OSError as error:
        raise UnpackError(
            f"folder {target}: cannot be written ({error}). Make room or name another folder."
        ) from error
    say(f"unpacked {found['name']} into {target}")
    return target / ACTIVATE


def _manifest(folders: Sequence[Path]) -> tuple[dict[str, Any], str]:
    paths = sorted({path.resolve() for folder in folders for path in folder.rglob(MANIFEST)})
    names = " ".join(str(folder) for folder in folders)
    texts = {path.read_text(encoding="utf-8") for path in paths if _is_ours(path)}
    if len(texts) != 1:
        raise UnpackError(
            f"bundle: got {len(texts)} different {MANIFEST} of bundles below {names}, expected "
            "one. Name the folder that holds one bundle's parts."
        )
    (text,) = texts
    found = json.loads(text)
    if found["schema"] != MANIFEST_SCHEMA:
        raise UnpackError(
            f"bundle: got {MANIFEST} of schema {found['schema']}, expected {MANIFEST_SCHEMA}. "
            "Unpack it with the unpack.py that lies beside it."
        )
    return found, text


def _is_ours(path: Path) -> bool:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnpackError(f"bundle: {path} is damaged ({error}). Copy it again.") from error
    return isinstance(document, dict) and document.get("kind") == "draftgate-bundle"


def _held(target: Path) -> str | None:
    path = target / MANIFEST
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _check_host(found: Mapping[str, Any], say: Say) -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here != found["python"]:
        raise UnpackError(
            f"bundle {found['name']}: got Python {here} ({sys.executable}), expected "
            f"{found['python']}. Run this with that Python, or pack with --python {here}."
        )
    missing = []
    for entry in found["left_out"]:
        if entry["reason"] != "host":
            continue
        held = _installed(entry["name"])
        if held is None:
            missing.append(entry["name"])
        elif held.split("+")[0] != entry["version"]:
            say(f"{entry['name']}: the host has {held}, resolved was {entry['version']}")
    if missing:
        raise UnpackError(
            f"bundle {found['name']}: this host lacks {', '.join(missing)}, expected since the "
            "bundle was made for a host that has them. Take them out of the host's list and pack "
            "again, or install them."
        )


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _parts(found: Mapping[str, Any], folders: Sequence[Path]) -> list[Path]:
    """Return the parts in order, each seen to be whole."""
    paths, missing, damaged = [], [], []
    for part in found["parts"]:
        at = _whole(part, folders)
        if at is None:
            missing.append(part["file"])
        elif isinstance(at, str):
            damaged.append(at)
        else:
            paths.append(at)
    if missing or damaged:
        told = [f"missing: {', '.join(missing)}"] if missing else []
        told += [f"damaged: {'; '.join(damaged)}"] if damaged else []
        raise UnpackError(
            f"bundle {found['name']}: of {len(found['parts'])} parts {', '.join(told)}. Copy these "
            "again; the others are whole."
        )
    return paths


def _whole(part: Mapping[str, Any], folders: Sequence[Path]) -> Path | str | None:
    """Return a whole copy of a part, what is wrong with the copies, or None without one."""
    wrong = None
    for path in sorted({path for folder in folders for path in folder.rglob(part["file"])}):
        size = path.stat().st_size
        if size != part["bytes"]:
            wrong = f"{part['file']} has {size} of {part['bytes']} bytes"
        elif _sha256(path) != part["sha256"]:
            wrong = f"{part['file']} has another sha256"
        else:
            return path
    return wrong


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _check_room(found: Mapping[str, Any], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if free < found["unpacked_bytes"]:
        raise OSError(f"{free / 1e6:.0f} of {found['unpacked_bytes'] / 1e6:.0f} MB free")


def _extract(parts: Iterable[Path], target: Path, found: Mapping[str, Any], text: str) -> None:
    made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-", suffix=".part"))
    try:
        with (
            io.BufferedReader(_Joined(parts), _BLOCK) as joined,
            tarfile.open(fileobj=joined, mode="r|gz") as archive,
        ):
            archive.extractall(made, filter="data")
        made.chmod(0o755)
        _write_start_files(made, target.absolute(), found)
        (made / MANIFEST).write_text(text, encoding="utf-8")
        if target.exists():
            target.rmdir()
        made.rename(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _write_start_files(made: Path, target: Path, found: Mapping[str, Any]) -> None:
    """Write the command `draftgate` and the file to source, which name the final folder."""
    command = made / "bin" / "draftgate"
    command.parent.mkdir()
    python = shlex.quote(sys.executable)
    command.write_text(f'#!/bin/sh\nexec {python} -m draftgate.cli "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    site, programs = shlex.quote(f"{target}/site"), shlex.quote(f"{target}/bin")
    lines = [
        f"# Source this before you start anything of bundle {found['name']}.",
        f'export PYTHONPATH={site}"${{PYTHONPATH:+:$PYTHONPATH}}"',
        f'export PATH={programs}:"$PATH"',
    ]
    for name, value in {**found["env"], "DRAFTGATE_COMMIT": found["commit"] or ""}.items():
        if value:
            lines.append(f"export {name}=${{{name}:-{shlex.quote(value)}}}")
    (made / ACTIVATE).write_text("\n".join(lines) + "\n", encoding="utf-8")


class _Joined(io.RawIOBase):
    """The parts, read as one stream."""

    def __init__(self, parts: Iterable[Path]) -> None:
        super().__init__()
        self._left = list(parts)
        self._open: io.BufferedReader | None = None

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the part at hand, then from the next."""
        while True:
            if self._open is None:
                if not self._left:
                    return 0
                self._open = self._left.pop(0).open("rb")
            count = self._open.readinto(buffer)
            if count:
                return count
            self._open.close()
            self._open = None

    def close(self) -> None:
        """Close what is open."""
        if self._open is not None:
            self._open.close()
            self._open = None
        super().close()


def main(argv: Sequence[str] | None = None) -> int:
    """Unpack by command line; 0 when it is there, 2 when it cannot be."""
    parser = argparse.ArgumentParser(
        description="Check the parts of a draftgate bundle and unpack them into a folder."
    )
    parser.add_argument("target", type=Path, help="folder to make")
    parser.add_argument(
        "folders",
        type=Path,
        nargs="*",
        help="where manifest and parts lie, at any depth; the folder of this file if not given",
    )
    parser.add_argument(
        "--no-host-check",
        action="store_true",
        help="do not look for the packages that the host should hold",
    )
    args = parser.parse_args(argv)

    def say(line: str) -> None:
        sys.stderr.write(f"unpack: {line}\n")

    try:
        activate = unpack(
            args.folders or [Path(__file__).parent],
            args.target,
            say=say,
            check_host=not args.no_host_check,
        )
    except UnpackError as error:
        say(str(error))
        return 2
    sys.stdout.write(f". {shlex.quote(os.fspath(activate.absolute()))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
