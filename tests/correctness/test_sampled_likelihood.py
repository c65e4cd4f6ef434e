"""Text sampled at temperature 1 under speculation is as likely as it should be."""

from collections.abc import Callable

import pytest

from draftgate.checks.ask import in_parallel, mean_cost_nats, sampled_answer
from draftgate.checks.sampling import compare_likelihood
from draftgate.datasets import Prompt, load_prompts
from draftgate.engines.running import RunningEngine
from draftgate.engines.vllm import PLUGINS_VARIABLE
from draftgate.specs import Arm, Profile
from tests.correctness.conftest import in_float32, without_repair

pytestmark = pytest.mark.correctness

PROMPTS = 24
TOKENS = 24


@pytest.fixture(scope="module")
def costs(reference: RunningEngine) -> Callable[[RunningEngine, int], list[float]]:
    """A function that samples from a server and returns what the text costs under the reference."""
    prompts = load_prompts("mixed", seed=11)[:PROMPTS]

    def measure(engine: RunningEngine, seed: int) -> list[float]:
        def cost(prompt: Prompt) -> float:
            answer = sampled_answer(
                engine.post, engine.model, prompt, TOKENS, temperature=1.0, seed=seed
            )
            return mean_cost_nats(reference.post, reference.model, answer)

        return in_parallel(cost, prompts)

    return measure


@pytest.fixture(scope="module")
def honest(
    reference: RunningEngine, costs: Callable[[RunningEngine, int], list[float]]
) -> list[float]:
    """Costs of text sampled without speculation."""
    return costs(reference, 1)


def test_sampled_text_is_as_likely_as_without_speculation(
    serve: Callable[[Arm], RunningEngine],
    profile: Profile,
    speculative_arm: str,
    honest: list[float],
    costs: Callable[[RunningEngine, int], list[float]],
) -> None:
    """Each speculative arm's sampled text costs as many nats as text without speculation."""
    engine = serve(in_float32(profile.arm(speculative_arm)))

    check = compare_likelihood(honest, costs(engine, 2))

    assert check.alike, str(check)


def test_reference_against_itself_is_alike(
    reference: RunningEngine,
    honest: list[float],
    costs: Callable[[RunningEngine, int], list[float]],
) -> None:
    """Two samples of the server without speculation are alike (same-versus-same run)."""
    check = compare_likelihood(honest, costs(reference, 3))

    assert check.alike, str(check)


def test_unrepaired_sampling_is_caught(
    serve: Callable[[Arm], RunningEngine],
    profile: Profile,
    honest: list[float],
    costs: Callable[[RunningEngine, int], list[float]],
) -> None:
    """With the sampling repair off, vLLM's CPU build is found out (vllm-project/vllm#55005)."""
    arm = profile.arm("draft_model")
    if "cpu_sampling" not in arm.engine.plugins:
        pytest.skip("the profile does not use the repair: there is nothing to switch off")
    broken = without_repair(in_float32(arm))

    engine = serve(broken)
    assert engine.command is not None
    assert PLUGINS_VARIABLE not in dict(engine.command.env)
    check = compare_likelihood(honest, costs(engine, 2))

    assert not check.alike, str(check)
