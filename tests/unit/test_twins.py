"""What a report says of shape twins, and how acceptance is forced on each engine."""

from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.errors import SpecError
from draftgate.report.headline import sentence
from draftgate.report.html import render_html
from draftgate.report.markdown import render_markdown
from draftgate.report.summary import summarise
from draftgate.specfile import load_profile, profile_names
from draftgate.specs import Arm, EngineSpec, SpeculativeConfig
from draftgate.twins import geometric_rates, is_twin, twin_words, with_forced_rates
from tests.support.report_runs import stored_run
from tests.support.samples import make_profile

SYNTHETIC = (
    ("rejection_sample_method", "synthetic"),
    ("synthetic_acceptance_rates", (0.8, 0.5)),
)


def arm(name: str = "eagle3", engine: str = "vllm", **changes: object) -> Arm:
    """Return an arm on a twin, K = 2."""
    spec = EngineSpec(engine, "shape-tiny", speculative=SpeculativeConfig("eagle3", 2, "head"))
    return Arm(name, replace(spec, **changes))  # type: ignore[arg-type] - fields by name


NONE = arm("none", speculative=None)
FORCED = arm(speculative=SpeculativeConfig("eagle3", 2, "head", SYNTHETIC))


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ((NONE,), "Shapes true, weights random, no drafts"),
        (
            (NONE, FORCED),
            "Shapes true, weights random, acceptance forced to 0.8/0.5 by position (eagle3)",
        ),
        ((NONE, arm("a")), "Shapes true, weights random, acceptance not forced: a"),
        (
            (arm("sgl", env=(("SGLANG_SIMULATE_ACC_LEN", "2.3"),)),),
            "Shapes true, weights random, acceptance forced to 2.3 tokens per step (sgl)",
        ),
        (
            (arm("trt", env=(("TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS", "1.3"),)),),
            "Shapes true, weights random, acceptance forced to 2.3 tokens per step (trt)",
        ),
    ],
)
def test_words_say_what_is_true_and_what_is_forced(arms: tuple[Arm, ...], words: str) -> None:
    """Each engine's way of forcing acceptance is told by arm, and what is left to chance too."""
    assert twin_words(arms) == f"{words}: speed and memory count, text does not."


@pytest.mark.parametrize(
    ("args", "target", "twin"),
    [
        ((), "shape-tiny", True),
        (("--load-format", "dummy"), "/models/real", True),
        (("--load-format=dummy",), "/models/real", True),
        (("--load-format", "auto", "--x", "dummy"), "/models/real", False),
        ((), "smollm2-135m-instruct", False),
    ],
)
def test_a_twin_is_known_by_name_or_by_drawn_weights(
    args: tuple[str, ...], target: str, *, twin: bool
) -> None:
    """A shape's name or weights that the engine draws make a twin, in either spelling."""
    assert is_twin(EngineSpec("vllm", target, args=args)) is twin
    assert bool(twin_words([Arm("none", EngineSpec("vllm", target, args=args))])) is twin


@pytest.mark.parametrize("name", profile_names())
def test_profiles_of_twins_say_so(name: str) -> None:
    """Profiles called shape-* are twins, no other is; on GPUs acceptance of heads is forced."""
    profile = load_profile(name)
    words = twin_words(profile.arms)

    assert bool(words) is name.startswith("shape-")
    if words and name != "shape-tiny":
        assert "forced to" in words
        assert "eagle3" not in words.partition("not forced")[2]


def test_every_form_of_a_report_says_so(tmp_path: Path) -> None:
    """Headline, page and Markdown of a run on a twin all carry the words; other runs do not."""
    profile = make_profile(concurrencies=(1,), repeats=1)
    arms = tuple(replace(a, engine=replace(a.engine, target="shape-tiny")) for a in profile.arms)
    twin = summarise(stored_run(tmp_path, replace(profile, arms=arms)))
    real = summarise(stored_run(tmp_path, profile))

    assert "Shapes true, weights random" in sentence(twin)
    assert "Shapes true, weights random" in render_html(twin)
    assert "Shapes true, weights random" in render_markdown(twin)
    assert "weights random" not in render_html(real)


def test_rates_are_powers() -> None:
    """Position i is reached with a^i; the mean length is then (1 - a^(K+1)) / (1 - a)."""
    rates = geometric_rates(0.8, 3)

    assert rates == pytest.approx((0.8, 0.64, 0.512))
    assert 1 + sum(rates) == pytest.approx((1 - 0.8**4) / (1 - 0.8))
    assert geometric_rates(0, 2) == (0, 0)
    with pytest.raises(ValueError, match="expected 0 to 1"):
        geometric_rates(1.1, 2)


def test_forced_rates_are_given_in_each_engine_s_way() -> None:
    """By position to vLLM; as 1 + sum to SGLang; as the sum to TensorRT-LLM."""
    vllm = with_forced_rates(arm(env=(("A", "1"),)), (0.8, 0.5)).engine
    sglang = with_forced_rates(arm(engine="sglang", env=(("A", "1"),)), (0.8, 0.5)).engine
    trtllm = with_forced_rates(arm(engine="trtllm"), (0.8, 0.5)).engine

    assert vllm.speculative is not None
    assert (vllm.speculative.options, vllm.env) == (SYNTHETIC, (("A", "1"),))
    assert dict(sglang.env) == {
        "A": "1",
        "SGLANG_SIMULATE_ACC_LEN": "2.3",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
    }
    assert dict(trtllm.env) == {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.3"}


def test_forcing_replaces_what_was_forced_before() -> None:
    """A length that a profile forces gives way to the rates, since vLLM takes one of the two."""
    options = (("rejection_sample_method", "synthetic"), ("synthetic_acceptance_length", 2.0))
    before = arm(speculative=SpeculativeConfig("eagle3", 2, "head", options))
    after = with_forced_rates(before, (0.8, 0.5)).engine.speculative

    assert after is not None
    assert after.options == SYNTHETIC


@pytest.mark.parametrize(
    ("which", "rates", "message"),
    [
        (NONE, (0.5,), r"arm 'none': got 1 acceptance rates, expected one for each of its 0"),
        (arm(), (0.5,), r"arm 'eagle3': got 1 acceptance rates, expected .* its 2 drafts"),
        (arm(engine="acme"), (0.5, 0.2), r"engine 'acme' has no switch that forces acceptance"),
    ],
)
def test_what_cannot_be_forced_is_refused(
    which: Arm, rates: tuple[float, ...], message: str
) -> None:
    """No drafts, another number of rates, or an engine without the switch is one clear error."""
    with pytest.raises(SpecError, match=message):
        with_forced_rates(which, rates)
