"""States: what enters the chosen layers, the same alone, in a batch and from disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.drafts import states
from draftgate.drafts.answers import Samples
from draftgate.drafts.states import Computed, Stored, default_layer_ids, shard_name, store_states
from draftgate.errors import SpecError
from tests.support.drafts import HIDDEN, one_thread, random_samples, samples_of, write_target

LAYER_IDS = (2, 3, 4)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """PyTorch with one thread."""
    with one_thread():
        yield


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random target of seven layers."""
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def samples() -> Samples:
    """Six samples of unlike lengths."""
    return random_samples(6, held_out=2)


@pytest.mark.parametrize(
    ("layers", "ids"), [(7, (2, 3, 4)), (8, (2, 4, 5)), (30, (2, 15, 27)), (32, (2, 16, 29))]
)
def test_default_layers_are_those_of_the_engine(layers: int, ids: tuple[int, ...]) -> None:
    """An early, a middle and a late layer, in order and distinct."""
    assert default_layer_ids(layers) == ids


@pytest.mark.parametrize("layers", [1, 5, 6])
def test_few_layers_need_ids(layers: int) -> None:
    """Where the three would not be distinct, the recipe has to name layers."""
    with pytest.raises(SpecError, match=rf"target of {layers} layers, expected 7 or more"):
        default_layer_ids(layers)


@given(lengths=st.lists(st.integers(2, 30), min_size=1, max_size=25), limit=st.integers(30, 90))
@settings(max_examples=80, deadline=None)
def test_batches_keep_the_limit(lengths: list[int], limit: int) -> None:
    """Padded tokens never exceed the limit, and every sample comes once, in the order asked."""
    samples = samples_of([([1], [2] * (length - 1)) for length in lengths], [False] * len(lengths))
    asked = list(range(len(lengths)))[::-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "TOKENS_PER_FORWARD", limit)
        batches = list(states._batches(samples, asked))

    assert [index for batch in batches for index in batch] == asked
    assert all(len(batch) * max(lengths[i] for i in batch) <= limit for batch in batches)


def test_features_are_what_enters_the_layers(target: Path, samples: Samples) -> None:
    """Features are the inputs of the chosen layers side by side; the last state is pre-norm."""
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(str(target), dtype=torch.bfloat16).eval()
    entered: dict[int, torch.Tensor] = {}
    for at in LAYER_IDS:
        model.layers[at].register_forward_pre_hook(
            lambda _module, inputs, at=at: entered.update({at: inputs[0]})
        )
    left: list[torch.Tensor] = []
    model.norm.register_forward_pre_hook(lambda _module, inputs: left.append(inputs[0]))
    with torch.no_grad():
        model(torch.from_numpy(samples.tokens(0))[None])

    (found,) = Computed(target, LAYER_IDS, samples).states([0])
    length = len(samples.tokens(0))
    assert found.features.shape == (length, 3 * HIDDEN)
    assert torch.equal(found.features, torch.cat([entered[at][0] for at in LAYER_IDS], dim=-1))
    assert torch.equal(found.last, left[0][0])


def test_company_in_a_batch_changes_nothing(target: Path, samples: Samples) -> None:
    """A sample's states are the same alone and padded beside longer ones, up to rounding."""
    source = Computed(target, LAYER_IDS, samples)
    together = list(source.states([5, 0, 3]))

    assert [one.index for one in together] == [5, 0, 3]
    for one in together:
        (alone,) = source.states([one.index])
        for here, there in ((one.features, alone.features), (one.last, alone.last)):
            assert (here - there).float().norm() < 0.02 * there.float().norm()


class Counted:
    """A source that tells which samples were asked for."""

    def __init__(self, inner: Computed) -> None:
        self.inner = inner
        self.asked: list[int] = []

    def states(self, indices: range) -> Iterator[states.States]:
        """Pass on, and note."""
        self.asked.extend(indices)
        return self.inner.states(indices)


def test_stored_states_are_those_computed(
    target: Path, samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards give back what was computed; one that is there whole is not made again."""
    import torch

    monkeypatch.setattr(states, "SAMPLES_PER_SHARD", 2)
    source = Counted(Computed(target, LAYER_IDS, samples))
    store_states(source, samples, tmp_path, print)
    (tmp_path / shard_name(1)).unlink()
    source.asked.clear()
    facts = store_states(source, samples, tmp_path, print)

    assert source.asked == [2, 3]
    assert (facts["shards"], facts["tokens"]) == (3, len(samples.token_ids))
    stored = list(Stored(tmp_path, samples).states([4, 1]))
    assert [one.index for one in stored] == [4, 1]
    computed = next(source.inner.states([4, 5]))
    assert torch.equal(stored[0].features, computed.features)
    assert torch.equal(stored[0].last, computed.last)
