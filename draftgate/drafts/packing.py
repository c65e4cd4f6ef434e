"""Samples packed into optimiser steps, and each step's tensors as heads take them.

A plan is a function of lengths, seed and epoch alone, so a training that goes on
after a stop sees what it would have seen. Knows no model.

Source: a head learns from token x[i + 1] beside feature g[i], with the target's
state of token i + 1 (Speculators' `shift_batch`); without that shift the loss
falls as well, and drafts are not accepted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from draftgate.drafts.answers import Samples
from draftgate.drafts.states import States

Tensor = Any


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's tensors, each with a leading dimension of 1, T tokens after it.

    Attributes:
        hidden_states: Features of the token before; shape (1, T, layers * hidden).
        input_ids: Tokens; shape (1, T).
        document_ids: Which sample of the step a token is of; shape (1, T).
        position_ids: Place of a token in its sample, from 1; shape (1, T).
        loss_mask: Whether a token is of an answer; shape (1, T).
        verifier_last_hidden_states: The target's state of the token; shape (1, T, hidden).
    """

    hidden_states: Tensor
    input_ids: Tensor
    document_ids: Tensor
    position_ids: Tensor
    loss_mask: Tensor
    verifier_last_hidden_states: Tensor


def packs(
    lengths: Sequence[int], indices: Sequence[int], *, tokens: int, seed: int, epoch: int
) -> list[list[int]]:
    """Return the steps of an epoch: lists of samples of at most `tokens` tokens together.

    Args:
        lengths: Of every sample, tokens.
        indices: Samples to be seen once each.
        tokens: Most tokens of a step; a longer sample makes a step of its own.
        seed: With `epoch`, decides the order.
        epoch: Number of the epoch.

    Returns:
        Every index once.
    """
    order = np.random.default_rng([seed, epoch]).permutation(np.asarray(indices, dtype=np.int64))
    found: list[list[int]] = []
    room = 0
    for index in order.tolist():
        if not found or lengths[index] > room:
            found.append([])
            room = tokens
        found[-1].append(index)
        room -= lengths[index]
    return found


def steps_of(
    lengths: Sequence[int], indices: Sequence[int], *, tokens: int, seed: int, first: int, last: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield (step, its samples) for steps `first` to `last` - 1, epoch after epoch.

    Raises:
        ValueError: If there is no sample.
    """
    if not len(indices):
        raise ValueError("got no samples, expected one or more to make steps of")
    step = epoch = 0
    while step < last:
        for pack in packs(lengths, indices, tokens=tokens, seed=seed, epoch=epoch):
            if first <= step < last:
                yield step, pack
            step += 1
        epoch += 1


def batch_of(pack: Sequence[States], samples: Samples, *, dtype: Tensor) -> Batch:
    """Return the tensors of one step, shifted as heads learn.

    Args:
        pack: States of the step's samples.
        samples: Where their tokens are.
        dtype: Of features and states.
    """
    import torch  # noqa: PLC0415 - optional, and seconds to import

    device = pack[0].features.device
    ids, masks, documents, positions = [], [], [], []
    for number, one in enumerate(pack):
        tokens = samples.tokens(one.index)[1:]
        ids.append(tokens)
        masks.append(samples.answer_mask(one.index)[1:])
        documents.append(np.full(len(tokens), number))
        positions.append(np.arange(1, len(tokens) + 1))

    def row(parts: Sequence[Any], kind: Any) -> Tensor:
        whole = np.concatenate(parts).astype(kind)
        return torch.from_numpy(whole)[None].to(device, non_blocking=True)

    return Batch(
        hidden_states=torch.cat([one.features[:-1] for one in pack])[None].to(dtype),
        input_ids=row(ids, np.int64),
        document_ids=row(documents, np.int64),
        position_ids=row(positions, np.int64),
        loss_mask=row(masks, np.bool_),
        verifier_last_hidden_states=torch.cat([one.last[1:] for one in pack])[None].to(dtype),
    )
