"""What a speculation method is, and the rules its settings obey.

A `Method` is a declaration: which settings it knows, whether it needs a draft
model, whether it claims to leave the output distribution alone, and how each
engine is told about it. Knows no engine process and reads no file; problems
are reported as records, so that a caller can add the place they came from.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from draftgate.specs import SpeculativeConfig

TARGET = "target"
"""Draft model name that stands for the target itself."""

Renderer = Callable[[SpeculativeConfig, str | None], dict[str, Any]]
"""(config, resolved draft model) -> the engine's own form of the setting."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value has to be.

    Attributes:
        expected: The rule in words, for messages.
        accepts: Whether a value as read from TOML keeps the rule.
        convert: Brings an accepted value into the form that records hold.
        choices: Known values where they can be listed.
    """

    expected: str
    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any] = lambda value: value
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a setting: where, what was got, what was expected, what to do."""

    key: str
    got: str
    expected: str
    next_step: str


Check = Callable[[SpeculativeConfig], Iterable[Problem]]
"""Looks at settings together and yields what does not fit."""


def is_integer(value: object) -> bool:
    """Return whether `value` is a whole number and not a truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether `value` is a finite number and not a truth value."""
    if isinstance(value, float):
        return abs(value) < float("inf")
    return is_integer(value)


def integer(low: int, high: int | None = None) -> Rule:
    """Return the rule for a whole number in [low, high]."""
    words = f"a whole number >= {low}" if high is None else f"a whole number in {low}..{high}"

    def accepts(value: Any) -> bool:
        return is_integer(value) and low <= value and (high is None or value <= high)

    return Rule(words, accepts)


def choice(*names: str) -> Rule:
    """Return the rule for one of `names`."""
    return Rule(
        "one of " + ", ".join(f'"{name}"' for name in names),
        lambda value: isinstance(value, str) and value in names,
        choices=names,
    )


def boolean() -> Rule:
    """Return the rule for true or false."""
    return Rule("true or false", lambda value: isinstance(value, bool))


def text() -> Rule:
    """Return the rule for a string that is not empty."""
    return Rule(
        "a string that is not empty", lambda value: isinstance(value, str) and bool(value.strip())
    )


def _rates() -> Rule:
    def accepts(value: Any) -> bool:
        return (
            isinstance(value, list | tuple)
            and bool(value)
            and all(is_number(rate) and 0 <= rate <= 1 for rate in value)
            and list(value) == sorted(value, reverse=True)
        )

    return Rule(
        "a list of probabilities in 0..1 that never rise",
        accepts,
        lambda value: tuple(float(rate) for rate in value),
    )


def _schedule() -> Rule:
    def accepts(value: Any) -> bool:
        return (
            isinstance(value, list | tuple)
            and bool(value)
            and all(_is_step(step) for step in value)
        )

    return Rule(
        "a list of [from, to, k] with 1 <= from <= to and k >= 0",
        accepts,
        lambda value: tuple(tuple(step) for step in value),
    )


def _is_step(step: Any) -> bool:
    if not isinstance(step, list | tuple) or len(step) != 3 or not all(map(is_integer, step)):
        return False
    first, last, drafts = step
    return bool(1 <= first <= last and drafts >= 0)


def _length() -> Rule:
    return Rule(
        "a number >= 1",
        lambda value: is_number(value) and value >= 1,
        float,
    )


COMMON_OPTIONS: Mapping[str, Rule] = {
    "draft_sample_method": choice("greedy", "probabilistic"),
    "rejection_sample_method": choice("standard", "synthetic", "block"),
    "synthetic_acceptance_rates": _rates(),
    "synthetic_acceptance_length": _length(),
    "num_speculative_tokens_per_batch_size": _schedule(),
}
"""Settings of every method, by vLLM's names (`vllm/config/speculative.py`, 0.32)."""

_SYNTHETIC_KEYS = ("synthetic_acceptance_rates", "synthetic_acceptance_length")

DRAFTER_OPTIONS: Mapping[str, Rule] = {
    **COMMON_OPTIONS,
    "draft_tensor_parallel_size": integer(1),
    "quantization": text(),
    "moe_backend": text(),
    "attention_backend": text(),
    "kv_cache_dtype": text(),
    "max_model_len": integer(1),
    "draft_load_config": Rule("a table", lambda value: isinstance(value, dict)),
    "disable_padded_drafter_batch": boolean(),
    "use_local_argmax_reduction": boolean(),
}
"""Settings of the methods that run a draft network; same source."""


