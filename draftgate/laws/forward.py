"""The reference law by a forward pass in this process, over the whole vocabulary.

Runs each answer through the target once (teacher forcing) and applies what the request asked
for by our own code (`orders`). Meant for small targets and float32. Knows no servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.errors import MeasurementError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.model import Logits, Model, rows_of, special_token_ids
from draftgate.laws.orders import ORDERS, law, stated
from draftgate.laws.processors import Mask, log_softmax
from draftgate.laws.proposals import Drafter, proposals_of
from draftgate.laws.reference import FIRST_TOKENS, RECENT, refuse_greedy
from draftgate.laws.rows import known_columns, places_of, siblings_of, steps_of
from draftgate.laws.structure import Masks
from draftgate.stats.scores import Scores, blank, draft_columns, joined, score_many

__all__ = ["ForwardReference", "special_token_ids"]

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]

BLOCK_ROWS = 64
"""Rows made at once; their laws take 25 MB in float64 with a vocabulary of 49,152."""


@dataclass(frozen=True, slots=True)
class _Text:
    """One answer with all that is known of it before its laws.

    Attributes:
        answer: The answer.
        logits: Of the target for each of its tokens; shape (n, V).
        proposals: Per token the draft that was certain; -1 for none. None if not known.
        draft_logits: Of the draft model, None without one; shape (n, V).
        masks: Of structured output before each token; () without it.
        known: Columns of `Scores` without the first token's row.
    """

    answer: Answer
    logits: Logits
    proposals: Ints | None
    draft_logits: Logits | None
    masks: tuple[Mask, ...]
    known: dict[str, Any]


@dataclass(slots=True)
class ForwardReference:
    """Laws of a model that runs in this process.

    Attributes:
        folder: Folder of the target.
        engine: Whose order of sampling steps is applied; key of `orders.ORDERS`.
        dtype: Of the target's weights and activations here.
        draft: Folder of a draft model; fills the columns about the draft.
        special_ids: Ids that count as special tokens; see `special_token_ids`.
        drafts_sampled: Whether drafts are drawn from the draft model's law at the request's
            temperature; otherwise they are its most likely tokens.
        drafter: Drafter that looks at token ids alone, instead of a draft model.
        numerics: Dtype of the checked engine's logits, which softens filters (`orders.stated`).
    """

    folder: Path
    engine: str = "vllm"
    dtype: str = "float32"
    draft: Path | None = None
    special_ids: frozenset[int] = frozenset()
    drafts_sampled: bool = False
    drafter: Drafter | None = None
    numerics: str = "float32"
    name: str = field(init=False)
    blind_to: tuple[str, ...] = field(init=False)
    _target: Model = field(init=False, repr=False)
    _draft: Model | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.draft and self.drafter:
            raise SpecError("reference: got a draft model and a drafter, expected one of them.")
        self.name = f"forward pass of {self.folder.name} in {self.dtype}"
        self.blind_to = (
            FIRST_TOKENS,
            "faults of the model folder itself, from which server and reference both read",
        )
        self._target = Model(self.folder, self.dtype)
        self._draft = Model(self.draft, self.dtype) if self.draft else None
        if self._draft and self._draft.vocabulary != self.vocabulary:
            raise SpecError(
                f"reference: got a draft model with {self._draft.vocabulary} tokens for a target "
                f"with {self.vocabulary}, expected the same vocabulary. Leave the draft model out."
            )

    @property
    def vocabulary(self) -> int:
        """Number of tokens that a law is over."""
        return self._target.vocabulary

    def logits(self, answer: Answer) -> Logits:
        """Return the target's raw logits for every token of an answer; shape (n, V).

        Raises:
            MeasurementError: If the answer is empty or holds ids outside the vocabulary.
        """
        _check([answer], self.vocabulary)
        ((_, rows),) = rows_of(self._target, [answer])
        return rows

    def score(self, answers: Sequence[Answer], k: int | None) -> Scores:
        """Return one row for every token but the first of each answer; see `Reference`.

        With a draft model the columns about the draft are filled in every place. Behind a
        whole chain nothing was proposed; there they hold what that model would have proposed.
        After a token that breaks a structured output no law is defined, so its row is the
        last one of its answer.

        Raises:
            MeasurementError: If an answer is empty or holds ids outside the vocabulary, or
                its first token breaks its structure.
            SpecError: If an answer is greedy.
        """
        _check(answers, self.vocabulary)
        refuse_greedy(answers)
        siblings = siblings_of(answers)
        drafts = rows_of(self._draft, answers) if self._draft else None
        found: dict[int, Scores] = {}
        for index, logits in rows_of(self._target, answers):
            by_draft = next(drafts)[1] if drafts else None
            text = self._text(answers[index], logits, by_draft, k, siblings[index])
            found[index] = self._score(text)
        return joined([found[index] for index in range(len(answers))])

    def _text(
        self, answer: Answer, logits: Logits, by_draft: Logits | None, k: int | None, sibling: Ints
    ) -> _Text:
        """Return what is known of an answer; `by_draft` are the draft model's logits."""
        steps, proposals = steps_of(answer, k), None
        if self.drafter:
            proposed = proposals_of(answer, k, self.drafter)
            steps, proposals = proposed.steps, np.concatenate([[-1], proposed.draft])
        elif by_draft is not None and not self.drafts_sampled:
            proposals = by_draft.argmax(axis=1)
        return _Text(
            answer=answer,
            logits=logits,
            proposals=proposals,
            draft_logits=by_draft,
            masks=self._masks(answer),
            known=known_columns(answer, places_of(answer, steps), sibling, self.special_ids),
        )

    def _score(self, text: _Text) -> Scores:
        """Return the rows of one answer, a block of laws at a time."""
        n = len(text.answer.token_ids)
        n = min(n, len(text.masks)) if text.masks else n
        blocks = [(begin, min(begin + BLOCK_ROWS, n)) for begin in range(1, n, BLOCK_ROWS)]
        return joined([blank(0), *(self._block(text, begin, end) for begin, end in blocks)])

    def _block(self, text: _Text, begin: int, end: int) -> Scores:
        """Return the rows of the tokens in [begin, end)."""
        first = max(begin - RECENT, 0)
        every, loose = self._laws(text, first, end)
        ids, laws = np.array(text.answer.token_ids[begin:end]), every[begin - first :]
        columns = {name: column[begin - 1 : end - 1] for name, column in text.known.items()}
        columns |= _earlier(every, begin - first, ids)
        columns["unfiltered"] = loose[np.arange(begin, end) - first, ids]
        columns |= self._about_drafts(text, laws, begin, end)
        return score_many(laws, ids, **columns)

    def _about_drafts(self, text: _Text, laws: Floats, begin: int, end: int) -> dict[str, Any]:
        """Return the columns about the drafts of the tokens in [begin, end)."""
        ids, columns = np.array(text.answer.token_ids[begin:end]), dict[str, Any]()
        if text.proposals is not None:
            columns = _certain_columns(laws, text.proposals[begin:end], ids)
        if text.draft_logits is not None:
            drafts = self._draft_laws(text.answer, text.draft_logits[begin:end].astype(float))
            columns |= {"draft": drafts.argmax(axis=1), "confidence": drafts.max(axis=1)}
            columns |= draft_columns(laws, drafts, ids) if self.drafts_sampled else {}
        return columns

    def _draft_laws(self, answer: Answer, rows: Floats) -> Floats:
        """Return the laws that drafts are drawn from: temperature alone applies to them."""
        temperature = max(answer.parameters.temperature, ORDERS[self.engine].least_temperature)
        return np.stack([log_softmax(row / temperature) for row in rows])

    def _laws(self, text: _Text, begin: int, end: int) -> tuple[Floats, Floats]:
        """Return stated and unfiltered laws of the tokens in [begin, end), nats."""
        answer = text.answer
        found = np.empty((end - begin, self.vocabulary))
        unfiltered = np.empty_like(found) if answer.parameters.filtered else found
        for place, index in enumerate(range(begin, end)):
            given = law(
                text.logits[index],
                answer.parameters,
                answer.prompt_token_ids,
                answer.token_ids[:index],
                self.engine,
                mask=text.masks[index] if text.masks else None,
            )
            found[place] = stated(given, self.numerics)
            unfiltered[place] = given.unfiltered
        return found, unfiltered

    def _masks(self, answer: Answer) -> tuple[Mask, ...]:
        """Return the masks of an answer's structure, () without one."""
        parameters = answer.parameters
        if parameters.structure is None:
            return ()
        size, stops = self.vocabulary, parameters.stop_token_ids
        masks = Masks(parameters.structure, self._target.tokenizer, size, stops)
        found = masks.along(answer.token_ids)
        if not found[0][answer.token_ids[0]]:
            raise MeasurementError(
                f"request {answer.request}: its first token {answer.token_ids[0]} breaks the "
                f"structure {parameters.structure.kind!r}, so the rest has no law. That is a fault "
                "of the server's structured output; ask without it to check sampling."
            )
        return found


