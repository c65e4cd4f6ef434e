"""Speculation methods, one a file, and the one function that renders them.

An engine asks by (method, engine) and gets its own form of the setting; a
pair that does not work is an error that lists those that do. To add a method,
write one file here that registers a `Method`.
"""

from collections.abc import Callable
from typing import Any

from draftgate.errors import SpecError
from draftgate.registry import Registry
from draftgate.specs import SpeculativeConfig
from draftgate.speculation.method import Method, Problem, Rule

__all__ = ["METHODS", "Method", "Problem", "Rule", "render", "require_engine"]

METHODS: Registry[Method] = Registry("speculation method", __name__)


def render(config: SpeculativeConfig, engine: str, resolve: Callable[[str], str]) -> dict[str, Any]:
    """Return `config` in the form that `engine` takes.

    Args:
        config: Which drafts, how many.
        engine: Registered engine name; for "vllm" the result is the JSON
            object of `--speculative-config`.
        resolve: Turns a model name, "target" included, into a path or hub name.

    Raises:
        SpecError: If the method or a setting is unknown, settings exclude each
            other, or the engine cannot run the method.
    """
    method = METHODS.get(config.method)
    for problem in method.problems(config):
        raise SpecError(
            f"speculation method {method.name!r}, {problem.key}: got {problem.got}, expected "
            f"{problem.expected}. {problem.next_step}"
        )
    require_engine(method, engine)
    model = None if config.model is None else resolve(config.model)
    return method.renderers[engine](config, model)


def require_engine(method: Method, engine: str) -> None:
    """Check that `engine` can run `method`.

    Raises:
        SpecError: If not; the message lists the engines that can, and the
            methods that this engine can run.
    """
    if engine in method.renderers:
        return
    able = [name for name, other in METHODS if engine in other.renderers]
    raise SpecError(
        f"speculation method {method.name!r} does not run on engine {engine!r}. It runs on: "
        f"{', '.join(sorted(method.renderers))}. Methods of engine {engine!r}: "
        f"{', '.join(able) or 'none known'}."
    )
