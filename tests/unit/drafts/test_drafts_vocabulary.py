"""The draft vocabulary: the most frequent answer tokens, and what share of answers they cover."""

from pathlib import Path

import numpy as np
import pytest

from draftgate.drafts.answers import Samples
from draftgate.drafts.vocabulary import answer_counts, choose_vocabulary, read_vocabulary
from draftgate.errors import SpecError
from tests.support.drafts import require_speculators, samples_of


@pytest.fixture(scope="module")
def samples() -> Samples:
    """Two samples to learn from and one held out; token 1 stands in prompts alone."""
    return samples_of(
        [([1, 1, 1, 1], [7, 7, 7, 5]), ([1, 2], [7, 5, 3]), ([1], [7, 5, 9, 3])],
        [False, False, True],
    )


def test_answers_alone_are_counted(samples: Samples) -> None:
    """Prompts do not count, and held-out answers only where they are asked for."""
    learnt = answer_counts(samples, 10, held_out=False)
    held_out = answer_counts(samples, 10, held_out=True)

    assert {int(t): int(learnt[t]) for t in np.flatnonzero(learnt)} == {3: 1, 5: 2, 7: 4}
    assert np.flatnonzero(held_out).tolist() == [3, 5, 7, 9]


def test_most_frequent_tokens_are_chosen(samples: Samples, tmp_path: Path) -> None:
    """Of size two the tokens are 7 and 5; shares are 6 of 7 in training, 2 of 4 held out."""
    require_speculators()

    facts = choose_vocabulary(samples, draft_vocab_size=2, target_vocab_size=10, folder=tmp_path)

    t2d, d2t = read_vocabulary(tmp_path)
    assert t2d.nonzero().flatten().tolist() == [5, 7]
    assert [draft + int(d2t[draft]) for draft in range(2)] == [5, 7]
    assert facts == {"tokens_seen": 3, "train_ratio": round(6 / 7, 5), "held_out_ratio": 0.5}


def test_larger_vocabulary_than_the_target_is_refused(samples: Samples, tmp_path: Path) -> None:
    """More draft tokens than the target has is an error that names the key."""
    with pytest.raises(SpecError, match=r"got 11, expected at most .* 10 tokens"):
        choose_vocabulary(samples, draft_vocab_size=11, target_vocab_size=10, folder=tmp_path)
