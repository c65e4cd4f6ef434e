"""Samples: prompts and answers in a row, and the file that holds them."""

from pathlib import Path

import numpy as np
import pytest

from draftgate.datasets import Prompt
from draftgate.drafts.answers import (
    FILE,
    Samples,
    _gathered,
    check_samples,
    read_samples,
    write_samples,
)
from draftgate.drafts.prompts import Chosen
from draftgate.errors import SpecError
from tests.support.drafts import samples_of


def gathered() -> Samples:
    """Return two samples of unlike prompts, lengths and kinds."""
    hill = Chosen(Prompt("a", "hills", (("user", "hill"),)), held_out=False)
    lake = Chosen(Prompt("b", "lakes", (("user", "lake"),)), held_out=True)
    return _gathered([([1, 2], [3, 4, 5], hill, False), ([6, 7, 8], [9, 10], lake, True)])


def test_samples_stand_in_a_row() -> None:
    """Tokens follow one another, and each sample knows where its answer begins."""
    samples = gathered()

    assert len(samples) == 2
    assert samples.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert samples.starts.tolist() == [0, 5, 10]
    assert samples.answers.tolist() == [2, 8]
    assert samples.held_out.tolist() == [False, True]
    assert samples.greedy.tolist() == [False, True]
    assert samples.kinds.tolist() == ["hills", "lakes"]


def test_mask_is_of_the_answer() -> None:
    """The mask of a sample is true where its answer stands, prompt tokens aside."""
    samples = gathered()

    assert samples.tokens(0).tolist() == [1, 2, 3, 4, 5]
    assert samples.tokens(1)[samples.answer_mask(1)].tolist() == [9, 10]
    assert samples.answer_mask(0).tolist() == [False, False, True, True, True]


def test_samples_are_read_as_written(tmp_path: Path) -> None:
    """A file gives back equal arrays of equal types."""
    samples = gathered()
    write_samples(samples, tmp_path)
    again = read_samples(tmp_path)

    for name in Samples.__slots__:
        before, after = getattr(samples, name), getattr(again, name)
        assert before.dtype == after.dtype
        assert np.array_equal(before, after)


@pytest.mark.parametrize("kept", [0, 1, 40, 400])
def test_cut_file_is_refused(tmp_path: Path, kept: int) -> None:
    """A file that was cut off is an error that names it, never fewer samples."""
    write_samples(gathered(), tmp_path)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:kept])

    with pytest.raises(SpecError, match=r"samples\.npz: got no samples"):
        read_samples(tmp_path)


def test_file_without_an_array_is_refused(tmp_path: Path) -> None:
    """A file of another format names what it lacks."""
    np.savez(tmp_path / FILE, token_ids=np.arange(3))

    with pytest.raises(SpecError, match=r"got no samples .*starts"):
        read_samples(tmp_path)


@pytest.mark.parametrize("held_out", [True, False])
def test_samples_of_one_side_are_refused(held_out: bool) -> None:  # noqa: FBT001 (parametrised)
    """Samples that are all held out, or all trained on, are of no use."""
    samples = samples_of([([1], [2, 3]), ([4], [5, 6])], [held_out, held_out])

    with pytest.raises(SpecError, match=r"answers: got \d answers to learn from"):
        check_samples(samples, "answers")
