"""What a server as reference is told, and what it tells of a worst example."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftgate.checks.sources import LIKELY, ServerSetting, server_source, special_ids_in
from draftgate.errors import SpecError
from draftgate.laws.parameters import LawParameters
from tests.unit.test_laws_teacher import VOCABULARY, Server, answers

SETTING = ServerSetting(
    vocabulary=VOCABULARY, dtype="float32", drafter=None, special=frozenset(), itself=None
)


@pytest.mark.parametrize(
    "parameters",
    [LawParameters(), LawParameters(temperature=0.7), LawParameters(temperature=0.7, top_k=2)],
)
def test_likely_tokens_have_the_probability_of_the_condition(parameters: LawParameters) -> None:
    """A token that is likely itself is shown with the probability that the evidence gives it."""
    source = server_source(Server().post, "target", SETTING)
    (answer,) = answers(parameters, 1)
    scores = source.reference.score([answer], None)
    shown = [dict(source.likely(answer, index + 1)) for index in range(len(scores))]
    own = [
        (row, found[t]) for row, t in enumerate(scores.token.tolist()) if t in (found := shown[row])
    ]

    assert {len(found) for found in shown} == {LIKELY}
    assert len(own) > 5
    np.testing.assert_allclose([p for _, p in own], np.exp(scores.logp[[row for row, _ in own]]))


def test_likely_tokens_sharpen_with_the_temperature() -> None:
    """The most likely token is shown as likelier where the request was colder."""
    source = server_source(Server().post, "target", SETTING)
    (answer,) = answers(LawParameters(), 1)
    cold = replace(answer, parameters=LawParameters(temperature=0.3))

    (_, warm_p), *_ = source.likely(answer, 3)
    (_, cold_p), *_ = source.likely(cold, 3)

    assert cold_p > warm_p + 0.05


@pytest.mark.parametrize(("dtype", "known"), [("float32", True), ("bfloat16", False)])
def test_filters_are_known_in_float32_alone(dtype: str, *, known: bool) -> None:
    """In bfloat16 the reference refuses them and says so; the source says what to ask for."""
    source = server_source(Server().post, "target", replace(SETTING, dtype=dtype))

    assert source.filters is known
    assert any("refused: rounding" in blind for blind in source.reference.blind_to) is not known


def test_special_tokens_reach_the_reference(tmp_path: Path) -> None:
    """Special tokens of the tokenizer's folder are marked in the scores and counted."""
    (answer,) = answers(LawParameters(), 1)
    tokens = [{"id": answer.token_ids[5], "special": True}, {"id": 99, "special": False}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens}))

    special = special_ids_in(str(tmp_path))
    source = server_source(Server().post, "target", replace(SETTING, special=special))
    scores = source.reference.score([answer], None)

    assert source.special == 1
    assert scores.special.tolist() == [t == answer.token_ids[5] for t in answer.token_ids[1:]]


def test_special_tokens_of_an_unknown_tokenizer_are_none(tmp_path: Path) -> None:
    """No folder, or one without tokenizer.json, knows none; a damaged file is an error."""
    assert special_ids_in(None) == special_ids_in(str(tmp_path)) == frozenset()
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(SpecError, match="special tokens"):
        special_ids_in(str(tmp_path))


def test_drafter_reaches_the_reference() -> None:
    """What is proposed by ids alone fills the columns about the draft."""
    (answer,) = answers(LawParameters(), 1)
    drafted = replace(SETTING, drafter=_first)

    scores = server_source(Server().post, "target", drafted).reference.score([answer], 4)

    assert 7 in scores.draft.tolist()


def _first(_ids: Any) -> tuple[int, ...]:
    """Propose the same token wherever it is asked."""
    return (7, 7, 7, 7)
