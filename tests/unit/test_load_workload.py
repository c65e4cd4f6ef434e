"""What is sent: a function of plan, seed and number; laws and files as stated."""

import json
import math
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from draftgate.datasets import load_prompts
from draftgate.errors import SpecError
from draftgate.load.apis import LoadPrompt
from draftgate.load.lengths import (
    Empirical,
    Fixed,
    Lengths,
    Lognormal,
    Uniform,
    draw,
)
from draftgate.load.prompts import (
    ListedPrompt,
    PromptList,
    SharedPrefix,
    Synthetic,
    TokenIds,
    Words,
    find_prompts,
    read_prompt_list,
)
from draftgate.load.words import WORDS
from draftgate.load.workload import RequestPlan, Session

HI = LoadPrompt("hi", messages=(("system", "Be brief."), ("user", "Hi.")))
RAW = LoadPrompt("raw", text="Once upon a time")
IDS = LoadPrompt("ids", token_ids=(5, 6, 7))
LISTED = PromptList((ListedPrompt(HI), ListedPrompt(RAW, 7), ListedPrompt(HI, 9)), "three")

PLANS = {
    "words": RequestPlan(Synthetic(Uniform(10, 20), Words()), Uniform(1, 64), 1),
    "ids": RequestPlan(
        Synthetic(Lognormal(50.0, 0.5, 8, 200), TokenIds(100, 49_000)),
        Lognormal(100.0, 1.0, 1, 1000),
        1,
    ),
    "prefixes": RequestPlan(
        Synthetic(Fixed(12), Words(), SharedPrefix(4, 50, 0.75)), Empirical((3, 5, 9)), 1
    ),
    "listed": RequestPlan(LISTED, Fixed(32), 1),
}


def length(prompt: LoadPrompt) -> int:
    """Return how many words or ids a synthetic prompt has."""
    return len(prompt.token_ids) or len((prompt.text or "").split(" "))


@pytest.mark.parametrize("name", PLANS)
def test_request_is_a_function_of_its_number(name: str) -> None:
    """In any order, again, or in another process, a number gives the same request."""
    plan = PLANS[name]
    forwards = [plan.request(number) for number in range(50)]
    elsewhere = pickle.loads(pickle.dumps(plan))

    assert [plan.request(number) for number in reversed(range(50))] == forwards[::-1]
    assert [elsewhere.request(number) for number in range(50)] == forwards
    assert [planned.number for planned in forwards] == list(range(50))
    assert {(planned.session, planned.turn) for planned in forwards} == {(None, 0)}


@pytest.mark.parametrize("name", ["words", "ids", "prefixes"])
def test_seed_decides_synthetic_requests(name: str) -> None:
    """Another seed gives other prompts and other lengths."""
    plan = PLANS[name]
    other = RequestPlan(plan.prompts, plan.output, 2)
    numbers = range(50)

    assert not {plan.request(n).prompt for n in numbers} & {
        other.request(n).prompt for n in numbers
    }
    assert [plan.request(n).max_tokens for n in numbers] != [
        other.request(n).max_tokens for n in numbers
    ]


def test_requests_are_pinned() -> None:
    """Seed 1 gives the requests it gave when released, on every machine."""
    words, ids = PLANS["words"].request(3), PLANS["ids"].request(3)

    assert (words.prompt.text or "").split(" ")[:4] == ["island", "elbow", "road", "pine"]
    assert ids.prompt.token_ids[:4] == (32194, 20742, 44698, 27566)
    assert (words.max_tokens, ids.max_tokens) == (20, 59)


@pytest.mark.parametrize(
    "purpose", ["output length", "prompt length", "which prefix", "prefix is shared"]
)
def test_draws_are_uniform(purpose: str) -> None:
    """Over 10,000 numbers the draws of a purpose pass KS at p > 0.0001."""
    drawn = [draw(1, purpose, number) for number in range(10_000)]

    assert stats.kstest(drawn, "uniform").pvalue > 1e-4


