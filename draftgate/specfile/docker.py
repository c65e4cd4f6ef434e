"""[engine.docker]: the container that every arm's server runs in.

Only what a file alone can tell is checked: whether the image is there, and
Docker at all, is asked when a server starts.
"""

import re
from pathlib import Path
from typing import Any

from draftgate.specfile.keys import DOCKER_KEYS
from draftgate.specfile.table import Place, read_table, show
from draftgate.specs import DockerLaunch

_NAMED_VOLUME = re.compile(r"[A-Za-z0-9][\w.-]*")
_OWN_FLAGS = {
    "--name": "draftgate finds its containers by it",
    "--detach": "the log and the exit code come from the foreground",
    "-d": "the log and the exit code come from the foreground",
    "--network": "it is a key of its own, network",
    "--net": "it is a key of its own, network",
    "--entrypoint": "it is a key of its own, entrypoint",
}


def read_docker(raw: Any, place: Place, folder: Path) -> DockerLaunch:
    """Return the container that the table describes.

    Args:
        raw: What stands at `[engine.docker]`; None for nothing.
        place: For messages.
        folder: The profile's folder, where relative paths of volumes start.

    Raises:
        SpecError: If the table is missing, a key is wrong, or two keys cannot
            go together.
    """
    if raw is None:
        place.fail("nothing", 'a table [engine.docker] with launch = "docker"', "Name its image.")
    given = read_table(raw, DOCKER_KEYS, place)
    if "shm_size" in given and given.get("ipc") == "host":
        place.at("shm_size").fail(
            show(given["shm_size"]),
            'none with ipc = "host", which shares the machine\'s own /dev/shm',
            "Drop one of the two.",
        )
    for arg in given.get("args", ()):
        reason = _OWN_FLAGS.get(arg.partition("=")[0])
        if reason is not None:
            place.at("args").fail(show(arg), f"other flags: {reason}", "Drop the flag.")
    volumes = given.get("volumes", ())
    given["volumes"] = tuple(_volume(text, place.at("volumes"), folder) for text in volumes)
    return DockerLaunch(**given)


def _volume(text: str, place: Place, folder: Path) -> str:
    """Return `SOURCE:TARGET[:ro]` with a SOURCE that is a volume's name or a path that exists."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not target.startswith("/") or mode not in ("", "ro", "rw"):
        place.fail(
            show(text),
            "SOURCE:TARGET or SOURCE:TARGET:ro, TARGET an absolute path",
            "Correct the entry.",
        )
    if not _NAMED_VOLUME.fullmatch(source):
        path = (folder / Path(source).expanduser()).absolute()
        if not path.exists():
            place.fail(show(text), f"something to mount; nothing is at {path}", "Correct the path.")
        source = str(path)
    return f"{source}:{target}:ro" if mode == "ro" else f"{source}:{target}"
