"""From a recipe to numbered parts, a manifest, and the file that unpacks them.

The archive is a gzipped tar, written straight into parts of at most the stated
size, so no step needs room for two copies. Equal inputs give equal parts.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import draftgate
from draftgate.bundle.recipe import Recipe, canonical, package_name
from draftgate.bundle.resolve import (
    Runner,
    build_wheel,
    commit_of,
    find_uv,
    install,
    own_requirements,
    resolve,
)
from draftgate.bundle.unpack import MANIFEST, MANIFEST_SCHEMA
from draftgate.errors import SpecError

Log = Callable[[str], None]

PART_MB = 56
"""Default size of a part, MB: below 64 MiB, a usual limit of what carries files to a runner."""

_LEVEL = 6
"""gzip's own default."""


@dataclass(frozen=True, slots=True)
class PackRequest:
    """What to pack, for whom.

    Attributes:
        recipe: The engine.
        host: Packages that the runner holds, names in normal form.
        runner: Its Python and platform.
        extras: Extras of draftgate that go along.
        requirements: Further requirements.
        alone: Further requirements without what they need themselves, for packages that
            only carry files, such as a model's weights.
        models: (name, folder) of model folders that go along.
        part_mb: Largest part, MB (10^6 bytes).
        checkout: Where draftgate is built from.
    """

    recipe: Recipe
    host: frozenset[str] = frozenset()
    runner: Runner = field(default_factory=Runner)
    extras: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    models: tuple[tuple[str, Path], ...] = ()
    part_mb: float = PART_MB
    checkout: Path = Path(draftgate.__file__).parent.parent


@dataclass(frozen=True, slots=True)
class _Choice:
    """What was resolved, and what of it goes into the bundle."""

    taken: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, str, str], ...]


