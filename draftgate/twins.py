"""What a run on a shape twin may claim, and how acceptance is forced on each engine.

A twin has true shapes and random weights (`draftgate.shapes`), so its drafts
would hardly ever be accepted; engines can be told to accept at stated rates
instead. Every report says so, in the words made here. Knows no report.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from draftgate.errors import SpecError
from draftgate.shapes import shape_names
from draftgate.specs import Arm, EngineSpec

_SGLANG_LENGTH = "SGLANG_SIMULATE_ACC_LEN"
_TRTLLM_ACCEPTED = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"


def is_twin(engine: EngineSpec) -> bool:
    """Return whether the engine draws weights instead of loading them."""
    words = [word for argument in engine.args for word in argument.split("=", 1)]
    dummy = any(pair == ("--load-format", "dummy") for pair in pairwise(words))
    return dummy or engine.target in shape_names()


def twin_words(arms: Iterable[Arm]) -> str:
    """Return what a report has to say of these arms; empty if none of them is a twin.

    "Shapes true, weights random, acceptance forced to ...", by arm; an arm whose
    acceptance is left to chance is named too.
    """
    twins = [arm for arm in arms if is_twin(arm.engine)]
    if not twins:
        return ""
    drafting = [arm for arm in twins if arm.engine.speculative is not None]
    forced = {arm.name: words for arm in drafting if (words := forced_words(arm.engine))}
    free = [arm.name for arm in drafting if arm.name not in forced]
    parts = ["Shapes true, weights random"]
    if forced:
        told = "; ".join(f"{words} ({name})" for name, words in forced.items())
        parts.append(f"acceptance forced to {told}")
    if free:
        parts.append(f"acceptance not forced: {', '.join(free)}")
    if not drafting:
        parts.append("no drafts")
    return ", ".join(parts) + ": speed and memory count, text does not."


def forced_words(engine: EngineSpec) -> str | None:
    """Return what acceptance is forced to, in words; None where it is not."""
    if engine.speculative is None:
        return None
    options, env = dict(engine.speculative.options), dict(engine.env)
    if options.get("rejection_sample_method") == "synthetic":
        rates = options.get("synthetic_acceptance_rates")
        if rates is not None:
            return "/".join(f"{rate:g}" for rate in rates) + " by position"
        return f"{options['synthetic_acceptance_length']:g} tokens per step"
    if _SGLANG_LENGTH in env:
        return f"{env[_SGLANG_LENGTH]} tokens per step"
    if _TRTLLM_ACCEPTED in env:
        return f"{float(env[_TRTLLM_ACCEPTED]) + 1:g} tokens per step"
    return None


def geometric_rates(acceptance: float, k: int) -> tuple[float, ...]:
    """Return the probability that the first 1, 2, ..., K drafts are all accepted.

    Each draft is accepted with the same probability a if those before it were,
    so position i has a^i, i from 1.

    Args:
        acceptance: a in [0, 1].
        k: Drafts per step, K >= 1.

    Raises:
        ValueError: If `acceptance` is outside [0, 1].

    Source:
        Leviathan et al., "Fast Inference from Transformers via Speculative
        Decoding", arXiv:2211.17192, section 3.1.
    """
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance: got {acceptance}, expected 0 to 1.")
    return tuple(acceptance**position for position in range(1, k + 1))


def with_forced_rates(arm: Arm, rates: Sequence[float]) -> Arm:
    """Return the arm with acceptance forced, in its engine's own way.

    vLLM takes the rates by position. SGLang and TensorRT-LLM know a mean length
    alone, 1 + the sum of the rates with the bonus token: SGLang is given that
    and told to write real drafts, TensorRT-LLM the length without the bonus token.

    Args:
        arm: A speculative arm.
        rates: Probability that drafts 0..i are all accepted, one per draft, never rising.

    Raises:
        SpecError: If the arm has no drafts, the number of rates is not K, or the
            engine has no such switch.
    """
    engine, speculative = arm.engine, arm.engine.speculative
    if speculative is None or len(rates) != speculative.num_speculative_tokens:
        drafts = speculative.num_speculative_tokens if speculative else 0
        raise SpecError(
            f"arm {arm.name!r}: got {len(rates)} acceptance rates, expected one for each of its "
            f"{drafts} drafts. Make the two agree."
        )
    accepted = sum(rates)
    if engine.engine in ("vllm", "fake"):
        options = {
            key: value
            for key, value in speculative.options
            if not key.startswith("synthetic_acceptance")
        }
        options["rejection_sample_method"] = "synthetic"
        options["synthetic_acceptance_rates"] = tuple(float(rate) for rate in rates)
        changed = replace(speculative, options=tuple(sorted(options.items())))
        return replace(arm, engine=replace(engine, speculative=changed))
    if engine.engine == "sglang":
        variables = {
            _SGLANG_LENGTH: f"{1 + accepted:g}",
            "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
        }
    elif engine.engine == "trtllm":
        variables = {_TRTLLM_ACCEPTED: f"{accepted:g}"}
    else:
        raise SpecError(
            f"arm {arm.name!r}: engine {engine.engine!r} has no switch that forces acceptance; "
            "vllm, sglang and trtllm have. Leave the rates out."
        )
    env = tuple(sorted({**dict(engine.env), **variables}.items()))
    return replace(arm, engine=replace(engine, env=env))
