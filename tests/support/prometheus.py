"""Real Prometheus programs for tests: found or the test is skipped, or failed where promised."""

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftgate.engines.running import free_port
from tests.support import programs

REQUIRE = "DRAFTGATE_REQUIRE_PROMETHEUS"

RULES = Path(__file__).parents[2] / "gpu-ci" / "prometheus" / "draft-acceptance.rules.yml"


def require(program: str) -> str:
    """Return the path of a program; skip the test without it, or fail it where it was promised."""
    return programs.require(
        program, promised_by=REQUIRE, missing="the alert rules are not tried. Install prometheus."
    )


def promtool(*args: str | Path) -> str:
    """Return what promtool wrote.

    Raises:
        AssertionError: If it failed.
    """
    done = subprocess.run(
        [require("promtool"), *map(str, args)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def prometheus(folder: Path, config: str) -> Iterator[str]:
    """Yield the address of a Prometheus with this configuration, its data below `folder`."""
    program = require("prometheus")
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")
    url = f"http://127.0.0.1:{free_port()}"
    log = (folder / "prometheus.log").open("w", encoding="utf-8")
    server = subprocess.Popen(
        [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address={url.removeprefix('http://')}",
        ],
        stdout=log,
        stderr=log,
    )
    try:
        yield url
    finally:
        server.terminate()
        server.wait(20)
        log.close()


def short_rules(wait: str) -> str:
    """Return the rules of this repository with `wait` in place of their minutes."""
    return re.sub(
        r"for: \d+m$", f"for: {wait}", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE
    )


def firing(url: str) -> set[str]:
    """Return the names of the alerts that fire in the Prometheus at this address."""
    with urllib.request.urlopen(f"{url}/api/v1/alerts", timeout=10) as answer:
        alerts: list[dict[str, Any]] = json.load(answer)["data"]["alerts"]
    return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}


def wait_for(what: str, ask: Callable[[], Any], timeout_s: float) -> Any:
    """Return the first answer that is true.

    Raises:
        AssertionError: If none was in time; the message holds the last one.
    """
    end = time.monotonic() + timeout_s
    answer: Any = None
    while time.monotonic() < end:
        try:
            answer = ask()
        except OSError as error:  # not up yet
            answer = error
        if answer and not isinstance(answer, OSError):
            return answer
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {timeout_s:g} s; last seen {answer!r}")