def test_draws_of_two_purposes_are_independent() -> None:
    """Prompt and output lengths of 10,000 numbers correlate by less than four standard errors."""
    first = [draw(1, "prompt length", number) for number in range(10_000)]
    second = [draw(1, "output length", number) for number in range(10_000)]

    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(10_000)


@pytest.mark.parametrize(
    ("law", "low", "high"),
    [
        (Fixed(7), 7, 7),
        (Uniform(3, 5), 3, 5),
        (Lognormal(100.0, 1.0, 10, 2000), 10, 2000),
        (Lognormal(100.0, 0.0, 1, 2000), 100, 100),
        (Lognormal(100.0, 300.0, 1, 2000), 1, 2000),
        (Empirical((8, 2, 2)), 2, 8),
        (Empirical((8, 2, 2), in_order=True), 2, 8),
    ],
)
def test_length_reaches_its_limits_and_no_further(law: Lengths, low: int, high: int) -> None:
    """At either end of the draws, and between them, a length is within what is stated."""
    found = [law.at(i, share) for i, share in enumerate((0.0, 0.2, 0.5, 0.8, 1.0 - 2.0**-53))]

    assert (min(found), max(found)) == (low, high)
    assert all(type(value) is int for value in found)


def test_uniform_lengths_are_all_alike() -> None:
    """Over 30,000 draws each of six lengths has its share (chi-square p > 0.0001)."""
    law = Uniform(5, 10)
    counts = Counter(law.at(n, draw(1, "test", n)) for n in range(30_000))

    assert sorted(counts) == [5, 6, 7, 8, 9, 10]
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_lognormal_lengths_have_their_median_and_spread() -> None:
    """Over 20,000 draws median and sigma of the logarithm hold to 3 %."""
    law = Lognormal(500.0, 0.8, 1, 10**6)
    found = np.log([law.at(n, draw(1, "test", n)) for n in range(20_000)])

    assert math.exp(np.median(found)) == pytest.approx(500.0, rel=0.03)
    assert found.std() == pytest.approx(0.8, rel=0.03)


def test_lengths_in_order_follow_the_list() -> None:
    """Item i has the i-th length, from the start again after the last."""
    law = Empirical((8, 2, 5), in_order=True)

    assert [law.at(number, 0.99) for number in range(5)] == [8, 2, 5, 8, 2]


def test_listed_lengths_are_drawn_by_their_share() -> None:
    """Over 30,000 draws a length that is listed twice comes two times in three."""
    law = Empirical((8, 2, 2))
    twos = sum(law.at(n, draw(1, "test", n)) == 2 for n in range(30_000))

    assert twos / 30_000 == pytest.approx(2 / 3, abs=4 * math.sqrt(2 / 9 / 30_000))


@settings(deadline=None, max_examples=60)  # a busy machine is no failure
@given(number=st.integers(0, 10**9), seed=st.integers(-(2**70), 2**70), size=st.integers(1, 300))
def test_synthetic_prompt_has_its_length(number: int, seed: int, size: int) -> None:
    """Any number and seed give exactly as many words of the vocabulary, or ids of the range."""
    words = Synthetic(Fixed(size), Words()).prompt(number, seed)
    ids = Synthetic(Fixed(size), TokenIds(10, 12)).prompt(number, seed)

    assert length(words) == length(ids) == size
    assert set((words.text or "").split(" ")) <= set(WORDS)
    assert set(ids.token_ids) <= {10, 11, 12}


def test_vocabulary_is_256_different_words() -> None:
    """One byte picks a word, and no word is there twice."""
    assert len(WORDS) == len(set(WORDS)) == 256
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


