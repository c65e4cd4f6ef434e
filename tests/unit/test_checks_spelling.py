"""Prompts to ids and ids to text, through a server's routes; what else it answers is refused."""

from typing import Any

import pytest

from draftgate.checks.sources import drafter_of
from draftgate.checks.spelling import ServerSpelling
from draftgate.datasets import Prompt
from draftgate.errors import EngineError, SpecError
from draftgate.laws.proposals import NgramDrafter

PROMPT = Prompt("p", "chat", (("user", "hi"),))


def test_server_spells() -> None:
    """The chat's messages go out with the model's name, and ids come back as text."""
    sent: list[tuple[str, dict[str, Any]]] = []

    def post(path: str, body: dict[str, Any]) -> Any:
        sent.append((path, body))
        return {"tokens": [5, 6]} if path == "/tokenize" else {"prompt": "five six"}

    spelling = ServerSpelling(post, "m")

    assert spelling.ids(PROMPT) == (5, 6)
    assert spelling.text((5, 6)) == "five six"
    assert sent[0][1] == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("answer", [None, {}, {"tokens": []}, {"tokens": ["a"]}, [1]])
def test_answer_without_ids_is_refused(answer: Any) -> None:
    """Anything but a list of ids is the server's fault, with what to do about it."""
    with pytest.raises(EngineError, match="--tokenizer"):
        ServerSpelling(lambda *_: answer, "m").ids(PROMPT)


def test_text_that_can_not_be_told_is_none() -> None:
    """A server that spells nothing leaves the text out."""
    assert ServerSpelling(lambda *_: {}, "m").text((1,)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("path/of/model", None),
        ("ngram", NgramDrafter(k=4)),
        ("ngram:2-5", NgramDrafter(k=4, shortest=2, longest=5)),
    ],
)
def test_drafter_is_read(text: str | None, expected: NgramDrafter | None) -> None:
    """Only `ngram` names a drafter that is known here; anything else is a model."""
    assert drafter_of(text, 4) == expected


@pytest.mark.parametrize(("text", "k"), [("ngram", None), ("ngram:x-2", 4), ("ngram:5-2", 4)])
def test_wrong_drafter_is_refused(text: str, k: int | None) -> None:
    """Without K or with lengths that make no sense there is one error."""
    with pytest.raises(SpecError, match="ngram"):
        drafter_of(text, k)
