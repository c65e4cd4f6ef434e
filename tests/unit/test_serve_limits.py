"""What a request may ask for, and what it is told if it asks for more."""

import json
from typing import Any

import pytest

from draftgate.errors import SpecError
from draftgate.serve.limits import COMPLETIONS_DEFAULT_TOKENS, Limits, check_request
from draftgate.serve.refusals import Refusal, RefusedError

LIMITS = Limits(max_body_bytes=10_000, max_output_tokens=20)


def refusal(body: bytes, limits: Limits = LIMITS, *, chat: bool = True) -> Refusal:
    """Return what the front answers to a request that it must not pass on."""
    with pytest.raises(RefusedError) as refused:
        check_request(body, limits, chat=chat)
    return refused.value.refusal


def sent(limits: Limits = LIMITS, *, chat: bool = True, **fields: object) -> dict[str, Any]:
    """Return what goes to the engine of a request with these fields."""
    document: dict[str, Any] = json.loads(
        check_request(json.dumps(fields).encode(), limits, chat=chat).body
    )
    return document


def test_request_within_limits_passes_as_it_is() -> None:
    """The bytes are the client's own, odd spacing and unknown fields included."""
    body = b'{ "messages":[], "max_tokens" : 20,"odd": {"max_tokens": 500}, "stream":true }'

    checked = check_request(body, LIMITS, chat=True)

    assert checked.body is body
    assert checked.stream


@pytest.mark.parametrize("stream", ["false", "null", '"yes"', "1"])
def test_only_true_is_a_stream(stream: str) -> None:
    """The flag is for lines alone; the engine decides what else it takes for one."""
    body = f'{{"max_tokens": 1, "stream": {stream}}}'.encode()

    assert not check_request(body, LIMITS, chat=True).stream


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("chat", [True, False])
def test_too_many_tokens_are_refused(field: str, *, chat: bool) -> None:
    """One more than the limit is a 400 that names field, value and limit."""
    found = refusal(json.dumps({field: 21}).encode(), chat=chat)

    assert (found.status, found.code, found.param) == (400, "over_limit", field)
    assert found.message == f"{field} is 21, expected at most 20. Ask for a shorter answer."


def test_escaped_or_repeated_field_is_no_way_around() -> None:
    """The engine's reader takes the last of equal names, in whatever spelling."""
    assert refusal(b'{"max\\u005ftokens": 500}').param == "max_tokens"
    assert refusal(b'{"max_tokens": 5, "max_tokens": 500}').param == "max_tokens"


@pytest.mark.parametrize("value", ['"500"', "500.0", "true", "[500]", "-1"])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "n", "best_of"])
def test_value_that_an_engine_might_convert_is_refused(field: str, value: str) -> None:
    """Lenient readers turn "500" into 500; only whole numbers of 0 or more pass."""
    found = refusal(f'{{"{field}": {value}}}'.encode())

    assert (found.status, found.param) == (400, field)
    assert "whole number" in found.message


@pytest.mark.parametrize("fields", [{}, {"max_tokens": None}, {"max_completion_tokens": None}])
def test_chat_without_a_length_gets_the_limit(fields: dict[str, object]) -> None:
    """Where a request leaves it open, the limit is written into it; the rest stays."""
    found = sent(messages=[{"role": "user", "content": "\U0001f680 Zürich"}], top_p=0.3, **fields)

    assert found.pop("max_completion_tokens", None) is None
    assert found == {
        "messages": [{"role": "user", "content": "\U0001f680 Zürich"}],
        "top_p": 0.3,
        "max_tokens": 20,
    }


def test_completions_have_a_default_of_their_own() -> None:
    """Without a length they give 16 tokens, which is left alone unless the limit is lower."""
    low = Limits(10_000, COMPLETIONS_DEFAULT_TOKENS - 1)

    assert "max_tokens" not in sent(chat=False, prompt="x")
    assert sent(low, chat=False, prompt="x")["max_tokens"] == 15
    assert sent(chat=False, prompt="x", max_tokens=None)["max_tokens"] == 20
    assert (
        sent(chat=False, prompt="x", max_tokens=None, max_completion_tokens=3)["max_tokens"] == 20
    )


def test_without_a_token_limit_nothing_is_asked_or_written() -> None:
    """The engine's own limit is then the only one."""
    body = b'{"messages": [], "max_tokens": 1000000}'

    assert check_request(body, Limits(10_000), chat=True).body is body


@pytest.mark.parametrize(
    ("fields", "choices"),
    [
        ({"n": 2}, 2),
        ({"best_of": 3}, 3),
        ({"n": 2, "best_of": 4}, 4),
        ({"prompt": ["a", "b"]}, 2),
        ({"prompt": [[1, 2], [3]], "n": 2}, 4),
    ],
)
def test_choices_are_counted_over_prompts(fields: dict[str, object], choices: int) -> None:
    """Each choice of each prompt takes a place in the engine's batch."""
    body = json.dumps({"max_tokens": 1, **fields}).encode()

    found = refusal(body, Limits(10_000, 20, max_choices=choices - 1), chat=False)
    assert (found.status, found.param) == (400, "n")
    assert f"asks for {choices} choices" in found.message
    assert check_request(body, Limits(10_000, 20, max_choices=choices), chat=False).body is body


@pytest.mark.parametrize("prompt", ["a", [1, 2, 3], ["a"], [[1, 2]], []])
def test_one_prompt_is_one_choice(prompt: object) -> None:
    """Text, ids, and lists of one of them."""
    assert sent(chat=False, prompt=prompt, max_tokens=1, n=1)["prompt"] == prompt


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "\\ud83d"}',
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"n": NaN}',
        b'{"x": ' + b"[" * 100_000,
    ],
)
def test_body_that_is_no_object_is_refused(body: bytes) -> None:
    """Half a character, broken, of another kind, far too deep: a 400 that repeats none of it."""
    found = refusal(body)

    assert (found.status, found.code, found.kind) == (400, "invalid_body", "invalid_request_error")
    assert found.message.startswith("The body is no JSON object that can be read")


@pytest.mark.parametrize(
    ("limits", "about"),
    [((0,), "--max-body-bytes"), ((1, 0), "--max-output-tokens"), ((1, 1, 0), "--max-choices")],
)
def test_limit_below_one_is_an_error(limits: tuple[int, ...], about: str) -> None:
    """It names the option."""
    with pytest.raises(SpecError, match=f"{about} must be 1 or more, got 0"):
        Limits(*limits)


def test_refusal_has_the_form_of_openai() -> None:
    """Body and headers as OpenAI's client reads them."""
    found = Refusal(429, "queue_full", "Full.", kind="rate_limit_error", retry_after_s=3)

    assert json.loads(found.body()) == {
        "error": {
            "message": "Full.",
            "type": "rate_limit_error",
            "param": None,
            "code": "queue_full",
        }
    }
    assert dict(found.headers()) == {
        b"content-type": b"application/json",
        b"content-length": str(len(found.body())).encode(),
        b"retry-after": b"3",
    }