def test_words_and_ids_are_all_alike() -> None:
    """Over 50,000 units each word and each of 100 ids has its share (chi-square p > 0.0001)."""
    words = Synthetic(Fixed(50_000), Words()).prompt(0, 1)
    ids = Synthetic(Fixed(50_000), TokenIds(5, 104)).prompt(0, 1)
    word_counts = Counter((words.text or "").split(" "))
    id_counts = Counter(ids.token_ids)

    assert (len(word_counts), len(id_counts)) == (256, 100)
    assert stats.chisquare(list(word_counts.values())).pvalue > 1e-4
    assert stats.chisquare(list(id_counts.values())).pvalue > 1e-4


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_prefixes_are_shared_as_stated(share: float) -> None:
    """Of 4,000 prompts the stated share begins with one of 8 prefixes, each as often; tails differ.

    Bounds are four standard errors; without sharing no two beginnings are alike.
    """
    source = Synthetic(Fixed(12), Words(), SharedPrefix(8, 20, share))
    texts = [(source.prompt(n, 1).text or "").split(" ") for n in range(4000)]
    beginnings = Counter(tuple(text[:20]) for text in texts)
    common = {start: count for start, count in beginnings.items() if count > 1}

    assert {len(text) for text in texts} == {32}
    assert len({tuple(text[20:]) for text in texts}) == 4000
    assert len(common) == (8 if share else 0)
    assert abs(sum(common.values()) - 4000 * share) <= 4 * math.sqrt(4000 * share * (1 - share))
    each = 4000 * share / 8
    assert all(abs(count - each) <= 4 * math.sqrt(each) for count in common.values())


def test_prefixes_work_for_token_ids() -> None:
    """Ids share a beginning just as words do."""
    source = Synthetic(Fixed(5), TokenIds(0, 49_151), SharedPrefix(1, 30))
    first, second = source.prompt(0, 1).token_ids, source.prompt(1, 1).token_ids

    assert first[:30] == second[:30]
    assert first[30:] != second[30:]
    assert len(first) == len(second) == 35


def test_listed_prompts_go_round_with_their_lengths() -> None:
    """A list is sent in order, again from the start; a listed length beats the plan's."""
    planned = [PLANS["listed"].request(number) for number in range(4)]

    assert [p.prompt.prompt_id for p in planned] == ["hi", "raw", "hi", "hi"]
    assert [p.max_tokens for p in planned] == [32, 7, 9, 32]


def test_session_holds_the_answers_received() -> None:
    """Each turn sends the earlier turns with what was answered; then the conversation ends."""
    session = RequestPlan(LISTED, Fixed(32), 1, turns=3).session(0)
    first = session.next_turn(None)
    second = session.next_turn("Hello.")
    third = session.next_turn("")

    assert first is not None
    assert (first.prompt, first.max_tokens) == (HI, 32)
    assert second is not None
    assert second.prompt.messages == (
        *HI.messages, ("assistant", "Hello."), ("user", "Once upon a time"),
    )  # fmt: skip
    assert third is not None
    assert third.prompt.messages == (
        *second.prompt.messages, ("assistant", ""), ("user", "Hi."),
    )  # fmt: skip
    assert [(p.number, p.session, p.turn, p.max_tokens) for p in (first, second, third)] == [
        (0, 0, 0, 32), (1, 0, 1, 7), (2, 0, 2, 9),
    ]  # fmt: skip
    assert session.next_turn("Bye.") is None


def test_session_ends_without_an_answer() -> None:
    """After a failed turn nothing more is asked, whatever comes later."""
    session = RequestPlan(LISTED, Fixed(32), 1, turns=3).session(4)
    session.next_turn(None)

    assert session.next_turn(None) is None
    assert session.next_turn("too late") is None


def test_sessions_do_not_overlap() -> None:
    """Two workers' sessions use different numbers, and each starts where `request` says."""
    plan = RequestPlan(Synthetic(Fixed(9), Words()), Fixed(4), 1, turns=2)

    def turns(session: Session) -> list[int]:
        planned = [session.next_turn(None), session.next_turn("ok")]
        return [p.number for p in planned if p is not None]

    assert [turns(plan.session(n)) for n in (0, 1, 5)] == [[0, 1], [2, 3], [10, 11]]
    assert plan.session(5).next_turn(None) == plan.request(10)
    assert plan.request(10).session == 5