def vllm_form(config: SpeculativeConfig, model: str | None, **fixed: Any) -> dict[str, Any]:
    """Return the object that vLLM takes as `--speculative-config`.

    Args:
        config: What to render; its options already have vLLM's names.
        model: Path or hub name of the draft; None where there is none.
        **fixed: Fields that the method sets by itself; they win.
    """
    form: dict[str, Any] = {
        "method": config.method,
        "num_speculative_tokens": config.num_speculative_tokens,
    }
    if model is not None:
        form["model"] = model
    form.update((key, _plain(value)) for key, value in config.options)
    return form | fixed


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Method:
    """One way to make drafts.

    Attributes:
        name: vLLM's spelling, as in profiles.
        title: What a person would call it.
        lossless: Whether output follows the target's own distribution by the
            method's claim, as long as no lossy verification is chosen.
        needs_model: Whether it drafts with a model or head of its own.
        drafts_with_target: Whether that model may be the target itself.
        options: Settings it knows, by profile key.
        renderers: Form of the setting by engine name; an engine that is not a
            key cannot run the method.
        checks: What its settings must satisfy together.
    """

    name: str
    title: str
    lossless: bool
    needs_model: bool
    drafts_with_target: bool
    options: Mapping[str, Rule]
    renderers: Mapping[str, Renderer] = field(repr=False)
    checks: tuple[Check, ...] = ()

    def claims_losslessness(self, config: SpeculativeConfig) -> bool:
        """Return whether `config` claims to leave the output distribution alone.

        Forced acceptance ("synthetic") takes drafts whatever the target says,
        so it never does.
        """
        return self.lossless and dict(config.options).get("rejection_sample_method") != "synthetic"

    def problems(
        self, config: SpeculativeConfig, *, started_by_us: bool = True
    ) -> tuple[Problem, ...]:
        """Return everything wrong with `config`.

        Args:
            config: Settings with this method's name.
            started_by_us: False for a server that already runs: its draft
                model need not be known here.
        """
        found = [
            *self._option_problems(config),
            *self._model_problems(config, started_by_us=started_by_us),
        ]
        if not found:
            found.extend(_synthetic_problems(config))
            found.extend(problem for check in self.checks for problem in check(config))
        return tuple(found)

    def _option_problems(self, config: SpeculativeConfig) -> Iterator[Problem]:
        for key, value in config.options:
            rule = self.options.get(key)
            if rule is None:
                known = ", ".join(sorted(self.options))
                yield Problem(key, repr(value), f"a setting of {self.name}: {known}", "Drop it.")
            elif not rule.accepts(value):
                yield Problem(key, repr(value), rule.expected, "Correct the value.")

    def _model_problems(
        self, config: SpeculativeConfig, *, started_by_us: bool
    ) -> Iterator[Problem]:
        if self.needs_model and config.model is None and started_by_us:
            yield Problem(
                "model",
                "nothing",
                f"the draft model of method {self.name!r}",
                "Give a folder or hub name"
                + (', or "target" for the target itself.' if self.drafts_with_target else "."),
            )
        if not self.needs_model and config.model is not None:
            yield Problem(
                "model",
                repr(config.model),
                f"no model, since method {self.name!r} drafts without one",
                "Drop the key.",
            )
        if config.model == TARGET and self.needs_model and not self.drafts_with_target:
            yield Problem(
                "model",
                repr(config.model),
                f"a head trained for the target, which method {self.name!r} needs",
                "Give the head's folder or hub name.",
            )


def _synthetic_problems(config: SpeculativeConfig) -> Iterator[Problem]:
    options = dict(config.options)
    given = [key for key in _SYNTHETIC_KEYS if key in options]
    if options.get("rejection_sample_method") != "synthetic":
        for key in given:
            yield Problem(
                key,
                repr(options[key]),
                'rejection_sample_method = "synthetic" beside it',
                "Add that, or drop the key.",
            )
        return
    if len(given) != 1:
        yield Problem(
            "rejection_sample_method",
            f'"synthetic" with {len(given)} of its two settings',
            "exactly one of " + " and ".join(_SYNTHETIC_KEYS),
            "Keep one of the two.",
        )
        return
    yield from _synthetic_size_problems(config, options)


def _synthetic_size_problems(
    config: SpeculativeConfig, options: Mapping[str, Any]
) -> Iterator[Problem]:
    k = config.num_speculative_tokens
    rates = options.get("synthetic_acceptance_rates")
    if rates is not None and len(rates) != k:
        yield Problem(
            "synthetic_acceptance_rates",
            f"{len(rates)} rates",
            f"one per draft position, num_speculative_tokens = {k}",
            "Make the two agree.",
        )
    length = options.get("synthetic_acceptance_length")
    if length is not None and length > k + 1:
        yield Problem(
            "synthetic_acceptance_length",
            repr(length),
            f"at most num_speculative_tokens + 1 = {k + 1}, the bonus token included",
            "Lower it or raise num_speculative_tokens.",
        )
