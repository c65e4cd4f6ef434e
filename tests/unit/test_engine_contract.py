"""What every registered engine has to do; a new one is tested by being registered."""

import shlex

import pytest

from draftgate.engines import ENGINES
from draftgate.engines.adapter import Command
from draftgate.errors import EngineError, SpecError
from draftgate.specs import EngineSpec, SpeculativeConfig

NGRAM = SpeculativeConfig("ngram", 3, options=(("prompt_lookup_max", 4), ("prompt_lookup_min", 2)))
PORT = 54321
ENGINE_NAMES = ENGINES.names()


def nothing(_line: str) -> None:
    """Take a line of progress."""


def command(name: str, speculative: SpeculativeConfig | None) -> Command:
    """Return an engine's start command for a model that nobody has to resolve."""
    spec = EngineSpec(engine=name, target="organisation/model", speculative=speculative)
    return ENGINES.get(name).command(spec, PORT, nothing)


def test_unknown_engine_lists_the_known() -> None:
    """A misspelt engine is a SpecError that lists all names."""
    with pytest.raises(SpecError, match=r"unknown engine 'vlm'\. Known: fake, vllm"):
        ENGINES.get("vlm")


@pytest.mark.parametrize("name", ENGINE_NAMES)
@pytest.mark.parametrize("speculative", [None, NGRAM], ids=["none", "ngram"])
def test_command_names_the_port_and_can_be_repeated(
    name: str, speculative: SpeculativeConfig | None
) -> None:
    """The command holds the port, and its rendering is one line a shell reads back the same."""
    rendered = command(name, speculative)

    assert str(PORT) in rendered.argv
    assert "\n" not in rendered.render()
    words = shlex.split(rendered.render())
    assert words == [*(f"{key}={value}" for key, value in rendered.env), *rendered.argv]
    assert list(rendered.env) == sorted(rendered.env)


@pytest.mark.parametrize("name", ENGINE_NAMES)
def test_command_tells_speculation_from_none(name: str) -> None:
    """The method and K are in the command, and absent without speculation."""
    with_drafts, without = command(name, NGRAM), command(name, None)

    assert "ngram" in with_drafts.render()
    assert "ngram" not in without.render()


@pytest.mark.parametrize("name", ENGINE_NAMES)
def test_rendering_is_pure(name: str) -> None:
    """The same spec gives the same command twice."""
    assert command(name, NGRAM) == command(name, NGRAM)


@pytest.mark.parametrize("name", ENGINE_NAMES)
def test_garbage_counters_are_an_engine_error(name: str) -> None:
    """A page that is none of this engine's is refused, never read as zeros."""
    adapter = ENGINES.get(name)
    if adapter.metrics_path is None:
        pytest.skip(f"{name} has no metrics page")

    with pytest.raises(EngineError):
        adapter.parse_counters("<html>not found</html>")


@pytest.mark.parametrize("name", ENGINE_NAMES)
def test_paths_are_absolute(name: str) -> None:
    """Paths start with a slash, since they are appended to the address."""
    adapter = ENGINES.get(name)

    assert adapter.health_path.startswith("/")
    assert adapter.metrics_path is None or adapter.metrics_path.startswith("/")
    assert adapter.served_model
