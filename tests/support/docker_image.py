"""An image without a download: an empty root folder that borrows this machine's programs.

Its containers run the interpreter of the tests, and draftgate from this checkout,
through read-only mounts. Where there is no Docker the tests that need it are
skipped with the reason, or fail if DRAFTGATE_REQUIRE_DOCKER is set.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from draftgate.specs import DockerLaunch
from tests.support.flow import ROOT, write_profile

REQUIRE = "DRAFTGATE_REQUIRE_DOCKER"

_PASSWD = b"root:x:0:0:root:/root:/bin/sh\n"
_LINKS = ("bin", "lib", "lib64")


def docker(*args: str, stdin: bytes = b"") -> str:
    """Return what a docker command wrote.

    Raises:
        AssertionError: If it failed.
    """
    done = subprocess.run(["docker", *args], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def require_docker() -> None:
    """Skip the test where no daemon answers, or fail it where one was promised."""
    reason = _missing()
    if reason and os.environ.get(REQUIRE):
        pytest.fail(f"{REQUIRE} is set, but {reason}")
    if reason:
        pytest.skip(f"needs Docker: {reason}")


@contextmanager
def imported_image() -> Iterator[str]:
    """Yield the name of a new image, which is removed afterwards."""
    tag = f"draftgate-test:{uuid.uuid4().hex[:12]}"
    docker("import", "-", tag, stdin=_root_folder())
    try:
        yield tag
    finally:
        docker("image", "rm", "--force", tag)


def borrowing(image: str) -> DockerLaunch:
    """Return a container of `image` that runs this interpreter and this checkout."""
    folders = {Path("/usr"), Path(sys.base_prefix), Path(sys.prefix), ROOT}
    folders |= {Path("/", name) for name in _LINKS if not Path("/", name).is_symlink()}
    top = [p for p in folders if p.exists() and not any(q in p.parents for q in folders)]
    return DockerLaunch(
        image,
        python=sys.executable,
        volumes=tuple(f"{path}:{path}:ro" for path in sorted(top)),
        args=("--workdir", str(ROOT)),
    )


def docker_profile(
    path: Path, image: str, arms: Mapping[str, Mapping[str, object]], *, repeats: int = 1
) -> Path:
    """Write a profile whose fake servers run in containers of `image`, and return its path."""
    launch = borrowing(image)
    table = (
        f"[engine.docker]\nimage = {image!r}\npython = {launch.python!r}\n"
        f"volumes = {list(launch.volumes)}\nargs = {list(launch.args)}\n\n[target]"
    )
    text = write_profile(path, arms, repeats=repeats).read_text(encoding="utf-8")
    text = text.replace("[engine]\n", '[engine]\nlaunch = "docker"\n').replace("[target]", table)
    path.write_text(text, encoding="utf-8")
    return path


def containers(image: str) -> list[str]:
    """Return the names of the image's containers in whatever state."""
    form = ("--format", "{{.Names}}")
    return docker("ps", "--all", "--filter", f"ancestor={image}", *form).split()


def _missing() -> str:
    if shutil.which("docker") is None:
        return "the command docker is not on PATH"
    asked = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    return "" if asked.returncode == 0 else f"docker says {' '.join(asked.stderr.split())!r}"


def _root_folder() -> bytes:
    """Return a tar of the folders that mounts and programs expect, and nothing in them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("tmp", "root", "etc", "sbin"):  # Docker puts its init into /sbin
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)
        for name in (name for name in _LINKS if Path("/", name).is_symlink()):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, str(Path("/", name).readlink())
            tar.addfile(link)
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(_PASSWD)
        tar.addfile(passwd, io.BytesIO(_PASSWD))
    return packed.getvalue()
