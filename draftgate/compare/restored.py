"""The real values of a comparison that is taken up again in another process.

Its header holds none that may be secret. Variables come from the caller's environment;
what can't be had is named. Starts nothing.
"""

from collections.abc import Mapping
from dataclasses import replace

from draftgate.compare.records import ComparisonHeader, SideSpec
from draftgate.errors import SpecError
from draftgate.hidden import HIDDEN
from draftgate.specs import Arm, DockerLaunch, EngineSpec


def with_secrets(header: ComparisonHeader, environment: Mapping[str, str]) -> ComparisonHeader:
    """Return the header with the values that its servers have to be started with.

    Args:
        header: As read from disk.
        environment: Variables of the process that goes on.

    Raises:
        SpecError: If a variable is not set there, or an argument was not stored.
    """
    return replace(
        header,
        base=_restored(header.base, environment),
        candidate=_restored(header.candidate, environment),
    )


def _restored(side: SideSpec, environment: Mapping[str, str]) -> SideSpec:
    arms = tuple(Arm(a.name, _engine(a.engine, a.name, environment)) for a in side.arms)
    return replace(side, arms=arms)


def _engine(spec: EngineSpec, arm: str, environment: Mapping[str, str]) -> EngineSpec:
    own = spec.launch.args if isinstance(spec.launch, DockerLaunch) else ()
    if any(HIDDEN in argument for argument in (*spec.args, *own)):
        raise SpecError(
            f"arm {arm!r}: got an argument that was not stored because it may be a secret, "
            "expected all of them. Compare anew, and give the server the secret by [engine.env]: a "
            "variable can be set again."
        )
    missing = [n for n, value in spec.env if value == HIDDEN and not environment.get(n)]
    if missing:
        raise SpecError(
            f"arm {arm!r}: got no value of {', '.join(missing)}, which was not stored because it "
            "may be a secret, expected it in this environment. Set it as it was, then go on."
        )
    env = tuple((n, environment[n] if value == HIDDEN else value) for n, value in spec.env)
    return replace(spec, env=env)
