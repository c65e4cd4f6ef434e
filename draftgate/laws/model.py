"""A causal language model in this process: from token ids to logits, batched by length.

The one place of the laws that imports torch and transformers, and only when a model is
loaded. Knows no sampling rules and no servers.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.errors import SpecError
from draftgate.laws.answer import Answer

Logits = NDArray[np.float32]

BATCH_POSITIONS = 1024
"""Positions in one forward pass, padding included: with a vocabulary of 49,152 their logits
take 200 MB in float32."""


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
        self.folder = folder
        self.vocabulary: int = self._model.get_output_embeddings().weight.shape[0]

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, as transformers loads it."""
        from transformers import AutoTokenizer  # noqa: PLC0415 - optional, and seconds to import

        return AutoTokenizer.from_pretrained(str(self.folder))

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


def rows_of(model: Model, answers: Sequence[Answer]) -> Iterator[tuple[int, Logits]]:
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
