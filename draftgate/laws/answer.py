"""One request and what came back, in token ids: what every reference law is asked about.

Answers come from any server or from a file. Knows nothing of how they were fetched.
"""

from dataclasses import dataclass

from draftgate.errors import MeasurementError
from draftgate.laws.parameters import LawParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request and what came back.

    The first token comes from prefill and is never speculated, so evidence leaves it out.

    Attributes:
        request: Running number of the request.
        prompt_id: Which prompt it was.
        prompt_token_ids: The prompt as the server saw it.
        token_ids: The output.
        chunks: Tokens in each streamed chunk, in order; () if it was not streamed.
        finish_reason: As the server gave it.
        parameters: What the request asked for.
        logprobs: As the server reported them for the output's tokens, nats; () if not asked for.
        usage_tokens: `usage.completion_tokens`, if the server gave it.

    Raises:
        MeasurementError: If the chunks do not add up to the output.
    """

    request: int
    prompt_id: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    chunks: tuple[int, ...]
    finish_reason: str | None
    parameters: LawParameters
    logprobs: tuple[float, ...] = ()
    usage_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.chunks and sum(self.chunks) != len(self.token_ids):
            raise MeasurementError(
                f"request {self.request}: its chunks hold {sum(self.chunks)} tokens, expected the "
                f"{len(self.token_ids)} of its output. Keep the ids of every chunk, empty ones too."
            )

    @property
    def positions(self) -> tuple[int, ...]:
        """Index of each token in its chunk, from 0; () if the answer was not streamed."""
        return tuple(index for size in self.chunks for index in range(size))
