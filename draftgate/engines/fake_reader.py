"""How the scripted server's known model reads text: ids, and their log-probabilities.

The forms are vLLM's: `prompt_logprobs`, `/tokenize` and `/detokenize`. Knows neither
HTTP nor what is generated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftgate.engines.fake_law import log_law, token_of
from draftgate.engines.fake_model import FakeConfig
from draftgate.engines.fake_wire import output_text, parse_prompt

SPELLING = ("/tokenize", "/detokenize")
"""Routes between texts and ids."""


UNKNOWN = (
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    "stop_token_ids",
    "min_tokens",
)
"""Fields of a request that the known model has no rule for."""


@dataclass(frozen=True, slots=True)
class Read:
    """A prompt as the model reads it; empty under the law `independent`, which reads none."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[dict[str, Any] | None, ...] = ()


def read_by_model(given: Any, text: str, body: dict[str, Any], config: FakeConfig) -> Read:
    """Return a prompt's ids, and their log-probabilities if the request asks for them.

    Args:
        given: The prompt as it was sent: text, ids or messages.
        text: The same as text.
        body: The request.
        config: The server's.

    Raises:
        ValueError: If an id lies outside the vocabulary, or there is none.
    """
    if config.model_of_context is None:
        return Read()
    ids = _ids(given, text, config.vocab_size)
    wanted = body.get("prompt_logprobs")
    if wanted is None:
        return Read(ids)
    return Read(ids, prompt_logprobs(ids, int(wanted), config.vocab_size))


def refuse_unknown(body: dict[str, Any], config: FakeConfig) -> None:
    """Refuse a request that asks for what the known model does not do, except in silence.

    Raises:
        ValueError: If it does; the message names the field.
    """
    for name in UNKNOWN:
        if name in body and name != config.deaf_to:
            raise ValueError(f"{name} is not supported by the scripted server")


def prompt_logprobs(
    ids: Sequence[int], wanted: int, vocab_size: int
) -> tuple[dict[str, Any] | None, ...]:
    """Return per token its log-probability and those of the likeliest, as vLLM answers them.

    Args:
        ids: The prompt.
        wanted: Number of likeliest tokens, -1 for all; the prompt's own comes on top.
        vocab_size: Number of tokens.

    Returns:
        None for the first token, then objects by id; ranks count from 1.
    """
    rows: list[dict[str, Any] | None] = [None]
    for index in range(1, len(ids)):
        law = log_law(ids[:index], vocab_size)
        order = sorted(range(vocab_size), key=lambda token: -law[token])
        shown = dict.fromkeys([*(order if wanted < 0 else order[:wanted]), ids[index]])
        rows.append({str(token): _entry(law, order, token) for token in shown})
    return tuple(rows)


def spelled(route: str, body: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    """Return the answer of a route of SPELLING."""
    if route == "/detokenize":
        return {"prompt": output_text(tuple(body["tokens"]))}
    given = body["messages"] if "messages" in body else body["prompt"]
    ids = _ids(given, parse_prompt(given)[0], vocab_size)
    return {"count": len(ids), "max_model_len": 4096, "tokens": list(ids)}


def _entry(law: Sequence[float], order: Sequence[int], token: int) -> dict[str, Any]:
    rank = order.index(token) + 1
    return {"logprob": law[token], "rank": rank, "decoded_token": output_text((token,))}


def _ids(given: Any, text: str, vocab_size: int) -> tuple[int, ...]:
    if isinstance(given, list) and given and all(isinstance(part, int) for part in given):
        if not all(0 <= token < vocab_size for token in given):
            raise ValueError(f"a token id lies outside the vocabulary of {vocab_size}")
        return tuple(given)
    ids = tuple(token_of(word, vocab_size) for word in text.split())
    if not ids:
        raise ValueError("the prompt is empty")
    return ids
