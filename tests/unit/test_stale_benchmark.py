"""The stale-head experiment: a delta put back into its model, and a page that says its numbers."""

import pytest

from benchmarks.stale.merge import merged
from benchmarks.stale.page import HERE, filled, load
from draftgate.errors import SpecError

torch = pytest.importorskip("torch")
NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
PLACE = "model.layers.0.self_attn.q_proj.weight"


def test_delta_is_added_with_its_scale() -> None:
    """W becomes W + scale B A in the model's own type; all else stays."""
    weights = {PLACE: torch.ones(3, 2, dtype=torch.bfloat16), "norm.weight": torch.ones(2)}
    low, high = torch.tensor([[1.0, -2.0]]), torch.tensor([[1.0], [0.0], [3.0]])

    found = merged(weights, {NAME.format("A"): low, NAME.format("B"): high}, 2.0)

    assert found[PLACE].dtype is torch.bfloat16
    assert found[PLACE].tolist() == [[3.0, -3.0], [1.0, 1.0], [7.0, -11.0]]
    assert torch.equal(found["norm.weight"], weights["norm.weight"])
    assert weights[PLACE].tolist() == [[1.0, 1.0]] * 3


@pytest.mark.parametrize("shape", [(2, 2), (3, 3)])
def test_delta_of_another_model_is_refused(shape: tuple[int, int]) -> None:
    """A matrix of another shape is named, with what to do."""
    delta = {NAME.format("A"): torch.ones(1, 2), NAME.format("B"): torch.ones(3, 1)}

    with pytest.raises(SpecError, match=r"fits no matrix model\.layers\.0\.self_attn\.q_proj"):
        merged({PLACE: torch.ones(shape)}, delta, 1.0)


def test_committed_page_says_what_the_committed_numbers_say() -> None:
    """RESULTS.md's tables are those of results.json and made.json."""
    text = (HERE / "RESULTS.md").read_text(encoding="utf-8")

    assert filled(text, *load()) == text


def test_next_version_was_measured_with_both_heads_on_all_kinds() -> None:
    """Each of two heads and two versions has each kind once, and one verdict a kind was given."""
    results, _ = load()
    cells = {(one["head"], one["target"], one["kind"]) for one in results["rows"]}

    assert len(cells) == len(results["rows"]) == 12
    assert len(results["verdicts"]) == 3
