"""[engine] and [[arm]]: the servers of a profile.

Every arm is the shared engine with its own drafts, and with its own arguments
and variables on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.errors import SpecError
from draftgate.specfile.docker import read_docker
from draftgate.specfile.keys import ARM_KEYS, ENGINE_KEYS, FOREIGN_KEYS, SPEC_KEYS
from draftgate.specfile.paths import interpreter, model_name
from draftgate.specfile.table import Key, Place, read_list, read_table, show, suggestion
from draftgate.specs import (
    NO_SPECULATION,
    Arm,
    DockerLaunch,
    EngineSpec,
    Launch,
    ProcessLaunch,
    SpeculativeConfig,
    UrlLaunch,
    WorkloadSpec,
)
from draftgate.speculation import METHODS, Method, require_engine


@dataclass(frozen=True, slots=True)
class EngineTable:
    """The [engine] table: what all arms share.

    Attributes:
        given: Its checked keys.
        place: Where it stands, for messages.
        folder: The profile's folder.
    """

    given: Mapping[str, Any]
    place: Place
    folder: Path

    @classmethod
    def read(cls, raw: Any, place: Place, folder: Path) -> "EngineTable":
        """Return the checked table.

        Raises:
            SpecError: If a key is wrong, or belongs to another kind of launch.
        """
        given = read_table(raw, ENGINE_KEYS, place)
        kind = given.get("launch", "process")
        for key in FOREIGN_KEYS[kind]:
            if key in given:
                place.at(key).fail(
                    show(given[key]),
                    f'no such key with launch = "{kind}"',
                    _instead_of(key, kind),
                )
        if "python" in given:
            given["python"] = interpreter(given["python"], place.at("python"), folder)
        if kind == "docker":
            given["docker"] = read_docker(given.get("docker"), place.at("docker"), folder)
        return cls(given, place, folder)

    @property
    def by_url(self) -> bool:
        """Whether the servers already run."""
        return self.given.get("launch") == "url"

    @property
    def name(self) -> str:
        """The engine's name."""
        return str(self.given["name"])

    def launch(self, arm: Mapping[str, Any], place: Place) -> Launch:
        """Return how this arm's server comes to life.

        Raises:
            SpecError: If the arm's keys do not fit the launch.
        """
        if not self.by_url:
            if "url" in arm:
                place.at("url").fail(
                    show(arm["url"]),
                    "no url for a server that draftgate starts",
                    'Set engine.launch = "url".',
                )
            container: DockerLaunch | None = self.given.get("docker")
            return container or ProcessLaunch(self.given.get("python"))
        for key in ("args", "env"):
            if key in arm:
                place.at(key).fail(
                    show(arm[key]), "none for a server that already runs", "Drop the key."
                )
        url = arm.get("url", self.given.get("url"))
        if url is None:
            place.at("url").fail(
                "nothing",
                'the address of this arm\'s server, since engine.launch = "url"',
                "Add the key here, or under [engine] if there is one arm.",
            )
        address = url.rstrip("/").removesuffix("/v1")
        return UrlLaunch(address, self.given.get("model"), self.given.get("api_key_env"))

    def spec(
        self,
        target: str,
        launch: Launch,
        speculative: SpeculativeConfig | None,
        arm: Mapping[str, Any],
        workload: WorkloadSpec,
    ) -> EngineSpec:
        """Return the server of one arm: the shared settings and the arm's own on top."""
        shared = {key: self.given[key] for key in SPEC_KEYS if key in self.given}
        if self.by_url:
            shared.setdefault("max_num_seqs", max(workload.concurrencies))
        env = dict(self.given.get("env", ())) | dict(arm.get("env", ()))
        return EngineSpec(
            engine=self.name,
            target=target,
            launch=launch,
            speculative=speculative,
            args=self.given.get("args", ()) + arm.get("args", ()),
            env=tuple(sorted(env.items())),
            **shared,
        )


