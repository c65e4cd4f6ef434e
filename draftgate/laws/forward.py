"""The reference law by a forward pass in this process, over the whole vocabulary.

Reads a model folder with transformers, runs each answer through it once (teacher forcing)
and applies what the request asked for by our own code (`orders`). Meant for small targets
and float32. Knows no servers.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.errors import MeasurementError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.orders import ORDERS, law, stated
from draftgate.laws.processors import log_softmax
from draftgate.laws.proposals import Drafter, proposals_of
from draftgate.laws.reference import FIRST_TOKENS, refuse_greedy
from draftgate.laws.rows import known_columns, places_of, siblings_of, steps_of
from draftgate.stats.scores import Scores, joined, score_many

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Logits = NDArray[np.float32]

BATCH_POSITIONS = 1024
"""Positions in one forward pass, padding included: with a vocabulary of 49,152 their logits
take 200 MB in float32."""

BLOCK_ROWS = 32
"""Laws held at once: 13 MB in float64 with that vocabulary."""


class Model:
    """A causal language model in memory.

    Args:
        folder: Folder with configuration and weights, as transformers reads them.
        dtype: Of weights and activations; torch's name of it.

    Raises:
        SpecError: If transformers or the folder is missing.
    """

    def __init__(self, folder: Path, dtype: str) -> None:
        if not (folder / "config.json").is_file():
            raise SpecError(
                f"reference model {folder}: got no config.json there, expected a model folder. "
                "Give the folder that the server's target was loaded from."
            )
        try:
            import torch  # noqa: PLC0415 - optional, and seconds to import
            from transformers import AutoModelForCausalLM  # noqa: PLC0415 - optional
        except ImportError as error:
            raise SpecError(
                f"reference model {folder}: a forward pass in this process needs {error.name}, "
                "not installed. Install draftgate[cpu], or give the URL of a server without "
                "speculation as the reference."
            ) from error
        self._torch = torch
        with _without_progress_bars():
            self._model = AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=getattr(torch, dtype)
            ).eval()
        self.vocabulary: int = self._model.get_output_embeddings().weight.shape[0]

    def logits(self, texts: Sequence[Sequence[int]], start: int) -> Logits:
        """Return the logits after each position from `start` on.

        Args:
            texts: Token ids, all longer than `start`.
            start: First position that is wanted, >= 0.

        Returns:
            Shape (len(texts), longest - start, V); what stands past a text's end means nothing.
        """
        torch = self._torch
        longest = max(len(text) for text in texts)
        # Padding stands on the right, where a causal model does not look.
        ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
        with torch.inference_mode():
            out = self._model(
                input_ids=ids, use_cache=False, logits_to_keep=torch.arange(start, longest)
            )
            found: Logits = out.logits.float().numpy()
        return found


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
        ((_, rows),) = _rows_of(self._target, [answer])
        return rows

    def score(self, answers: Sequence[Answer], k: int | None) -> Scores:
        """Return one row for every token but the first of each answer; see `Reference`.

        With a draft model the columns about the draft are filled in every place. Behind a
        whole chain nothing was proposed; there they hold what that model would have proposed.

        Raises:
            MeasurementError: If an answer holds no second token or ids outside the vocabulary.
            SpecError: If an answer is greedy.
        """
        _check(answers, self.vocabulary)
        refuse_greedy(answers)
        siblings = siblings_of(answers)
        drafts = _rows_of(self._draft, answers) if self._draft else None
        found: dict[int, Scores] = {}
        for index, rows in _rows_of(self._target, answers):
            answer = answers[index]
            steps, draft = steps_of(answer, k), None
            if self.drafter:
                proposals = proposals_of(answer, k, self.drafter)
                steps, draft = proposals.steps, proposals.draft
            known = known_columns(
                answer, places_of(answer, steps), siblings[index], self.special_ids
            )
            if draft is not None:
                known |= _one_hot(answer, draft)
            if drafts is not None:
                known |= self._by_draft_model(answer, next(drafts)[1])
            if len(answer.token_ids) > 1:
                found[index] = self._score_rows(answer, rows, known)
        return joined([found[index] for index in sorted(found)])

    def _by_draft_model(self, answer: Answer, rows: Logits) -> dict[str, Any]:
        """Return the columns about the draft from the draft model's logits."""
        if not self.drafts_sampled:
            return _one_hot(answer, rows[1:].argmax(axis=1))
        temperature = max(answer.parameters.temperature, ORDERS[self.engine].least_temperature)
        tokens = answer.token_ids[1:]
        laws = (log_softmax(row / temperature) for row in rows[1:].astype(float))
        own = [law[token] for law, token in zip(laws, tokens, strict=True)]
        return {"draft": rows[1:].argmax(axis=1), "draft_law": np.array(own)}

    def _score_rows(self, answer: Answer, rows: Logits, known: dict[str, Any]) -> Scores:
        """Return the rows of one answer from its logits, a block of laws at a time."""
        parts = []
        for begin in range(1, len(rows), BLOCK_ROWS):
            end = min(begin + BLOCK_ROWS, len(rows))
            # One more in front: the law of the row before the block's first.
            laws, loose = self._laws(answer, rows, begin - 1, end)
            ids = np.array(answer.token_ids[begin:end])
            every = np.arange(len(ids))
            columns = {name: column[begin - 1 : end - 1] for name, column in known.items()}
            columns |= {"before": laws[every, ids], "unfiltered": loose[every + 1, ids]}
            parts.append(score_many(laws[1:], ids, **columns))
        return joined(parts)

    def _laws(self, answer: Answer, rows: Logits, begin: int, end: int) -> tuple[Floats, Floats]:
        """Return stated and unfiltered laws of the tokens in [begin, end), nats."""
        stated_laws = np.empty((end - begin, self.vocabulary))
        unfiltered = np.empty_like(stated_laws) if answer.parameters.filtered else stated_laws
        for place, index in enumerate(range(begin, end)):
            output = answer.token_ids[:index]
            given = law(
                rows[index], answer.parameters, answer.prompt_token_ids, output, self.engine
            )
            stated_laws[place] = stated(given, self.numerics)
            unfiltered[place] = given.unfiltered
        return stated_laws, unfiltered


