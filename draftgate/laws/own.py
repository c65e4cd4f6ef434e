"""The reference law by the log-probabilities that the checked server itself reports.

For servers of which there is neither the model nor a second one without speculation. Knows
no servers: entries are handed in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from draftgate.errors import EngineError, MeasurementError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.entries import EntryScorer, entry_of, refuse_unbounded
from draftgate.laws.orders import NOISE
from draftgate.laws.parameters import LawParameters
from draftgate.laws.partial import LogprobEntry, Setting
from draftgate.laws.proposals import Drafter
from draftgate.laws.reference import FIRST_TOKENS, refuse_greedy
from draftgate.laws.teacher import PARTLY_BLIND, ROUNDED_FILTERS
from draftgate.stats.scores import Scores


@dataclass(slots=True)
class OwnReference:
    """Laws that the checked server reports with its own answers.

    Attributes:
        vocabulary: Number of tokens; a larger number is safe and weaker.
        entries: By number of the request, one entry a token. Answers without entries are
            rated by their `logprobs` alone, which bounds less and rules out filters.
        processed: Whether the log-probabilities are those after all that the request asked
            for (vLLM's `--logprobs-mode processed_logprobs`) and not before.
        special_ids: Ids that count as special tokens.
        engine: Whose order of filters is applied; key of `orders.ORDERS`.
        numerics: Dtype of the server's logits; see `orders.stated`.
        drafter: What proposed the drafts, if that is known.
    """

    vocabulary: int
    entries: Mapping[int, Sequence[LogprobEntry]] = field(default_factory=dict)
    processed: bool = False
    special_ids: frozenset[int] = frozenset()
    engine: str = "vllm"
    numerics: str = "float32"
    drafter: Drafter | None = None
    name: str = field(init=False)
    blind_to: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.vocabulary < 2:
            raise SpecError(
                f"reference: got a vocabulary of {self.vocabulary}, expected at least 2. "
                "Take it from the model's configuration."
            )
        self.name = "the server's own log-probabilities"
        self.blind_to = (
            FIRST_TOKENS,
            (
                "every fault that verification and the reported log-probabilities share, for "
                "example stale keys and values, which move the logits that both are taken from"
            ),
            *PARTLY_BLIND[self.processed :],
            *([ROUNDED_FILTERS] if NOISE[self.numerics] and not self.processed else []),
        )

    def score(self, answers: Sequence[Answer], k: int | None) -> Scores:
        """Return one row for every token but the first of each answer; see `Reference`.

        Raises:
            SpecError: If an answer's parameters need the whole law, or have filters in bfloat16
                and the log-probabilities are those before them.
            MeasurementError: If an answer came without log-probabilities.
        """
        entries = [self._entries(answer) for answer in answers]
        if self.processed:
            refuse_greedy(answers)
            answers = [replace(answer, parameters=LawParameters()) for answer in answers]
        refuse_unbounded(answers)
        setting = Setting(vocabulary=self.vocabulary, engine=self.engine, numerics=self.numerics)
        scorer = EntryScorer(setting=setting, special_ids=self.special_ids, drafter=self.drafter)
        return scorer.score(answers, entries, k)

    def _entries(self, answer: Answer) -> Sequence[LogprobEntry]:
        if answer.request in self.entries:
            return self.entries[answer.request]
        if len(answer.logprobs) != len(answer.token_ids):
            raise MeasurementError(
                f"request {answer.request}: got {len(answer.logprobs)} log-probabilities for "
                f"{len(answer.token_ids)} tokens, expected one each. Ask for logprobs, or give "
                "another reference."
            )
        return [
            LogprobEntry(token, logprob)
            for token, logprob in zip(answer.token_ids, answer.logprobs, strict=True)
        ]


def own_entries(choice: Mapping[str, Any], top_n: int) -> tuple[LogprobEntry, ...]:
    """Return the entries of one completion choice.

    Args:
        choice: Of vLLM's `/v1/completions`, asked with `logprobs` and
            `return_tokens_as_token_ids`.
        top_n: `logprobs` of the request.

    Raises:
        EngineError: If log-probabilities by token id are not there.
    """
    try:
        reported = choice["logprobs"]
        tokens = [_token_id(text) for text in reported["tokens"]]
        tops = [
            {_token_id(text): float(value) for text, value in place.items()}
            for place in reported["top_logprobs"]
        ]
        owns = [float(value) for value in reported["token_logprobs"]]
        return tuple(
            entry_of(token, top | {token: own}, top_n)
            for token, top, own in zip(tokens, tops, owns, strict=True)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(
            "the answer lacks log-probabilities by token id "
            f"({type(error).__name__}: {error}). Ask with logprobs and return_tokens_as_token_ids."
        ) from error


def _token_id(text: str) -> int:
    return int(text.removeprefix("token_id:"))
