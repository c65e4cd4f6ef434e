"""Text sampled at temperature 1 under speculation can have come from the target's law."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from draftgate.checks.ask import in_parallel, sampled_answer, scored_tokens
from draftgate.checks.sampling import SamplingCheck, ScoredToken, check_sampled
from draftgate.datasets import Prompt, load_prompts
from draftgate.engines.running import RunningEngine
from draftgate.plugin.session import GateSession
from draftgate.specs import Arm, Profile
from draftgate.targets import resolve_target
from draftgate.vllm_plugins import VARIABLE as PLUGINS_VARIABLE
from tests.correctness.conftest import in_float32, without_repair

pytestmark = pytest.mark.correctness

PROMPTS = 24
TOKENS = 24

Check = Callable[[RunningEngine, int], SamplingCheck]


@pytest.fixture(scope="module")
def check(reference: RunningEngine, draftgate_session: GateSession) -> Check:
    """A function that samples from a server, scores by the reference and adds up the evidence."""
    prompts = load_prompts("mixed", seed=11)[:PROMPTS]
    target = Path(resolve_target(reference.spec.target, log=draftgate_session.say))
    vocabulary = json.loads((target / "config.json").read_text())["vocab_size"]

    def run(engine: RunningEngine, seed: int) -> SamplingCheck:
        def answer(prompt: Prompt) -> tuple[ScoredToken, ...]:
            sampled = sampled_answer(
                engine.post, engine.model, prompt, TOKENS, temperature=1.0, seed=seed
            )
            return scored_tokens(reference.post, reference.model, sampled)

        result = check_sampled(in_parallel(answer, prompts), vocabulary=vocabulary)
        draftgate_session.say(f"{engine.arm.name}: {result}")
        return result

    return run


def test_sampled_text_fits_the_target(
    serve: Callable[[Arm], RunningEngine], profile: Profile, speculative_arm: str, check: Check
) -> None:
    """Nothing in a speculative arm's sampled text speaks against the target's law."""
    engine = serve(in_float32(profile.arm(speculative_arm)))

    result = check(engine, 2)

    assert result.passed, str(result)


def test_reference_fits_itself(reference: RunningEngine, check: Check) -> None:
    """Text sampled without speculation fits its own law (same-versus-same run)."""
    result = check(reference, 3)

    assert result.passed, str(result)


def test_unrepaired_sampling_is_caught(
    serve: Callable[[Arm], RunningEngine], profile: Profile, check: Check
) -> None:
    """With the sampling repair off, vLLM's CPU build is found out (vllm-project/vllm#55005)."""
    arm = profile.arm("draft_model")
    if "cpu_sampling" not in arm.engine.plugins:
        pytest.skip("the profile does not use the repair: there is nothing to switch off")

    engine = serve(without_repair(in_float32(arm)))
    assert engine.command is not None
    assert PLUGINS_VARIABLE not in dict(engine.command.env)
    result = check(engine, 2)

    assert not result.passed, str(result)