def read_arms(
    raw: Any, place: Place, engine: EngineTable, target: str, workload: WorkloadSpec
) -> tuple[Arm, ...]:
    """Return the arms: each with the server that the shared and its own keys describe.

    Raises:
        SpecError: If an arm is wrong by itself, or beside the others.
    """
    arms: list[Arm] = []
    for index, entry in enumerate(read_list(raw, place.at("arm"))):
        name = entry.get("name") if isinstance(entry, dict) else None
        here = place.at(f"arm.{name}" if isinstance(name, str) else f"arm[{index}]")
        arm, method = _read_arm(entry, here)
        if any(arm["name"] == other.name for other in arms):
            here.at("name").fail(show(arm["name"]), "a name of its own", "Rename one of the two.")
        speculative = _speculative(arm, method, engine, here)
        launch = engine.launch(arm, here)
        arms.append(Arm(arm["name"], engine.spec(target, launch, speculative, arm, workload)))
    _check_addresses(arms, place)
    return tuple(arms)


def _instead_of(key: str, kind: str) -> str:
    """Return what to do about a key of [engine] that this kind of launch does not know."""
    if kind == "url":
        return "draftgate does not start that server. Drop the key."
    if key == "python":
        return "Name the image's interpreter as engine.docker.python."
    return f'Drop the key, or set launch = "{"docker" if key == "docker" else "url"}".'


def _read_arm(entry: Any, place: Place) -> tuple[dict[str, Any], Method | None]:
    name = entry.get("method") if isinstance(entry, dict) else None
    if name is None or name == NO_SPECULATION or not isinstance(name, str):
        return read_table(entry, ARM_KEYS, place), None
    known = (NO_SPECULATION, *METHODS.names())
    if name not in known:
        place.at("method").fail(
            show(name),
            f"one of {', '.join(known)}",
            f"Correct the method.{suggestion(name, known)}",
        )
    method = METHODS.get(name)
    options = {key: Key(rule) for key, rule in method.options.items()}
    return read_table(entry, {**ARM_KEYS, **options}, place), method


def _speculative(
    arm: dict[str, Any], method: Method | None, engine: EngineTable, place: Place
) -> SpeculativeConfig | None:
    if method is None:
        for key in ("num_speculative_tokens", "model"):
            if key in arm:
                place.at(key).fail(
                    show(arm[key]),
                    f'none with method = "{NO_SPECULATION}"',
                    "Drop the key, or name a method.",
                )
        return None
    if arm["name"] == NO_SPECULATION:
        place.at("method").fail(
            show(method.name),
            f'"{NO_SPECULATION}" for the arm of that name, the reference',
            "Rename the arm.",
        )
    if "num_speculative_tokens" not in arm:
        place.at("num_speculative_tokens").fail(
            "nothing",
            f"a whole number >= 1 with method = {show(method.name)}",
            "Add the number of drafts per step.",
        )
    return _checked(arm, method, engine, place)


def _checked(
    arm: dict[str, Any], method: Method, engine: EngineTable, place: Place
) -> SpeculativeConfig:
    options = {key: arm[key] for key in sorted(method.options) if key in arm}
    config = SpeculativeConfig(
        method.name,
        arm["num_speculative_tokens"],
        model_name(arm["model"], place.at("model"), engine.folder) if "model" in arm else None,
        tuple(options.items()),
    )
    for problem in method.problems(config, started_by_us=not engine.by_url):
        place.at(problem.key).fail(problem.got, problem.expected, problem.next_step)
    try:
        require_engine(method, engine.name)
    except SpecError as error:
        raise SpecError(f"{place.source}: {place.path}.method: {error}") from error
    return config


def _check_addresses(arms: list[Arm], place: Place) -> None:
    """Refuse two arms that claim one running server for two ways of drafting."""
    seen: dict[str, Arm] = {}
    for arm in arms:
        launch = arm.engine.launch
        if not isinstance(launch, UrlLaunch):
            continue
        other = seen.setdefault(launch.url, arm)
        if other.engine.speculative != arm.engine.speculative:
            place.at(f"arm.{arm.name}.url").fail(
                show(launch.url),
                f"another address than that of arm {other.name!r}, whose drafts differ",
                "Give each arm the address of its own server.",
            )