def special_token_ids(folder: Path) -> frozenset[int]:
    """Return the ids that a model folder's tokenizer calls special.

    Raises:
        SpecError: If the folder has no tokenizer.json.
    """
    path = folder / "tokenizer.json"
    try:
        added = json.loads(path.read_text(encoding="utf-8"))["added_tokens"]
    except (OSError, ValueError, KeyError) as error:
        raise SpecError(
            f"{path}: could not read the special tokens ({type(error).__name__}: {error}). Give "
            "a folder with a tokenizer.json, or the ids themselves."
        ) from error
    return frozenset(token["id"] for token in added if token["special"])


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    from transformers.utils import logging  # noqa: PLC0415 - optional, and seconds to import

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _one_hot(answer: Answer, draft: Ints) -> dict[str, Any]:
    """Return the columns about a draft that is one token for sure; -1 is none."""
    hit = np.where(draft == np.array(answer.token_ids[1:], dtype=int), 0.0, -np.inf)
    return {"draft": draft, "draft_law": np.where(draft >= 0, hit, np.nan)}


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


def _rows_of(model: Model, answers: Sequence[Answer]) -> Iterator[tuple[int, Logits]]:
    """Yield (index of an answer, logits of its tokens), batched by length: any order, but fixed."""
    texts = [[*a.prompt_token_ids, *a.token_ids] for a in answers]
    begins = [len(a.prompt_token_ids) for a in answers]
    for batch in _batches([len(text) for text in texts]):
        # The last token's own logits are of no use.
        start = min(begins[index] for index in batch) - 1
        logits = model.logits([texts[index][:-1] for index in batch], start)
        for row, index in enumerate(batch):
            yield index, logits[row, begins[index] - 1 - start : len(texts[index]) - 1 - start]


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield indices grouped by like length, so that a group fits into `BATCH_POSITIONS`."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[index] > BATCH_POSITIONS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
