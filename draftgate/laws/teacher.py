"""The reference law by a server without speculation that reads the answers (teacher forcing).

Each answer is sent as a prompt, and the server says how likely it finds each token and
which it finds most likely. Takes a function that posts JSON, so it opens no socket. The
fields are vLLM's (`prompt_logprobs`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from draftgate.errors import EngineError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.entries import EntryScorer, entry_of, refuse_unbounded
from draftgate.laws.orders import NOISE
from draftgate.laws.partial import LogprobEntry, Setting, refuse_rounded_filters
from draftgate.laws.proposals import Drafter
from draftgate.laws.reference import FIRST_TOKENS
from draftgate.stats.scores import Scores

Post = Callable[[str, dict[str, Any]], Any]
"""From a path and a JSON body to the JSON answer."""

PARALLEL = 4
"""Answers being read at once: enough to keep a server busy, since each is one long prefill."""

PARTLY_BLIND = (
    "penalties, logit bias, bad words, min-p and structured output, which are refused",
    "tokens drawn with one random number, as far as only their quantiles show it",
)
"""Blind spots of all references that know the most likely tokens only."""

ROUNDED_FILTERS = (
    "top-k and top-p in bfloat16, which are refused: rounding moves tokens over their edges"
)
"""Blind spot of the same references where `orders.NOISE` of the numerics is above 0."""


@dataclass(slots=True)
class TeacherReference:
    """Laws of a server without speculation, from its n most likely tokens and the rest's sum.

    Attributes:
        post: Asks the server.
        model: What it calls its model.
        top_n: Most likely tokens to ask for; vLLM allows 20 unless started with
            `--max-logprobs`. 0 gives the weakest bounds and no filters.
        vocabulary: Number of tokens; a larger number is safe and weaker.
        special_ids: Ids that count as special tokens.
        engine: Whose order of filters is applied; key of `orders.ORDERS`.
        numerics: Dtype of the checked engine's logits; see `orders.stated`.
        drafter: What proposed the drafts, if that is known.
    """

    post: Post
    model: str
    top_n: int
    vocabulary: int
    special_ids: frozenset[int] = frozenset()
    engine: str = "vllm"
    numerics: str = "float32"
    drafter: Drafter | None = None
    name: str = field(init=False)
    blind_to: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.top_n < 0 or self.vocabulary < 2:
            raise SpecError(
                f"reference: got top_n {self.top_n} and a vocabulary of {self.vocabulary}, "
                "expected at least 0 and at least 2. Take both from the server's settings."
            )
        self.name = f"{self.model} without speculation, {self.top_n} most likely tokens"
        self.blind_to = (
            FIRST_TOKENS,
            "faults that the server without speculation has as well",
            f"temperatures above 1: of such laws {self.top_n} tokens say too little",
            f"filters or temperatures below 1: what hides beyond the {self.top_n} likeliest",
            *PARTLY_BLIND,
            *([ROUNDED_FILTERS] if NOISE[self.numerics] else []),
        )

    def score(self, answers: Sequence[Answer], k: int | None) -> Scores:
        """Return one row for every token but the first of each answer; see `Reference`.

        Raises:
            SpecError: If an answer's parameters need the whole law, or have filters in bfloat16.
            EngineError: If the server's answer lacks log-probabilities.
        """
        refuse_unbounded(answers)
        for answer in answers:
            refuse_rounded_filters(answer.parameters, self.numerics)
        with ThreadPoolExecutor(PARALLEL) as pool:
            entries = list(pool.map(self._read, answers))
        setting = Setting(vocabulary=self.vocabulary, engine=self.engine, numerics=self.numerics)
        scorer = EntryScorer(setting=setting, special_ids=self.special_ids, drafter=self.drafter)
        return scorer.score(answers, entries, k)

    def _read(self, answer: Answer) -> tuple[LogprobEntry, ...]:
        """Return how the server rates each token of an answer."""
        ids = [*answer.prompt_token_ids, *answer.token_ids]
        body = {
            "model": self.model,
            "prompt": ids,
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": self.top_n,
        }
        document = self.post("/v1/completions", body)
        first = len(answer.prompt_token_ids)
        try:
            places = document["choices"][0]["prompt_logprobs"][first:]
            return tuple(
                entry_of(token, {int(i): float(e["logprob"]) for i, e in place.items()}, self.top_n)
                for token, place in zip(answer.token_ids, places, strict=True)
            )
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(
                f"request {answer.request}: the reference server's answer lacks prompt_logprobs "
                f"of the {len(answer.token_ids)} output tokens ({type(error).__name__}: {error}). "
                "Does it run vLLM, and does --max-logprobs allow as many as were asked for?"
            ) from error
