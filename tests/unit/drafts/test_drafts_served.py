"""The arithmetic of the replay of served drafts."""

import numpy as np

from benchmarks.drafts.served import _by_step, chains, walked
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters


def test_chain_is_right_as_far_as_all_before_it_are() -> None:
    """Place j drafts tokens j + 2, j + 3, ...; a wrong draft ends the chain, so does the end."""
    tokens = np.array([9, 1, 2, 3, 4])
    drafts = [np.array([2, 0, 4, 7]), np.array([3, 4, 0, 0])]

    found = chains(drafts, tokens)

    assert found.tolist() == [[True, False, True, False], [True, False, False, False]]


def test_walk_skips_what_was_accepted() -> None:
    """A step that accepts n begins the next n + 1 places further; none begins behind the last."""
    accepted = np.array([5, 2, 0, 0, 1, 0, 3])

    assert walked(accepted, 1, 5).tolist() == [2, 1]
    assert walked(accepted, 2, 5).tolist() == [0, 0, 1]


def test_server_steps_stand_beside_the_replay_at_their_place() -> None:
    """The first chunk comes of the prefill; a step without room for all drafts is left out."""
    answer = Answer(
        request=0,
        prompt_id="a",
        prompt_token_ids=(7, 8),
        token_ids=(1, 2, 3, 4, 5),
        chunks=(1, 2, 1, 1),
        finish_reason="length",
        parameters=LawParameters(temperature=0),
    )
    accepted = np.array([9, 1, 9, 0, 3])

    assert _by_step(answer, accepted, 3).tolist() == [[1, 1], [0, 0]]
