"""The questions that correctness checks put to an OpenAI-compatible server.

Takes a function that posts JSON, so it knows no engine and opens no socket.
The fields are those of vLLM (`return_token_ids`, `return_tokens_as_token_ids`,
`prompt_logprobs`).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from draftgate.checks.greedy import GreedyAnswer
from draftgate.checks.sampling import ScoredToken
from draftgate.datasets import Prompt
from draftgate.errors import EngineError

Post = Callable[[str, dict[str, Any]], Any]
T = TypeVar("T")

PARALLEL = 8
"""Requests open at once: enough to fill a small batch, so that drafts of several
requests are verified together."""


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One sampled answer with the prompt it continues, both as token ids."""

    prompt_id: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


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
    return GreedyAnswer(
        prompt_id=prompt.prompt_id,
        token_ids=token_ids,
        gap_logits=tuple(gap for gap, _ in leading),
        runner_up=tuple(second for _, second in leading),
    )


def sampled_answer(
    post: Post, model: str, prompt: Prompt, max_tokens: int, *, temperature: float, seed: int
) -> SampledAnswer:
    """Return one sampled answer of exactly `max_tokens` tokens.

    Raises:
        EngineError: If the answer holds no token ids.
    """
    body = _body(model, prompt, max_tokens) | {
        "temperature": temperature,
        "seed": seed,
        "ignore_eos": True,
    }
    answer = post("/v1/chat/completions", body)
    with _as_asked(prompt.prompt_id):
        return SampledAnswer(
            prompt_id=prompt.prompt_id,
            prompt_token_ids=tuple(answer["prompt_token_ids"]),
            token_ids=tuple(answer["choices"][0]["token_ids"]),
        )


def scored_tokens(post: Post, model: str, answer: SampledAnswer) -> tuple[ScoredToken, ...]:
    """Return how a server that reads the answer (teacher forcing) rates each of its tokens.

    These are the server's own log-probabilities at temperature 1
    (`prompt_logprobs`). The first token is left out, since it is not speculated.

    Raises:
        EngineError: If the answer holds no log-probabilities of these tokens.
    """
    ids = [*answer.prompt_token_ids, *answer.token_ids]
    body = {
        "model": model,
        "prompt": ids,
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": 1,
    }
    document = post("/v1/completions", body)
    first = len(answer.prompt_token_ids) + 1
    with _as_asked(answer.prompt_id):
        scored = document["choices"][0]["prompt_logprobs"]
        return tuple(_scored(scored[i], str(ids[i])) for i in range(first, len(ids)))


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


def _scored(entries: dict[str, dict[str, Any]], token_id: str) -> ScoredToken:
    """Pick the token and the leading one (rank 1) out of one position's entries."""
    token = entries[token_id]
    leading = max(entry["logprob"] for entry in entries.values())
    return ScoredToken(token["logprob"], leading, token["rank"] == 1)


def _body(model: str, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in prompt.messages],
        "max_tokens": max_tokens,
        "return_token_ids": True,
    }


def _leading_two(top: list[dict[str, Any]]) -> tuple[float, int]:
    """Return the gap of the two leading log-probabilities and the second's id."""
    first, second = sorted(top, key=lambda entry: -entry["logprob"])[:2]
    return first["logprob"] - second["logprob"], int(second["token"].removeprefix("token_id:"))
