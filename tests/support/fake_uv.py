"""A program `uv` that answers from a table and writes a small site; no network.

What it is told and what it does is in one JSON file beside it:
`pins` are the lines of `uv pip compile` (`alone` with --no-deps), `files` is path -> content of the
site, `fail` the subcommand that ends with an error.
"""

import json
import sys
from pathlib import Path
from typing import Any

_PROGRAM = """#!{python}
import json, sys, zipfile
from pathlib import Path

here = Path(__file__).parent
told = json.loads((here / "uv.json").read_text())
argv = sys.argv[1:]
verb = "build" if argv[0] == "build" else argv[1]
calls = here / "calls.jsonl"
with calls.open("a") as log:
    log.write(json.dumps([verb, argv, sys.stdin.read() if verb == "compile" else ""]) + "\\n")
if told.get("fail") == verb:
    sys.stderr.write("  x No solution found for acme\\n")
    sys.exit(1)
if verb == "compile":
    print("\\n".join(told["alone" if "--no-deps" in argv else "pins"]))
elif verb == "build":
    folder = Path(argv[argv.index("--out-dir") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "draftgate-0-py3-none-any.whl").write_bytes(b"")
else:
    site = Path(argv[argv.index("--target") + 1])
    for name, text in told["files"].items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)
"""


def write_fake_uv(folder: Path, **told: Any) -> Path:
    """Put the program into `folder` and return the file that lists what it was asked."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "uv"
    program.write_text(_PROGRAM.replace("{python}", sys.executable), encoding="utf-8")
    program.chmod(0o755)
    (folder / "uv.json").write_text(json.dumps(told), encoding="utf-8")
    return folder / "calls.jsonl"


def calls(path: Path) -> list[tuple[str, list[str], str]]:
    """Return (verb, arguments, standard input) of every call so far."""
    return [tuple(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