def pack(request: PackRequest, out: Path, *, log: Log = lambda _line: None) -> dict[str, Any]:
    """Write the bundle into `out` and return its manifest.

    Args:
        request: What to pack.
        out: Folder to make, or an empty one.
        log: Takes lines of progress.

    Raises:
        SpecError: If uv is missing or fails, a model folder is not there, `out`
            holds something, the size is not positive, or the disk is full.
    """
    _check(request, out)
    uv = find_uv()
    own = own_requirements(request.checkout, request.extras)
    asked = (*request.recipe.requirements, *request.requirements)
    log(f"Resolving {', '.join(asked)} for Python {request.runner.python}")
    pins = dict(resolve(uv, (*asked, *own), request.runner))
    pins |= resolve(uv, request.alone, request.runner, alone=True)
    choice = _choose(sorted(pins.items()), request, (*asked, *request.alone))
    log(f"{len(choice.taken)} packages go in, {len(choice.left_out)} stay out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".packing-") as work:
            site = Path(work) / "site"
            wheel = build_wheel(uv, request.checkout, Path(work) / "wheel")
            packages = [f"{name}=={version}" for name, version in choice.taken]
            install(uv, [*packages, str(wheel)], site, request.runner)
            made = Path(work) / "made"
            made.mkdir()
            manifest = _write(request, choice, site, made, log)
            for path in sorted(made.iterdir()):
                path.rename(out / path.name)
            return manifest
    except OSError as error:
        raise SpecError(
            f"bundle {out}: cannot be written ({error}). Make room or name another folder."
        ) from error


def _check(request: PackRequest, out: Path) -> None:
    if not request.part_mb > 0:
        raise SpecError(
            f"bundle: part size: got {request.part_mb} MB, expected more than 0. Correct it."
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(
            f"bundle {out}: got a folder that holds something, expected none or an empty one; "
            "nothing is overwritten. Name another folder."
        )
    seen: set[str] = set()
    for name, folder in request.models:
        if not folder.is_dir():
            raise SpecError(f"bundle: model {name!r}: got no folder {folder}. Correct the path.")
        if name in seen:
            raise SpecError(f"bundle: model {name!r}: got two folders of this name. Rename one.")
        seen.add(name)


def _choose(pins: Iterable[tuple[str, str]], request: PackRequest, asked: Sequence[str]) -> _Choice:
    """Leave out what the host holds and what the recipe skips, but never what was asked for."""
    skip = {canonical(name) for name in request.recipe.skip}
    wanted = {package_name(requirement) for requirement in asked}
    taken, left = [], []
    for name, version in pins:
        if name not in wanted and name in skip:
            left.append((name, version, "skip"))
        elif name not in wanted and name in request.host:
            left.append((name, version, "host"))
        else:
            taken.append((name, version))
    return _Choice(tuple(taken), tuple(left))


def _write(
    request: PackRequest, choice: _Choice, site: Path, out: Path, log: Log
) -> dict[str, Any]:
    name = request.recipe.name
    dropped: list[str] = []
    members = [*_site_members(site, request.recipe.drop, dropped), *_model_members(request.models)]
    parts = _Parts(out, f"{name}.tar.gz", int(request.part_mb * 1e6))
    with (
        parts,
        gzip.GzipFile("", "wb", compresslevel=_LEVEL, fileobj=parts, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member, path in members:
            _add(archive, member, path)
    unpacked = sum(path.stat().st_size for _, path in members)
    manifest = {
        "kind": "draftgate-bundle",
        "schema": MANIFEST_SCHEMA,
        "name": name,
        "description": request.recipe.description,
        "draftgate": draftgate.__version__,
        "commit": commit_of(request.checkout),
        "python": request.runner.python,
        "platform": request.runner.platform,
        "packages": dict(choice.taken),
        "left_out": [
            {"name": name, "version": version, "reason": reason}
            for name, version, reason in choice.left_out
        ],
        "dropped": dropped,
        "models": [name for name, _ in request.models],
        "env": dict(request.recipe.env),
        "files": len(members),
        "unpacked_bytes": unpacked,
        "parts": parts.written,
    }
    (out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(Path(__file__).with_name("unpack.py"), out / "unpack.py")
    size = sum(part["bytes"] for part in parts.written)
    log(f"{len(parts.written)} parts, {size / 1e6:.0f} MB; {unpacked / 1e6:.0f} MB unpacked")
    return manifest


def _site_members(
    site: Path, drop: Sequence[str], dropped: list[str]
) -> Iterator[tuple[str, Path]]:
    """Yield (name in the archive, file) of installed packages, noting what a recipe drops.

    Scripts in `bin` name the interpreter that installed them, which the runner lacks.
    """
    for path in sorted(site.rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        relative = path.relative_to(site)
        if relative.parts[0] == "bin" and _is_script(path):
            continue
        if any(text in relative.as_posix() for text in drop):
            dropped.append(relative.as_posix())
            continue
        yield f"site/{relative.as_posix()}", path


def _is_script(path: Path) -> bool:
    with path.open("rb") as handle:
        return handle.read(2) == b"#!"


def _model_members(models: Sequence[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    for name, folder in models:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield f"models/{name}/{path.relative_to(folder).as_posix()}", path


def _add(archive: tarfile.TarFile, member: str, path: Path) -> None:
    info = tarfile.TarInfo(member)
    info.size = path.stat().st_size
    info.mode = 0o755 if os.access(path, os.X_OK) else 0o644
    with path.open("rb") as handle:
        archive.addfile(info, handle)


class _Parts(io.RawIOBase):
    """A writer that begins a new file whenever the one at hand is full.

    Attributes:
        written: Name, size and sha256 of every part that is closed.
    """

    def __init__(self, folder: Path, name: str, limit_bytes: int) -> None:
        super().__init__()
        self.written: list[dict[str, Any]] = []
        self._folder = folder
        self._name = name
        self._limit = max(1, limit_bytes)
        self._handle: io.BufferedWriter | None = None
        self._digest = hashlib.sha256()
        self._size = 0

    def writable(self) -> bool:
        """It can be written."""
        return True

    def write(self, data: Any) -> int:
        """Write all of `data`, over as many parts as it takes."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            if self._handle is None:
                self._begin()
            assert self._handle is not None
            chunk = view[done : done + self._limit - self._size]
            self._handle.write(chunk)
            self._digest.update(chunk)
            self._size += len(chunk)
            done += len(chunk)
            if self._size == self._limit:
                self._end()
        return done

    def close(self) -> None:
        """End the last part."""
        if not self.closed:
            self._end()
        super().close()

    def _begin(self) -> None:
        path = self._folder / f"{self._name}.{len(self.written):02d}"
        self._handle = path.open("wb")
        self._digest, self._size = hashlib.sha256(), 0

    def _end(self) -> None:
        if self._handle is None:
            return
        self._handle.close()
        name = Path(self._handle.name).name
        digest = self._digest.hexdigest()
        self.written.append({"file": name, "bytes": self._size, "sha256": digest})
        self._handle = None
