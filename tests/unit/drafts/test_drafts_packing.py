"""Steps of a training: every sample once an epoch, and tensors shifted as heads learn."""

from collections.abc import Sequence
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.drafts.answers import Samples
from draftgate.drafts.packing import Batch, batch_of, packs, steps_of
from draftgate.drafts.states import States
from tests.support.drafts import require_speculators, samples_of

LENGTHS = st.lists(st.integers(2, 50), min_size=1, max_size=30)
FEATURES, STATE = 6, 2


@given(lengths=LENGTHS, tokens=st.integers(16, 80), epoch=st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_pack_keeps_the_budget(lengths: list[int], tokens: int, epoch: int) -> None:
    """Every sample is seen once an epoch; only a sample longer than a step goes beyond it."""
    found = packs(lengths, range(len(lengths)), tokens=tokens, seed=3, epoch=epoch)

    assert sorted(index for pack in found for index in pack) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in pack) <= tokens or len(pack) == 1 for pack in found)


def test_epochs_differ_and_repeat() -> None:
    """The order changes from epoch to epoch and seed to seed, and is the same next time."""
    orders = [
        packs([5] * 40, range(40), tokens=20, seed=seed, epoch=epoch)
        for seed, epoch in ((1, 0), (1, 1), (2, 0), (1, 0))
    ]

    assert orders[0] == orders[3]
    assert orders[0] != orders[1] != orders[2] != orders[0]


@given(lengths=LENGTHS, first=st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_resumed_plan_is_the_rest_of_the_whole(lengths: list[int], first: int) -> None:
    """A plan that starts later is what an uninterrupted one had left."""
    indices = range(len(lengths))
    whole = list(steps_of(lengths, indices, tokens=60, seed=1, first=0, last=40))
    rest = list(steps_of(lengths, indices, tokens=60, seed=1, first=first, last=40))

    assert [step for step, _ in whole] == list(range(40))
    assert rest == whole[first:]


def test_plan_without_samples_is_refused() -> None:
    """Nothing to train on is an error, not an endless search."""
    with pytest.raises(ValueError, match="got no samples"):
        next(steps_of([3], [], tokens=60, seed=1, first=0, last=5))


def states_of(samples: Samples, indices: Sequence[int]) -> list[States]:
    """Return states whose numbers tell sample and place: 100 * sample + place, and 1000 more."""
    import torch

    def tensor(index: int, width: int, more: int) -> object:
        places = torch.arange(len(samples.tokens(index)), dtype=torch.float32)
        return (100 * index + places + more)[:, None].repeat(1, width)

    return [
        States(index, tensor(index, FEATURES, 0), tensor(index, STATE, 1000)) for index in indices
    ]


def literal(samples: Samples, indices: Sequence[int]) -> list[tuple[float, ...]]:
    """Return (feature, token, document, position, mask, state) of each row, by the rule in words.

    A head at place i of a sample sees the target's feature of token i and reads token
    i + 1; it learns what the target thinks at token i + 1.
    """
    rows = []
    for document, index in enumerate(indices):
        tokens, answer = samples.tokens(index).tolist(), samples.answer_mask(index).tolist()
        for here, after in pairwise(range(len(tokens))):
            feature, state = 100 * index + here, 100 * index + after + 1000
            rows.append((feature, tokens[after], document, after, answer[after], state))
    return rows


def rows_of(batch: Batch) -> list[tuple[float, ...]]:
    """Return the rows of a batch, in the columns of `literal`."""
    columns = (
        batch.hidden_states[0, :, 0],
        batch.input_ids[0],
        batch.document_ids[0],
        batch.position_ids[0],
        batch.loss_mask[0],
        batch.verifier_last_hidden_states[0, :, 0],
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("indices", [[0], [2], [1, 0], [2, 0, 1]])
def test_batch_is_shifted_as_heads_learn(indices: list[int]) -> None:
    """Token i + 1 stands beside the feature of token i and the target's state of token i + 1."""
    import torch

    samples = samples_of(
        [([5, 6, 7], [8, 9]), ([11], [12, 13, 14, 15]), ([21, 22], [23, 24])], [False] * 3
    )
    batch = batch_of(states_of(samples, indices), samples, dtype=torch.float64)

    assert rows_of(batch) == literal(samples, indices)
    total = sum(len(samples.tokens(index)) - 1 for index in indices)
    assert batch.hidden_states.shape == (1, total, FEATURES)
    assert batch.verifier_last_hidden_states.shape == (1, total, STATE)
    assert batch.hidden_states.dtype == batch.verifier_last_hidden_states.dtype == torch.float64
    assert (batch.input_ids.dtype, batch.loss_mask.dtype) == (torch.int64, torch.bool)
    assert batch.position_ids[0, 0] == 1


def test_batch_is_shifted_like_speculators() -> None:
    """One sample's tensors are those of the `shift_batch` that Speculators' models expect."""
    import torch

    require_speculators()
    from speculators.models.eagle3.data import shift_batch

    samples = samples_of([([5, 6, 7], [8, 9, 10])], [False])
    (one,) = states_of(samples, [0])
    theirs = shift_batch(
        {
            "input_ids": torch.from_numpy(samples.tokens(0)),
            "hidden_states": one.features,
            "verifier_last_hidden_states": one.last,
            "loss_mask": torch.from_numpy(samples.answer_mask(0)),
            "lengths": torch.tensor([6]),
            "position_ids": torch.arange(6),
        }
    )
    ours = batch_of([one], samples, dtype=torch.float32)

    for name in ("input_ids", "hidden_states", "verifier_last_hidden_states", "loss_mask"):
        assert torch.equal(getattr(ours, name)[0], theirs[name]), name
    assert torch.equal(ours.position_ids[0], theirs["position_ids"])


def test_steps_go_through_epochs() -> None:
    """After an epoch's last step comes the next epoch's first."""
    steps = islice(steps_of([10] * 4, range(4), tokens=20, seed=1, first=0, last=9), 4)

    seen = [index for _, pack in steps for index in pack]
    assert np.bincount(seen).tolist() == [2, 2, 2, 2]
