"""Text sampled under speculation follows the target's law; the unrepaired CPU build's does not.

The distribution check of `draftgate check`, against a forward pass of the target in this
process, with the server without speculation beside it (the A/A arm).
"""

from collections.abc import Callable

import pytest

from draftgate.checks.budget import TokenBudget
from draftgate.checks.conditions import conditions
from draftgate.checks.outcome import CheckOutcome, CheckResult
from draftgate.checks.run import against_target, take_check
from draftgate.engines.running import RunningEngine
from draftgate.plugin.session import GateSession
from draftgate.specs import Arm, Profile
from draftgate.vllm_plugins import VARIABLE as PLUGINS_VARIABLE
from tests.correctness.conftest import in_float32, without_repair

pytestmark = pytest.mark.correctness

ALPHA = 2e-5
"""Of one check: four of them, what is drawn in `test_situations.py` and the honest run of
`test_planted_mutants.py` share a night's 1e-4."""

ARM_TOKENS = 550
"""Tokens a condition, with which a check may say PASS at all."""

ARM_CONDITIONS = ("T=1.5,top_p=0.9", "T=1,top_k=40")
"""Filters amplify faults; the canary asks for T = .8 and .95 of the mass. `--short` takes the
first alone."""

CANARY = "draft_model"
"""The arm that the repair is tried on: it drafts most."""

CANARY_TOKENS = 2900
"""Tokens in which the repaired server has to pass with SMALLEST_KL ruled out."""

FOUND_TOKENS = 2000
"""Tokens within which the unrepaired server has to be found out; seconds depend on the machine
and are recorded."""

SMALLEST_KL = 1e-2
"""Nats a token that a pass of the canary has to rule out."""

Check = Callable[..., CheckResult]


@pytest.fixture(scope="module")
def check(reference: RunningEngine, draftgate_session: GateSession) -> Check:
    """A function that checks a server's sampled text under the named conditions."""

    def run(engine: RunningEngine, tokens: int, *named: str) -> CheckResult:
        setup = against_target(
            engine,
            reference,
            conditions=conditions(named),
            alpha=ALPHA,
            budget=TokenBudget(tokens),
            seed=11,
        )
        result, _ = take_check(setup, draftgate_session.say, lambda _: None)
        reasons = "; ".join(result.judgement.reasons)
        draftgate_session.say(
            f"{engine.arm.name}: {result.judgement.outcome.name} after {result.findings.tokens} "
            f"tokens and {result.elapsed_s:.0f} s: {reasons}"
        )
        return result

    return run


def test_sampled_text_fits_the_target(
    serve: Callable[[Arm], RunningEngine],
    profile: Profile,
    speculative_arm: str,
    check: Check,
    draftgate_session: GateSession,
) -> None:
    """Nothing in a speculative arm's sampled text speaks against the target's law."""
    if draftgate_session.options.short and speculative_arm == CANARY:
        pytest.skip(f"the canary below asks {CANARY_TOKENS} tokens of this arm")
    engine = serve(in_float32(profile.arm(speculative_arm)))
    asked = ARM_CONDITIONS[:1] if draftgate_session.options.short else ARM_CONDITIONS

    result = check(engine, ARM_TOKENS * len(asked), *asked)

    assert result.judgement.outcome is CheckOutcome.PASS, result.judgement.reasons
    assert result.failures == ()


def test_canary_passes_repaired(
    serve: Callable[[Arm], RunningEngine], profile: Profile, check: Check
) -> None:
    """With the repair on, a draft model's text passes and a small fault is ruled out."""
    engine = serve(in_float32(profile.arm(CANARY)))

    result = check(engine, CANARY_TOKENS, "T=0.8,top_p=0.95")

    assert result.judgement.outcome is CheckOutcome.PASS, result.judgement.reasons
    assert result.findings.detectable_kl <= SMALLEST_KL


def test_canary_is_found_out_unrepaired(
    serve: Callable[[Arm], RunningEngine],
    profile: Profile,
    check: Check,
    record_property: Callable[[str, object], None],
) -> None:
    """With the repair off, vLLM's CPU build is found out (vllm-project/vllm#55005)."""
    arm = profile.arm(CANARY)
    if "cpu_sampling" not in arm.engine.plugins:
        pytest.skip("the profile does not use the repair: there is nothing to switch off")
    engine = serve(without_repair(in_float32(arm)))
    assert engine.command is not None
    assert PLUGINS_VARIABLE not in dict(engine.command.env)

    # No top-k: the unrepaired server dies of it (docs/findings/0002 and #55005).
    result = check(engine, FOUND_TOKENS, "T=1", "T=0.8")
    record_property("elapsed_s", result.elapsed_s)

    assert result.judgement.outcome is CheckOutcome.LOSSY, result.judgement.reasons
    assert result.findings.tokens <= FOUND_TOKENS
    assert result.worst is not None
