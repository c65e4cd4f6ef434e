"""Plain completions, not streamed: from the document to answers, and teacher forcing.

Reads vLLM's form of `/v1/completions`. Takes a function that posts JSON, so it opens no
socket. Streamed answers come from `draftgate.checks.collect`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from draftgate.checks.ask import Post
from draftgate.errors import EngineError
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters

PATH = "/v1/completions"


def answers_of(
    document: Any,
    prompt_id: str,
    prompt: Sequence[int],
    parameters: LawParameters,
    *,
    request: int = 0,
) -> tuple[Answer, ...]:
    """Return the choices of one completion, in the order of their indices.

    Args:
        document: The decoded answer to a request with `return_token_ids`.
        prompt_id: Which prompt it continues.
        prompt: The prompt's ids, as sent.
        parameters: What the request asked of its tokens' law.
        request: Number of the first choice; the others count on.

    Returns:
        One answer per choice. Usage counts all of them together, so it stands in an answer
        only where that is the only one; see `usage_of`.

    Raises:
        EngineError: If ids are missing, or a log-probability is.
    """
    with _as_asked(prompt_id):
        choices = sorted(document["choices"], key=lambda choice: int(choice["index"]))
        alone = usage_of(document) if len(choices) == 1 else None
        return tuple(
            Answer(
                request=request + number,
                prompt_id=prompt_id,
                prompt_token_ids=tuple(prompt),
                token_ids=tuple(int(token) for token in choice["token_ids"]),
                chunks=(),
                finish_reason=choice["finish_reason"],
                parameters=parameters,
                logprobs=_logprobs(choice),
                usage_tokens=alone,
            )
            for number, choice in enumerate(choices)
        )


def usage_of(document: Any) -> int:
    """Return the completion's output tokens by usage, over all choices."""
    return int(document["usage"]["completion_tokens"])


def teacher_rows(
    post: Post, model: str, answer: Answer, top: int = 2
) -> tuple[Mapping[int, float], ...]:
    """Return per output token its candidates' log-probabilities by a server that reads it.

    Args:
        post: Posts JSON to a server without speculation.
        model: Its name for the model.
        answer: Whose prompt and output it reads.
        top: Most likely candidates; the token itself comes on top.

    Returns:
        One mapping of id to log-probability (nats, temperature 1, nothing cut off) per
        token of the output, the first one included.

    Raises:
        EngineError: If the answer holds no `prompt_logprobs` of these tokens.
    """
    ids = [*answer.prompt_token_ids, *answer.token_ids]
    body = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0}
    document = post(PATH, body | {"prompt_logprobs": top})
    with _as_asked(answer.prompt_id):
        rows = document["choices"][0]["prompt_logprobs"][len(answer.prompt_token_ids) :]
        found = tuple(
            {int(token): float(entry["logprob"]) for token, entry in row.items()} for row in rows
        )
    if len(found) != len(answer.token_ids):
        raise EngineError(
            f"{answer.prompt_id}: {len(found)} prompt_logprobs for {len(answer.token_ids)} tokens"
        )
    return found


def own_logprobs(answer: Answer, rows: Sequence[Mapping[int, float]]) -> tuple[float, ...]:
    """Return the log-probability of each token of the answer out of `teacher_rows`."""
    return tuple(row[token] for token, row in zip(answer.token_ids, rows, strict=True))


def _logprobs(choice: Mapping[str, Any]) -> tuple[float, ...]:
    given = choice.get("logprobs")
    return () if given is None else tuple(float(value) for value in given["token_logprobs"])


@contextmanager
def _as_asked(prompt_id: str) -> Iterator[None]:
    """Turn a field that is not where vLLM puts it into one error."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(
            f"{prompt_id}: the completion lacks what was asked for ({type(error).__name__}: "
            f"{error}). Does this engine give token ids and log-probabilities?"
        ) from error
