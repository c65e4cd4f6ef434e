"""What a request may ask for, and what an answer must hold."""

from typing import Any

import pytest

from draftgate.errors import MeasurementError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters, Structure


def answer(**changed: Any) -> Answer:
    """An answer of four tokens in three chunks, the last of them empty."""
    fields: dict[str, Any] = {
        "request": 3,
        "prompt_id": "p",
        "prompt_token_ids": (5, 6),
        "token_ids": (1, 2, 3, 4),
        "chunks": (1, 3, 0),
        "finish_reason": "length",
        "parameters": LawParameters(),
    }
    return Answer(**(fields | changed))


def test_defaults_change_nothing() -> None:
    """A request without parameters samples from the model's own law."""
    plain = LawParameters()

    assert not plain.greedy
    assert not plain.filtered
    assert not plain.depends_on_output


@pytest.mark.parametrize("changed", [{"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_filters_are_known(changed: dict[str, float]) -> None:
    """Each of the three filters counts as one, and none of them looks at the output."""
    parameters = LawParameters(**changed)  # type: ignore[arg-type] # one number a name

    assert parameters.filtered
    assert not parameters.depends_on_output


@pytest.mark.parametrize(
    "changed",
    [
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"repetition_penalty": 1.1},
        {"bad_words": ((1, 2),)},
        {"min_tokens": 3},
        {"structure": Structure(kind="json_object")},
    ],
)
def test_what_looks_at_the_output_is_known(changed: dict[str, Any]) -> None:
    """Each rule whose result depends on the output is named as such, and none is a filter."""
    parameters = LawParameters(**changed)

    assert parameters.depends_on_output
    assert not parameters.filtered


def test_temperature_0_is_greedy() -> None:
    """Temperature 0 and nothing else makes a request greedy."""
    assert LawParameters(temperature=0).greedy
    assert not LawParameters(temperature=0.01).greedy


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"temperature": -0.1}, "temperature: must be at least 0, got -0.1"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0.0}, "top_p: must be above 0"),
        ({"top_p": 1.01}, "top_p: must be at least 0 and at most 1, got 1.01"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": -0.1}, "min_p"),
        ({"presence_penalty": 2.5}, "presence_penalty: must be at least -2 and at most 2"),
        ({"frequency_penalty": -2.5}, "frequency_penalty"),
        ({"repetition_penalty": 0.0}, "repetition_penalty: must be above 0"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"bad_words": ((1,), ())}, "bad_words: got a word without tokens"),
    ],
)
def test_numbers_outside_their_range_are_refused(changed: dict[str, Any], words: str) -> None:
    """The message names the parameter, what it was and what it may be."""
    with pytest.raises(SpecError, match=words):
        LawParameters(**changed)


@pytest.mark.parametrize(
    ("kind", "texts", "words"),
    [
        ("choice", (), "got 0 texts, expected at least 1"),
        ("regex", ("a", "b"), "got 2 texts, expected 1"),
        ("json", (), "got 0 texts, expected 1"),
        ("json_object", ("{}",), "got 1 texts, expected 0"),
        ("lark", ("a",), "unknown kind 'lark', expected one of choice, regex, json, json_object"),
    ],
)
def test_structures_need_their_texts(kind: Any, texts: tuple[str, ...], words: str) -> None:
    """A structure of an unknown kind or with the wrong number of texts is refused."""
    with pytest.raises(SpecError, match=words):
        Structure(kind=kind, texts=texts)


def test_positions_count_within_chunks() -> None:
    """Positions start again with each chunk, and a chunk without tokens adds none."""
    assert answer().positions == (0, 0, 1, 2)
    assert answer(chunks=()).positions == ()


def test_chunks_must_add_up() -> None:
    """Chunks that hold another number of tokens than the output are refused."""
    with pytest.raises(
        MeasurementError, match="request 3: its chunks hold 3 tokens, expected the 4"
    ):
        answer(chunks=(1, 2))