def test_one_turn_is_a_session_of_one_request() -> None:
    """Where there are no turns, a session is its request and then over."""
    session = PLANS["words"].session(6)

    assert session.next_turn(None) == PLANS["words"].request(6)
    assert session.next_turn("ok") is None


def test_later_turn_cannot_be_had_without_its_answers() -> None:
    """A later turn by number, or an answer to nothing, is a mistake of the caller."""
    plan = RequestPlan(LISTED, Fixed(32), 1, turns=3)

    with pytest.raises(ValueError, match="request 4 is turn 1 of session 1"):
        plan.request(4)
    with pytest.raises(ValueError, match="answer before the first turn"):
        plan.session(0).next_turn("Hello.")


@pytest.mark.parametrize(
    ("kind", "args", "said"),
    [
        (Fixed, (0,), "expected 1 <= low <= high, got 0 to 0"),
        (Uniform, (5, 4), "expected 1 <= low <= high, got 5 to 4"),
        (Lognormal, (5.0, 1.0, 6, 9), "median must be from low to high, 6 to 9, got 5"),
        (Lognormal, (math.nan, 1.0, 1, 9), "median must be from low to high"),
        (Lognormal, (5.0, -1.0, 1, 9), "sigma must be a finite number >= 0"),
        (Lognormal, (5.0, math.nan, 1, 9), "sigma must be"),
        (Empirical, ((),), "got an empty list"),
        (Empirical, ((3, 0),), "expected 1 <= low"),
        (TokenIds, (5, 4), "expected 0 <= low <= high, got 5 to 4"),
        (TokenIds, (-1, 4), "expected 0 <= low"),
        (SharedPrefix, (0, 5), "prefixes must be >= 1"),
        (SharedPrefix, (1, 0), "length must be >= 1"),
        (SharedPrefix, (1, 5, 1.5), "share must be in"),
        (SharedPrefix, (1, 5, math.nan), "share must be in"),
        (PromptList, ((), "mine"), "mine: got no prompts"),
        (RequestPlan, (LISTED, Fixed(1), 1, 0), "turns must be >= 1"),
        (
            RequestPlan,
            (PromptList((ListedPrompt(IDS),), "mine"), Fixed(1), 1, 2),
            "2 turns of 1 prompts of mine, but token ids",
        ),
        (
            RequestPlan,
            (Synthetic(Fixed(5), TokenIds(0, 9)), Fixed(1), 1, 2),
            "random token ids from 0 to 9, length 5, but token ids",
        ),
    ],
)
def test_senseless_workload_is_refused(
    kind: Callable[..., object], args: tuple[object, ...], said: str
) -> None:
    """A number out of range is the user's error, and named."""
    with pytest.raises(SpecError) as caught:
        kind(*args)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("plan", "described"),
    [
        (
            PLANS["prefixes"],
            (
                "synthetic prompts of random words, length 12, 75% behind one of 4 shared prefixes "
                "of 50; max_tokens: 3 listed ones from 3 to 9, drawn at random"
            ),
        ),
        (
            RequestPlan(LISTED, Fixed(32), 1, turns=3),
            "3 prompts of three; max_tokens: 32; sessions of 3 turns",
        ),
    ],
)
def test_plan_describes_itself(plan: RequestPlan, described: str) -> None:
    """One line says what is sent."""
    assert plan.describe() == described


@pytest.mark.parametrize(
    ("law", "described"),
    [
        (Fixed(128), "128"),
        (Uniform(64, 256), "64 to 256, all alike"),
        (
            Lognormal(200.0, 0.8, 1, 2000),
            "lognormal with median 200 and sigma 0.8, from 1 to 2000",
        ),
        (Empirical((4, 2), in_order=True), "2 listed ones from 2 to 4, in their order"),
    ],
)
def test_law_of_lengths_describes_itself(law: Lengths, described: str) -> None:
    """A phrase says what the lengths are."""
    assert law.describe() == described


