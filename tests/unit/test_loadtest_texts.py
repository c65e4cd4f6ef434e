"""Lengths and prompts as they are written on a command line."""

from pathlib import Path

import pytest

from draftgate.errors import SpecError
from draftgate.load.lengths import Empirical, Fixed, Lengths, Lognormal, Uniform
from draftgate.load.prompts import PromptList, SharedPrefix, Synthetic, TokenIds, Words
from draftgate.load.trace import Trace
from draftgate.loadtest.texts import parse_lengths, parse_prompts

TRACE = Trace((0.0, 1.0), (30, 40), (5, 6))


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("128", Fixed(128)),
        ("100-400", Uniform(100, 400)),
        ("lognormal:median=200,sigma=0.8,low=1,high=2000", Lognormal(200, 0.8, 1, 2000)),
        ("trace", Empirical((30, 40), in_order=True)),
    ],
)
def test_lengths_are_understood(text: str, law: Lengths) -> None:
    """Each form is the law that it names."""
    assert parse_lengths(text, (30, 40)) == law


@pytest.mark.parametrize(
    "text",
    ["", "many", "3-", "1.5", "lognormal", "lognormal:median=2", "lognormal:a=1", "9-3", "0"],
)
def test_other_lengths_are_refused(text: str) -> None:
    """Anything else is one error that tells the forms or the range."""
    with pytest.raises(SpecError, match="lengths: "):
        parse_lengths(text)


def test_lengths_of_a_trace_need_one() -> None:
    """Without a trace that has lengths there is nothing to take."""
    with pytest.raises(SpecError, match="no trace with such a column"):
        parse_lengths("trace")


def test_synthetic_prompts_are_understood() -> None:
    """Lengths, ids and shared beginnings become those of the source."""
    made = parse_prompts("synthetic:9", 1, token_ids="5-70", shared_prefix="4x512@0.8")

    assert made == Synthetic(Fixed(9), TokenIds(5, 70), SharedPrefix(4, 512, 0.8))
    assert parse_prompts("synthetic:trace", 1, trace=TRACE) == Synthetic(
        Empirical((30, 40), in_order=True), Words()
    )
    whole = parse_prompts("synthetic:2", 1, shared_prefix="1x8")
    assert whole == Synthetic(Fixed(2), Words(), SharedPrefix(1, 8, 1.0))


def test_files_and_datasets_are_found(tmp_path: Path) -> None:
    """Any other text is a file or the name of a dataset."""
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": [1, 2, 3]}\n{"prompt": "Hello"}\n')

    mine, chat = parse_prompts(str(path), 1), parse_prompts("chat", 1)
    assert isinstance(mine, PromptList)
    assert [entry.prompt.token_ids for entry in mine.entries] == [(1, 2, 3), ()]
    assert isinstance(chat, PromptList)
    assert len(chat.entries) == 72


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("chat", {"token_ids": "1-2"}, "for synthetic prompts alone"),
        ("chat", {"shared_prefix": "1x2"}, "for synthetic prompts alone"),
        ("synthetic:4", {"token_ids": "1"}, "expected LOW-HIGH"),
        ("synthetic:4", {"token_ids": "9-2"}, "low <= high"),
        ("synthetic:4", {"shared_prefix": "3"}, "expected COUNTxLENGTH"),
        ("synthetic:4", {"shared_prefix": "3x9@2"}, "share must be in"),
        ("synthetic", {}, "unknown dataset 'synthetic'"),
        ("nowhere.jsonl", {}, "cannot be read"),
    ],
)
def test_other_prompts_are_refused(text: str, options: dict[str, str], words: str) -> None:
    """What has another form, or belongs elsewhere, is one error that says so."""
    with pytest.raises(SpecError, match=words):
        parse_prompts(text, 1, **options)
