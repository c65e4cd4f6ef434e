"""What a step says: ratios over several batches, and the length that they promise."""

from types import SimpleNamespace

import pytest

from draftgate.drafts.heads import Learned, _mask_token, as_facts, learned
from draftgate.errors import SpecError
from tests.support.drafts import small_recipe


def test_length_of_chains() -> None:
    """Shares of whole chains add up: 1 + .5 + .25 + .125."""
    assert Learned(1.0, (0.5, 0.25, 0.125), chained=True).acceptance_length == 1.875


def test_length_of_single_drafts() -> None:
    """Shares of single drafts multiply along the chain: 1 + .5 + .5 * .8 + .5 * .8 * .5."""
    found = Learned(1.0, (0.5, 0.8, 0.5), chained=False)

    assert found.acceptance_length == pytest.approx(2.1)


@pytest.mark.parametrize("chained", [True, False], ids=["chained", "single"])
@pytest.mark.parametrize(("share", "length"), [(0.0, 1.0), (1.0, 4.0)])
def test_length_of_extremes(chained: bool, share: float, length: float) -> None:  # noqa: FBT001 (parametrised)
    """Without an accepted draft the bonus token is left; with all of K there are K + 1."""
    assert Learned(1.0, (share,) * 3, chained=chained).acceptance_length == length


@pytest.mark.parametrize(
    ("algorithm", "key", "chained"),
    [("eagle3", "full_acc_{}", True), ("peagle", "position_{}_acc", False)],
)
def test_counts_of_batches_are_added(algorithm: str, key: str, chained: bool) -> None:  # noqa: FBT001 (parametrised)
    """A ratio is of summed counts, so a batch weighs as much as it has positions."""
    counts = [((9, 10), (1, 2), (0, 0)), ((1, 10), (1, 2), (0, 0))]
    metrics = [
        {"loss_sum": 2.0 + number, "loss_total": 1.0}
        | {f"{key.format(d)}_sum": above for d, (above, _) in enumerate(batch)}
        | {f"{key.format(d)}_total": below for d, (_, below) in enumerate(batch)}
        for number, batch in enumerate(counts)
    ]

    assert learned(small_recipe(algorithm), metrics) == Learned(2.5, (0.5, 0.5, 0.0), chained)


def test_facts_are_rounded() -> None:
    """What is kept of an evaluation are plain numbers of few digits."""
    assert as_facts(Learned(1.23456, (0.33333, 0.12345), chained=True)) == {
        "loss": 1.2346,
        "accuracy": [0.3333, 0.1235],
        "acceptance_length": 1.457,
    }


@pytest.mark.parametrize(("pad", "begin", "token"), [(2, 1, 2), (None, 1, 1), (0, None, 0)])
def test_mask_token(pad: int | None, begin: int | None, token: int) -> None:
    """Places not yet drafted hold the padding token, else that of the begin of text."""
    assert _mask_token(SimpleNamespace(pad_token_id=pad, bos_token_id=begin)) == token


def test_target_without_such_a_token_is_refused() -> None:
    """A config that names neither is an error that names both."""
    with pytest.raises(SpecError, match="without pad_token_id and bos_token_id"):
        _mask_token(SimpleNamespace(pad_token_id=None, bos_token_id=None))
