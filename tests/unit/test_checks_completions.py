"""Completions as vLLM writes them become answers; what is missing is an error."""

from typing import Any

import pytest

from draftgate.checks.completions import answers_of, own_logprobs, teacher_rows, usage_of
from draftgate.errors import EngineError
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters

LAW = LawParameters()


def choice(index: int, *ids: int, **more: Any) -> dict[str, Any]:
    """Return one choice."""
    return {"index": index, "token_ids": list(ids), "finish_reason": "length", **more}


def test_only_choice_has_the_usage() -> None:
    """Ids, log-probabilities, finish reason and usage are read from their places."""
    document = {
        "choices": [choice(0, 5, 6, logprobs={"token_logprobs": [-0.5, -1]})],
        "usage": {"completion_tokens": 2},
    }

    (answer,) = answers_of(document, "p", [1, 2], LAW, request=4)

    assert answer == Answer(
        request=4,
        prompt_id="p",
        prompt_token_ids=(1, 2),
        token_ids=(5, 6),
        chunks=(),
        finish_reason="length",
        parameters=LAW,
        logprobs=(-0.5, -1.0),
        usage_tokens=2,
    )


def test_choices_come_by_index_and_share_the_usage() -> None:
    """Of several choices none has the usage to itself."""
    document = {"choices": [choice(1, 7), choice(0, 5, 6)], "usage": {"completion_tokens": 3}}

    found = answers_of(document, "p", [1], LAW, request=10)

    assert [(a.request, a.token_ids, a.usage_tokens) for a in found] == [
        (10, (5, 6), None),
        (11, (7,), None),
    ]
    assert usage_of(document) == 3


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"choices": [{"index": 0, "finish_reason": None}], "usage": {"completion_tokens": 1}},
        {"choices": [choice(0, 1)]},
        {"choices": [choice(0, 1, logprobs={"token_logprobs": [None]})], "usage": {}},
        {
            "choices": [choice(0, 1, logprobs={"token_logprobs": [None]})],
            "usage": {"completion_tokens": 1},
        },
    ],
)
def test_missing_fields_are_an_engine_error(document: Any) -> None:
    """A server that leaves out what was asked for is told so."""
    with pytest.raises(EngineError, match="p: the completion lacks what was asked for"):
        answers_of(document, "p", [1], LAW)


def test_teacher_rows_are_those_of_the_output() -> None:
    """Prompt positions are cut off; each row has the token itself and the likeliest ones."""
    (answer,) = answers_of(
        {"choices": [choice(0, 8, 9)], "usage": {"completion_tokens": 2}}, "p", [1, 2], LAW
    )
    rows = [None, {"2": {"logprob": -1.0}}, {"8": {"logprob": -0.25}}]
    rows += [{"9": {"logprob": -2.0}, "3": {"logprob": -0.5}}]
    asked: list[dict[str, Any]] = []

    def post(path: str, body: dict[str, Any]) -> Any:
        asked.append({"path": path, **body})
        return {"choices": [{"prompt_logprobs": rows}]}

    found = teacher_rows(post, "target", answer)

    assert found == ({8: -0.25}, {9: -2.0, 3: -0.5})
    assert own_logprobs(answer, found) == (-0.25, -2.0)
    assert asked == [
        {
            "path": "/v1/completions",
            "model": "target",
            "prompt": [1, 2, 8, 9],
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 2,
        }
    ]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"choices": [{}]}, "lacks what was asked for"),
        ({"choices": [{"prompt_logprobs": [None, None, None]}]}, "lacks what was asked for"),
        ({"choices": [{"prompt_logprobs": [None, {}]}]}, "0 prompt_logprobs for 1 tokens"),
    ],
)
def test_missing_rows_are_an_engine_error(document: Any, said: str) -> None:
    """No log-probabilities of the output are never read as no regret."""
    (answer,) = answers_of(
        {"choices": [choice(0, 8)], "usage": {"completion_tokens": 1}}, "p", [1, 2], LAW
    )
    with pytest.raises(EngineError, match=said):
        teacher_rows(lambda _path, _body: document, "target", answer)
