"""Packages for another machine: resolved, built and installed into a folder by uv.

The runner's Python and platform are named to uv, so this machine's do not
matter. The one module of a bundle that runs programs.
"""

import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftgate.bundle.recipe import package_name
from draftgate.errors import SpecError

_SHOWN_LINES = 12


@dataclass(frozen=True, slots=True)
class Runner:
    """The machine that a bundle is for.

    Attributes:
        python: Its Python, for example `3.12`.
        platform: uv's name of its platform.
    """

    python: str = "3.12"
    platform: str = "x86_64-manylinux_2_39"

    @property
    def options(self) -> tuple[str, ...]:
        """The two as options of uv; wheels alone, since what is built here fits this machine."""
        runner = ("--python-version", self.python, "--python-platform", self.platform)
        return (*runner, "--only-binary", ":all:")


def find_uv() -> str:
    """Return the path of uv.

    Raises:
        SpecError: If there is none on PATH.
    """
    found = shutil.which("uv")
    if found is None:
        raise SpecError(
            "uv: got no such program on PATH, expected it to resolve packages for another "
            "machine. Run: pip install uv"
        )
    return found


def own_requirements(checkout: Path, extras: Sequence[str]) -> tuple[str, ...]:
    """Return what draftgate needs by its pyproject.toml, with the named extras.

    Raises:
        SpecError: If there is no checkout, or no such extra.
    """
    path = checkout / "pyproject.toml"
    if not path.is_file():
        raise SpecError(
            f"bundle: got no {path}, expected a checkout of draftgate to build it from. Run the "
            "command from a clone: gpu-ci/scripts/bundle"
        )
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    known = project.get("optional-dependencies", {})
    for name in extras:
        if name not in known:
            raise SpecError(
                f"bundle: extra {name!r}: got no such extra of draftgate, expected one of "
                f"{', '.join(known)}. Correct it."
            )
    return (*project["dependencies"], *(line for name in extras for line in known[name]))


def resolve(
    uv: str, requirements: Sequence[str], runner: Runner, *, alone: bool = False
) -> tuple[tuple[str, str], ...]:
    """Return (name, version) of everything that `requirements` need, names in normal form.

    Args:
        uv: The program.
        requirements: As pip takes them.
        runner: For whom.
        alone: Leave out what the requirements need themselves.

    Raises:
        SpecError: If uv finds no solution; the message ends with what it said.
    """
    if not requirements:
        return ()
    argv = [uv, "pip", "compile", "-q", "--no-header", "--no-annotate", *runner.options]
    argv += ["--no-deps"] if alone else []
    text = _run([*argv, "-"], "resolving", "\n".join(requirements))
    pins = []
    for line in text.splitlines():
        pin = line.partition(";")[0].partition("#")[0].strip()
        if not pin:
            continue
        name, equals, version = pin.partition("==")
        if not equals:
            raise SpecError(
                f"bundle: uv resolved {pin!r}, expected NAME==VERSION. Give releases of a registry."
            )
        pins.append((package_name(name), version.strip()))
    return tuple(sorted(pins))


def build_wheel(uv: str, checkout: Path, folder: Path) -> Path:
    """Build draftgate's wheel into `folder` and return it.

    Raises:
        SpecError: If it cannot be built.
    """
    _run([uv, "build", "-q", "--wheel", "--out-dir", str(folder), str(checkout)], "building")
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise SpecError(f"bundle: uv built {len(wheels)} wheels, expected one. Build it by hand.")
    return wheels[0]


def install(uv: str, packages: Sequence[str], site: Path, runner: Runner) -> None:
    """Install exactly `packages` into the folder `site`.

    Raises:
        SpecError: If one cannot be had for the runner.
    """
    argv = [uv, "pip", "install", "-q", "--no-deps", "--target", str(site), *runner.options]
    _run([*argv, *packages], "installing")


def commit_of(checkout: Path) -> str | None:
    """Return the checkout's commit, with `-dirty` where files differ; None without git."""
    if not (checkout / ".git").exists() or shutil.which("git") is None:
        return None
    argv = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _run(argv: Sequence[str], what: str, stdin: str = "") -> str:
    done = subprocess.run(
        list(argv), input=stdin, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode == 0:
        return done.stdout
    told = "\n".join(done.stderr.strip().splitlines()[-_SHOWN_LINES:]) or "(it said nothing)"
    raise SpecError(
        f"bundle: {what}: `{' '.join(argv[:3])}` ended with exit code {done.returncode}, expected "
        f"0. Correct the requirement or the network.\n{told}"
    )
