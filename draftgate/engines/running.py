"""A live server: start, readiness, questions, stop.

Turns an `Arm` into a `RunningEngine` for any registered engine. Several can be
started at once: `launch` returns immediately and `wait_ready` blocks.
"""

import http.client
import json
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.engines.adapter import ENGINES, Command
from draftgate.engines.counters import CounterSnapshot
from draftgate.engines.docker import Container, find_image, in_container, remove_leftovers
from draftgate.engines.process import ChildProcess
from draftgate.errors import EngineError, SpecError
from draftgate.specs import Arm, DockerLaunch, EngineSpec, UrlLaunch

POLL_S = 0.25
HTTP_TIMEOUT_S = 10.0

Progress = Callable[[str], None]


class RunningEngine:
    """One server, ours or somebody else's.

    Attributes:
        arm: What was asked for.
        base_url: Address without `/v1`.
        model: Model name requests carry.
        command: Start command; None for a server that already ran.
        log_path: Its log; None likewise.
        child: Process that is the server, or that holds its container's ends.
        container: The container the server runs in; None outside Docker.
    """

    def __init__(self, arm: Arm, base_url: str, command: Command | None, clock: Clock) -> None:
        self.arm = arm
        self.base_url = base_url
        self.command = command
        self.child: ChildProcess | None = None
        self.container: Container | None = None
        self.model = ""
        self._adapter = ENGINES.get(arm.engine.engine)
        self._clock = clock
        self._idle = threading.Event()

    @property
    def spec(self) -> EngineSpec:
        """What was asked for."""
        return self.arm.engine

    @property
    def pid(self) -> int | None:
        """Process id of our own server; None for one that cannot be seen from here."""
        if self.container is not None:
            return self.container.pid
        return self.child.pid if self.child else None

    @property
    def log_path(self) -> Path | None:
        """Log of our own server; None for one that already ran."""
        return self.child.log_path if self.child else None

    @property
    def api_key_env(self) -> str | None:
        """Name of the variable that holds the key, if the server asks for one."""
        launch = self.spec.launch
        return launch.api_key_env if isinstance(launch, UrlLaunch) else None

    def wait_ready(self, progress: Progress) -> None:
        """Block until requests are served.

        Raises:
            EngineError: If it dies, does not become ready in time, or is ready
                without what its command promised.
        """
        start_ns = self._clock.now_ns()
        last_said = 0.0
        while not self._healthy():
            elapsed_s = (self._clock.now_ns() - start_ns) / 1e9
            self._check_start(elapsed_s)
            if elapsed_s - last_said >= 10:
                last_said = elapsed_s
                progress(f"{self.arm.name}: starting, {elapsed_s:.0f} s")
            self._idle.wait(POLL_S)
        self._check_log()
        if self.container is not None:
            self.container.locate()
        self.model = self._model_name()
        progress(
            f"{self.arm.name}: ready at {self.base_url} after "
            f"{(self._clock.now_ns() - start_ns) / 1e9:.0f} s"
        )

    def check_alive(self) -> None:
        """Do nothing if the server answers.

        Raises:
            EngineError: If it is dead or silent.
        """
        if self.child is not None:
            self.child.raise_if_dead()
        self.get(self._adapter.health_path)

    def version(self) -> str:
        """Return the engine's name and version, as it reports itself."""
        answer = self._json(self.get("/version"), "/version")
        version = answer.get("version", "unknown") if isinstance(answer, dict) else "unknown"
        return f"{self.spec.engine} {version}"

    def scrape(self) -> str | None:
        """Return the raw metrics page; None where the engine has none."""
        path = self._adapter.metrics_path
        return self.get(path) if path else None

    def parse_counters(self, page: str) -> CounterSnapshot:
        """Return the totals of a raw metrics page."""
        return self._adapter.parse_counters(page)

    def stop(self) -> None:
        """End our own server; leave any other alone. Safe to call twice.

        Raises:
            EngineError: If something of it cannot be ended; the message names it.
        """
        try:
            if self.child is not None:
                self.child.stop()
        finally:
            if self.container is not None:
                self.container.remove()

    def get(self, path: str) -> str:
        """Return the body of a GET.

        Raises:
            EngineError: If the server is dead, silent or answers with an error.
        """
        return _fetch(self._request(path), self.arm.name, self.child)

    def post(self, path: str, body: dict[str, Any], timeout_s: float = 120.0) -> Any:
        """Return the decoded JSON answer of a POST.

        Raises:
            EngineError: As for `get`.
        """
        request = self._posting(path, body)
        return self._json(_fetch(request, self.arm.name, self.child, timeout_s), path)

    def answer(self, path: str, body: dict[str, Any], timeout_s: float = 120.0) -> tuple[int, Any]:
        """Return status and decoded JSON answer of a POST, also where the server refuses.

        Raises:
            EngineError: If nothing came, or no JSON.
        """
        request = self._posting(path, body)
        status, text = _exchange(request, self.arm.name, self.child, timeout_s)
        return status, self._json(text, path)

    def _json(self, text: str, path: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise EngineError(
                f"{self.arm.name}: {self.base_url}{path} answered no JSON ({error}); it begins "
                f"{text[:80]!r}. Check that the address is an engine's."
            ) from error

    def _posting(self, path: str, body: dict[str, Any]) -> urllib.request.Request:
        request = self._request(path)
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
        return request

    def _request(self, path: str) -> urllib.request.Request:
        request = urllib.request.Request(self.base_url + path)  # noqa: S310 - checked on entry
        if self.api_key_env is not None:
            request.add_header("Authorization", f"Bearer {read_key(self.api_key_env)}")
        return request

    def _healthy(self) -> bool:
        try:
            self.get(self._adapter.health_path)
        except EngineError:
            if self.child is None:
                raise
            self.child.raise_if_dead()
            return False
        return True

    def _check_start(self, elapsed_s: float) -> None:
        if elapsed_s <= self.spec.startup_timeout_s or self.child is None:
            return
        raise EngineError(
            f"{self.arm.name}: not ready after {elapsed_s:.0f} s (engine.startup_timeout_s = "
            f"{self.spec.startup_timeout_s:g}). Raise it if the machine is slow.\n"
            f"Last lines of {self.child.log_path}:\n{self.child.log_tail()}"
        )

    def _check_log(self) -> None:
        if self.child is None or self.command is None:
            return
        text = self.child.log_path.read_text(encoding="utf-8", errors="replace")
        for line, meaning in self.command.expect_in_log:
            if line not in text:
                raise EngineError(f"{self.arm.name}: {meaning}")

    def _model_name(self) -> str:
        launch = self.spec.launch
        served = self._served()
        wanted = launch.model if isinstance(launch, UrlLaunch) else self._adapter.served_model
        if wanted is None and served:
            return served[0]
        if wanted not in served:
            raise EngineError(
                f"{self.arm.name}: {self.base_url} does not serve model {wanted!r}; it serves "
                f"{', '.join(served) or 'none'}. Set the name in the profile."
            )
        return wanted

    def _served(self) -> list[str]:
        answer = self._json(self.get("/v1/models"), "/v1/models")
        try:
            return [str(model["id"]) for model in answer["data"]]
        except (KeyError, TypeError) as error:
            raise EngineError(
                f"{self.arm.name}: {self.base_url}/v1/models lists no models, got "
                f"{str(answer)[:80]!r}. Check that the address is an engine's."
            ) from error


def launch(
    arm: Arm, log_path: Path, progress: Progress, clock: Clock = SYSTEM_CLOCK
) -> RunningEngine:
    """Start the arm's server, or take up the one that runs, without waiting for it.

    Raises:
        SpecError: If the engine cannot run the arm's spec.
        EngineError: If the process or container cannot be started.
    """
    target = arm.engine.launch
    if isinstance(target, UrlLaunch):
        return RunningEngine(arm, _checked_url(target.url), None, clock)
    image_id = ""
    if isinstance(target, DockerLaunch):
        image_id = find_image(arm.name, target.image)
        remove_leftovers(progress)
    port = free_port()
    command = ENGINES.get(arm.engine.engine).command(arm.engine, port, progress)
    argv = command.argv
    engine = RunningEngine(arm, f"http://127.0.0.1:{port}", command, clock)
    if isinstance(target, DockerLaunch):
        engine.command = command = in_container(command, target, port, image_id)
        engine.container = Container(arm.name)
        argv = engine.container.owned(command.argv)
    engine.child = ChildProcess(arm.name, argv, dict(command.env), log_path, clock)
    return engine


def stop_each(engines: Iterable[RunningEngine]) -> None:
    """Stop all of these; goes on to the next if one stop fails, then raises the first error."""
    errors: list[BaseException] = []
    for engine in engines:
        try:
            engine.stop()
        except BaseException as error:  # noqa: BLE001 - re-raised below, after all others stopped
            errors.append(error)
    if errors:
        raise errors[0]


def read_page_at(url: str, name: str, api_key_env: str | None = None) -> str:
    """Return what a GET of a whole address answers, from a server that is nobody's arm.

    Args:
        url: Address with its path.
        name: Who asks, for messages.
        api_key_env: Name of the variable that holds the key; None without one.

    Raises:
        SpecError: If the address is no http(s) one, or the key is not set.
        EngineError: If nothing answers, or with an error.
    """
    request = urllib.request.Request(_checked_url(url))  # noqa: S310 - checked here
    if api_key_env is not None:
        request.add_header("Authorization", f"Bearer {read_key(api_key_env)}")
    return _fetch(request, name, None)


def free_port() -> int:
    """Return a loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_key(variable: str) -> str:
    """Return the API key held by an environment variable.

    Raises:
        SpecError: If it is not set.
    """
    key = os.environ.get(variable)
    if not key:
        raise SpecError(f"environment variable {variable} is empty; it must hold the API key.")
    return key


def _checked_url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise SpecError(f"url must start with http:// or https://, got {url!r}.")
    return url.rstrip("/")


def _fetch(
    request: urllib.request.Request,
    name: str,
    child: ChildProcess | None,
    timeout_s: float = HTTP_TIMEOUT_S,
) -> str:
    """Return the body of an answer; a refusal is an error."""
    status, text = _exchange(request, name, child, timeout_s)
    if status >= 400:
        raise EngineError(f"{name}: {request.full_url} answered {status}: {text[:300]}")
    return text


def _exchange(
    request: urllib.request.Request, name: str, child: ChildProcess | None, timeout_s: float
) -> tuple[int, str]:
    """Return status and body of whatever came; the key is struck out of a refusal."""
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 - http(s)
            return int(answer.status), str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.code, _without_key(request, error.read().decode(errors="replace"))
    except (OSError, ValueError, http.client.HTTPException) as error:
        if child is not None:
            child.raise_if_dead()
        what = " ".join(str(error).split())  # some quote what the server said, line ends and all
        raise EngineError(
            f"{name}: no answer from {request.full_url}: {what}. Is the server up and the "
            "address right?"
        ) from error


def _without_key(request: urllib.request.Request, text: str) -> str:
    """Return `text` with the request's API key struck out; servers like to repeat it."""
    scheme, _, key = (request.get_header("Authorization") or "").partition(" ")
    return text.replace(key, "***") if scheme and key else text
