"""The step `vocabulary`: which of the target's tokens a head can propose.

The most frequent tokens of the answers that are trained on. A token outside can
never be accepted, so the share of answer tokens inside is an upper bound of the
first draft's acceptance; it is counted on the held-out answers.
"""

from pathlib import Path
from typing import Any

import numpy as np

from draftgate.drafts.answers import Ints, Samples, check_samples
from draftgate.drafts.steps import Facts
from draftgate.errors import SpecError

FILE = "vocabulary.npz"


def choose_vocabulary(
    samples: Samples, *, draft_vocab_size: int, target_vocab_size: int, folder: Path
) -> Facts:
    """Write the map between draft and target tokens.

    Args:
        samples: Prompts with answers.
        draft_vocab_size: Tokens to choose.
        target_vocab_size: Tokens of the target.
        folder: Where `vocabulary.npz` goes.

    Returns:
        Shares of answer tokens that the head can propose, in training and held out.

    Raises:
        SpecError: If the target has fewer tokens than are to be chosen, or samples are of no use.

    Source:
        Speculators' `build_vocab_mappings_from_distribution`: `d2t` holds offsets,
        target id = draft id + d2t[draft id].
    """
    from speculators.train.vocab_mapping import (  # noqa: PLC0415 - optional, seconds to import
        build_vocab_mappings_from_distribution,
    )

    if draft_vocab_size > target_vocab_size:
        raise SpecError(
            f"head.draft_vocab_size: got {draft_vocab_size}, expected at most the target's "
            f"{target_vocab_size} tokens. Lower it in the recipe."
        )
    check_samples(samples, "vocabulary")
    seen = answer_counts(samples, target_vocab_size, held_out=False)
    d2t, t2d = build_vocab_mappings_from_distribution(
        {int(token): int(seen[token]) for token in np.flatnonzero(seen)},
        draft_vocab_size,
        target_vocab_size,
    )
    np.savez(folder / FILE, d2t=d2t.numpy(), t2d=t2d.numpy())
    inside = t2d.numpy()
    kept_out = answer_counts(samples, target_vocab_size, held_out=True)
    return {
        "tokens_seen": int((seen > 0).sum()),
        "train_ratio": round(float(seen[inside].sum() / seen.sum()), 5),
        "held_out_ratio": round(float(kept_out[inside].sum() / kept_out.sum()), 5),
    }


def read_vocabulary(folder: Path) -> tuple[Any, Any]:
    """Return (t2d, d2t) as tensors, as Speculators' models take them."""
    import torch  # noqa: PLC0415 - optional, and seconds to import

    with np.load(folder / FILE, allow_pickle=False) as held:
        return torch.from_numpy(held["t2d"]), torch.from_numpy(held["d2t"])


def answer_counts(samples: Samples, vocab_size: int, *, held_out: bool) -> Ints:
    """Return how often each token stands in answers; shape (vocab_size,)."""
    lengths = np.diff(samples.starts)
    of_answer = np.arange(len(samples.token_ids)) >= np.repeat(samples.answers, lengths)
    wanted = of_answer & np.repeat(samples.held_out == held_out, lengths)
    return np.bincount(samples.token_ids[wanted], minlength=vocab_size)
