"""Written prompts: drawn alike by every machine, whole, distinct, and apart from evaluation."""

import re
import time
import tomllib
from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import islice

import pytest

from draftgate.datasets import Prompt
from draftgate.datasets.builtin import stored
from draftgate.drafts.written import KINDS, Pattern, patterns, written_prompts
from draftgate.errors import SpecError

SHARED_WORDS = 12
"""A run of so many words that an evaluation prompt holds too would leak it into training."""

FEWEST_TEMPLATES = 60
"""Per kind, so that a head does not learn a few forms by heart."""

PER_KIND = 2000
"""What the training of a head asks for."""


@pytest.fixture(scope="module")
def prompts() -> tuple[Prompt, ...]:
    """The prompts of one seed in the number that training uses."""
    return written_prompts(seed=7, per_kind=PER_KIND)


def texts_of(prompts: Iterable[Prompt]) -> set[str]:
    """Return the content of every message, in lower case and with single spaces."""
    return {
        " ".join(content.lower().split()) for prompt in prompts for _, content in prompt.messages
    }


def runs_of(text: str) -> Iterator[tuple[str, ...]]:
    """Return every run of `SHARED_WORDS` words of a text, punctuation left out."""
    words = re.findall(r"[\w']+", text.lower())
    return zip(*(islice(words, start, None) for start in range(SHARED_WORDS)), strict=False)


def held_out() -> list[Prompt]:
    """Return the evaluation prompts of all kinds."""
    return [prompt for kind in KINDS for prompt in stored(kind)]


def test_same_seed_gives_same_prompts(prompts: tuple[Prompt, ...]) -> None:
    """Drawing again with the seed gives the same prompts in the same order."""
    again = written_prompts(seed=7, per_kind=PER_KIND)

    assert again == prompts


def test_other_seed_gives_other_prompts(prompts: tuple[Prompt, ...]) -> None:
    """Another seed gives mostly other conversations."""
    others = written_prompts(seed=8, per_kind=PER_KIND)

    common = {prompt.messages for prompt in prompts} & {prompt.messages for prompt in others}
    assert len(common) < len(prompts) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_full(prompts: tuple[Prompt, ...], kind: str) -> None:
    """Each kind has as many prompts as asked for, with ids that count up."""
    ids = [prompt.prompt_id for prompt in prompts if prompt.kind == kind]

    assert ids == [f"written-{kind}-{number:05d}" for number in range(PER_KIND)]


def test_prompts_are_distinct(prompts: tuple[Prompt, ...]) -> None:
    """No conversation occurs twice, whatever its letter case and spaces."""
    conversations = {
        tuple(" ".join(content.lower().split()) for _, content in prompt.messages)
        for prompt in prompts
    }

    assert len(conversations) == len(prompts)


def test_no_slot_is_left_open(prompts: tuple[Prompt, ...]) -> None:
    """No text holds the marks of a slot or of a filler that was a table."""
    marks = re.compile(r"\{\{|\}\}|\{%|\{'|\[\[")

    assert not {text for text in texts_of(prompts) if marks.search(text)}


def test_conversations_end_with_the_user(prompts: tuple[Prompt, ...]) -> None:
    """User and assistant take turns, and the user has the last word."""
    shapes = {tuple(role for role, _ in prompt.messages if role != "system") for prompt in prompts}

    assert shapes == {("user",), ("user", "assistant", "user")}


def test_no_text_equals_an_evaluation_text(prompts: tuple[Prompt, ...]) -> None:
    """No message is that of an evaluation prompt, letter case and spaces aside."""
    assert not texts_of(prompts) & texts_of(held_out())


def test_no_text_shares_a_long_run_with_evaluation(prompts: tuple[Prompt, ...]) -> None:
    """No message has twelve words in a row in common with an evaluation prompt."""
    held_runs = {run for text in texts_of(held_out()) for run in runs_of(text)}
    runs = {run for text in texts_of(prompts) for run in runs_of(text)}

    assert not [" ".join(run) for run in held_runs & runs]


@pytest.mark.parametrize("kind", KINDS)
def test_kind_has_enough_templates(kind: str) -> None:
    """Each kind draws on the promised number of templates."""
    assert len(patterns(kind)) >= FEWEST_TEMPLATES


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(pattern, id=f"{kind}-{place}")
        for kind in KINDS
        for place, pattern in enumerate(patterns(kind))
    ],
)
def test_no_filler_is_there_twice(pattern: Pattern) -> None:
    """Fillers of a slot differ, so that every combination is a prompt of its own."""
    for fillers in pattern.slots.values():
        assert len({repr(filler) for filler in fillers}) == len(fillers)


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_of_fillers_is_used(kind: str) -> None:
    """A slot that a file declares stands in its template, a shared one in some template."""
    path = files("draftgate.drafts").joinpath("written", f"{kind}.toml")
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    used = [set(pattern.slots) for pattern in patterns(kind)]

    assert set(document["fillers"]) <= set().union(*used)
    assert all(
        set(entry["slots"]) <= names
        for entry, names in zip(document["templates"], used, strict=True)
        if "slots" in entry
    )


@pytest.mark.parametrize("per_kind", [0, 10**12])
def test_impossible_count_is_refused(per_kind: int) -> None:
    """The error names what was asked for and how many exist."""
    possible = sum(pattern.size for pattern in patterns("chat"))

    with pytest.raises(SpecError, match=f"got per_kind = {per_kind}, expected 1 to {possible}"):
        written_prompts(seed=1, per_kind=per_kind)


def test_drawing_is_quick() -> None:
    """The number that training uses takes less than two seconds."""
    start = time.perf_counter()
    written_prompts(seed=3, per_kind=PER_KIND)

    assert time.perf_counter() - start < 2