def write(path: Path, *lines: object) -> Path:
    """Write each entry as a line, texts as they are, and return the path."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def test_file_holds_all_three_forms(tmp_path: Path) -> None:
    """Texts, token ids and conversations are read in file order, with their output lengths."""
    path = write(
        tmp_path / "mine.jsonl",
        {"prompt": "Name three rivers.", "max_tokens": 12},
        "",
        {"prompt": [5, 0, 7], "id": "tokens"},
        {"messages": [{"role": "user", "content": "Grüße \u2028"}], "kind": "chat"},
    )

    found = read_prompt_list(path)

    assert found.entries == (
        ListedPrompt(LoadPrompt("mine-001", text="Name three rivers."), 12),
        ListedPrompt(LoadPrompt("tokens", token_ids=(5, 0, 7))),
        ListedPrompt(LoadPrompt("mine-004", messages=(("user", "Grüße \u2028"),))),
    )
    assert find_prompts(str(path), seed=9) == found
    assert found.describe() == f"3 prompts of {path}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not valid JSON"),
        ("[5]", "expected a JSON object"),
        (
            {"prompt": "a", "max_token": 5},
            "unknown key 'max_token'. Known: id, kind, license, max_tok",
        ),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens must be a whole number >= 1, got 0"),
        ({"prompt": "a", "max_tokens": 2.0}, "max_tokens must be a whole number >= 1, got 2.0"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens must be a whole number >= 1, got True"),
        ({"prompt": []}, "a prompt of token ids must be a list of whole numbers >= 0"),
        ({"prompt": [1, -2]}, "a prompt of token ids must be a list"),
        ({"prompt": [1, "two"]}, "a prompt of token ids must be a list"),
        ({"prompt": [1], "messages": []}, "expected either 'prompt' or 'messages', got both"),
        ({"prompt": [1], "id": 5}, "id must be a text"),
        ({"prompt": [1], "id": "first"}, "id 'first' is already used in line 1"),
        ({"prompt": " "}, "prompt must be a text that is not blank"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "unknown role"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, line: object, said: str) -> None:
    """A wrong line is an error with file, line number, what was got and expected."""
    path = write(tmp_path / "mine.jsonl", {"id": "first", "prompt": [5]}, line)

    with pytest.raises(SpecError) as caught:
        read_prompt_list(path)

    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}:2: ")


def test_file_without_prompts_or_absent_is_an_error(tmp_path: Path) -> None:
    """An empty file is no workload, and a missing one is named."""
    empty = write(tmp_path / "empty.jsonl", "", "")

    with pytest.raises(SpecError, match="got no prompts"):
        read_prompt_list(empty)
    with pytest.raises(SpecError, match=r"absent\.jsonl.*cannot be read as UTF-8"):
        find_prompts(str(tmp_path / "absent.jsonl"), seed=1)


def test_dataset_is_found_by_name() -> None:
    """A registered name gives the dataset in the seed's order; an unknown one lists the known."""
    found = find_prompts("chat", seed=3)

    assert [entry.prompt.messages for entry in found.entries] == [
        prompt.messages for prompt in load_prompts("chat", seed=3)
    ]
    assert found.source == "dataset 'chat'"
    with pytest.raises(SpecError, match=r"unknown dataset 'chatt'.*chat"):
        find_prompts("chatt", seed=3)


def test_file_is_found_by_any_name(tmp_path: Path) -> None:
    """A file that exists is read, whatever its name ends in."""
    path = write(tmp_path / "prompts.txt", {"prompt": "Hi."})

    assert find_prompts(str(path), seed=1).entries[0].prompt.text == "Hi."