def _earlier(laws: Floats, before: int, tokens: Ints) -> dict[str, Any]:
    """Return what earlier rows' laws say of tokens; `before` laws stand in front of theirs."""
    rows = range(before, before + len(tokens))
    recent = [
        laws[max(row - RECENT, 0) : row, token] for row, token in zip(rows, tokens, strict=True)
    ]
    return {
        "before": [values[-1] for values in recent],
        "recent": [np.logaddexp.reduce(values) - np.log(len(values)) for values in recent],
    }


def _certain_columns(laws: Floats, drafts: Ints, tokens: Ints) -> dict[str, Any]:
    """Return the columns about proposals that were one token for sure; -1 is none."""
    known = drafts >= 0
    one_hot = np.full((int(known.sum()), laws.shape[1]), -np.inf)
    one_hot[np.arange(len(one_hot)), drafts[known]] = 0.0
    nothing, columns = blank(len(drafts)), {"draft": drafts}
    for name, values in draft_columns(laws[known], one_hot, tokens[known]).items():
        columns[name] = getattr(nothing, name).copy()
        columns[name][known] = values
    return columns


def _check(answers: Sequence[Answer], vocabulary: int) -> None:
    if not answers:
        raise MeasurementError("reference: got no answers to score, expected at least one.")
    for answer in answers:
        ids = (*answer.prompt_token_ids, *answer.token_ids)
        if not answer.prompt_token_ids or not answer.token_ids:
            raise MeasurementError(
                f"request {answer.request}: got {len(answer.prompt_token_ids)} prompt tokens and "
                f"{len(answer.token_ids)} output tokens, expected some of each. Leave out requests "
                "that failed, and ask for token ids of the prompt."
            )
        if not 0 <= min(ids) <= max(ids) < vocabulary:
            raise MeasurementError(
                f"request {answer.request}: got token ids from {min(ids)} to {max(ids)}, expected "
                f"0 to {vocabulary - 1}. Is the reference the model that the server runs?"
            )
