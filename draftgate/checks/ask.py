"""The questions that correctness checks put to an OpenAI-compatible server.

Takes a function that posts JSON, so it knows no engine and opens no socket.
The fields are those of vLLM (`return_token_ids`, `return_tokens_as_token_ids`).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from draftgate.checks.greedy import GreedyAnswer, greedy_of
from draftgate.datasets import Prompt
from draftgate.errors import EngineError

Post = Callable[[str, dict[str, Any]], Any]
T = TypeVar("T")

PARALLEL = 8
"""Requests open at once: enough to fill a small batch, so that drafts of several
requests are verified together."""


def in_parallel(question: Callable[[Prompt], T], prompts: Sequence[Prompt]) -> list[T]:
    """Return the answers to `question` in the order of `prompts`, several open at once."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(question, prompts))


def greedy_answer(post: Post, model: str, prompt: Prompt, max_tokens: int) -> GreedyAnswer:
    """Return the greedy answer with the gap of the two leading logits at each token.

    Raises:
        EngineError: If ids and log-probabilities differ in number, or are not there.
    """
    body = _body(model, prompt, max_tokens) | {
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 2,
        "return_tokens_as_token_ids": True,
    }
    answer = post("/v1/chat/completions", body)
    with _as_asked(prompt.prompt_id):
        choice = answer["choices"][0]
        token_ids = tuple(choice["token_ids"])
        leading = [_leading_two(entry["top_logprobs"]) for entry in choice["logprobs"]["content"]]
    if len(leading) != len(token_ids):
        raise EngineError(
            f"{prompt.prompt_id}: {len(token_ids)} token ids but {len(leading)} log-probabilities"
        )
    return greedy_of(prompt.prompt_id, token_ids, leading)


@contextmanager
def _as_asked(prompt_id: str) -> Iterator[None]:
    """Turn a field that is not where vLLM puts it into one error."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise EngineError(
            f"{prompt_id}: the answer lacks what was asked for ({type(error).__name__}: {error}). "
            "Does this engine give token ids and log-probabilities?"
        ) from error


def _body(model: str, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in prompt.messages],
        "max_tokens": max_tokens,
        "return_token_ids": True,
    }


def _leading_two(top: list[dict[str, Any]]) -> tuple[tuple[int, float], tuple[int, float]]:
    """Return id and log-probability of the two leading tokens."""
    first, second = sorted(top, key=lambda entry: -entry["logprob"])[:2]
    return _candidate(first), _candidate(second)


def _candidate(entry: dict[str, Any]) -> tuple[int, float]:
    return int(entry["token"].removeprefix("token_id:")), entry["logprob"]
