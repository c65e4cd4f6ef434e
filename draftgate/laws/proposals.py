"""What a drafter that looks at token ids alone proposes, step by step.

vLLM's n-gram drafter is a function of the ids so far, so its proposals are known without
asking the server. Knows no models and no servers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.errors import SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.rows import Step, steps_of

Ints = NDArray[np.integer[Any]]

Drafter = Callable[[Sequence[int]], tuple[int, ...]]
"""From the prompt and the output so far to the proposals that follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramDrafter:
    """vLLM's drafter `ngram`: what followed the last tokens when they came before.

    Of all lengths between `shortest` and `longest` the longest match counts, and of its
    places the earliest; match and last tokens may overlap. Proposed are the k tokens after
    it, fewer if the text ends before.

    Attributes:
        k: `num_speculative_tokens`.
        shortest: `prompt_lookup_min`.
        longest: `prompt_lookup_max`.
        max_model_len: Longest prompt and output together; None if it is never reached.

    Source:
        vLLM 0.32, `vllm/v1/spec_decode/ngram_proposer.py`,
        `_find_longest_matched_ngram_and_propose_tokens`.
    """

    k: int
    shortest: int = 5
    longest: int = 5
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        if not (self.k >= 1 and 1 <= self.shortest <= self.longest):
            raise SpecError(
                f"ngram: got k {self.k} and lengths {self.shortest} to {self.longest}, expected "
                "k >= 1 and 1 <= shortest <= longest. Give the server's own settings."
            )

    def __call__(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Return the proposals after `ids`."""
        text = np.asarray(ids, dtype=int)
        room = self.k if self.max_model_len is None else self.max_model_len - len(text)
        after = self._after_match(text) if room > 0 else None
        if after is None:
            return ()
        return tuple(text[after : after + min(self.k, room)].tolist())

    def _after_match(self, text: Ints) -> int | None:
        """Return the index after the match, None if nothing matches."""
        for length in range(min(self.longest, len(text) - 1), self.shortest - 1, -1):
            windows = np.lib.stride_tricks.sliding_window_view(text[:-1], length)
            places = np.flatnonzero((windows == text[-length:]).all(axis=1))
            if places.size:
                return int(places[0]) + length
        return None


@dataclass(frozen=True, slots=True)
class Proposals:
    """What was proposed in one answer.

    Attributes:
        steps: The steps after prefill with their true number of drafts.
        draft: Per token but the first its proposal; -1 if there was none. Shape (n - 1,).
    """

    steps: tuple[Step, ...]
    draft: Ints


def proposals_of(answer: Answer, k: int | None, drafter: Drafter) -> Proposals:
    """Return what a drafter that sees all ids before each step has proposed in an answer."""
    ids = [*answer.prompt_token_ids, *answer.token_ids]
    shift = len(answer.prompt_token_ids)
    draft = np.full(max(len(answer.token_ids) - 1, 0), -1)
    steps = []
    for step in steps_of(answer, k):
        drafts = drafter(ids[: shift + step.start])
        steps.append(Step(step.start, step.tokens, len(drafts)))
        shown = drafts[: step.tokens]
        draft[step.start - 1 : step.start - 1 + len(shown)] = shown
    return Proposals(tuple(steps), draft)
