"""Conditions and budgets of a distribution check: what texts mean, and what is refused."""

import pytest

from draftgate.checks.budget import TimeBudget, TokenBudget, parse_budget
from draftgate.checks.collect import (
    DIALECTS,
    OUTPUT_TOKENS,
    SEEDED_EVERY,
    Asked,
    Server,
    rounds,
    seed_of,
)
from draftgate.checks.conditions import DEFAULT, condition, conditions, sampling, share
from draftgate.cli.check_options import ENGINES
from draftgate.errors import SpecError
from draftgate.laws.parameters import LawParameters
from draftgate.load.requests import Endpoint

PROMPTS = tuple((f"p{number}", (number, 7)) for number in range(9))


def test_condition_is_read() -> None:
    """A text names temperature and filters, and outputs run past EOS."""
    read = condition("T=0.8, top_p=0.95")

    assert read.name == "T=0.8,top_p=0.95"
    assert read.parameters == LawParameters(temperature=0.8, top_p=0.95, ignore_eos=True)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("top_p=0.9", "T above 0, got none"),
        ("T=0", "T above 0, got 0"),
        ("T=1,T=2", "at most once"),
        ("T=1,min_p=0.1", "min_p=0.1"),
        ("T=hot", "'hot', expected a number"),
        ("T=1,top_k=4.5", "'4.5', expected an integer"),
        ("T=nan", "finite"),
        ("T=1,top_p=2", "top_p"),
        ("", "at most once"),
    ],
)
def test_wrong_condition_is_refused(text: str, named: str) -> None:
    """What is no setting of sampling is one error that names the wrong part."""
    with pytest.raises(SpecError, match=named):
        condition(text)


def test_no_condition_twice() -> None:
    """Two names of one setting would spend the bound on false alarms twice."""
    with pytest.raises(SpecError, match="none twice"):
        conditions(["T=1", "T=1.0"])
    with pytest.raises(SpecError, match="at least one"):
        conditions([])
    assert [entry.name for entry in conditions(DEFAULT)] == list(DEFAULT)


def test_alpha_is_shared() -> None:
    """Each condition has its part, and a bound outside (0, 1) is refused."""
    assert share(1e-4, 5) == pytest.approx(2e-5)
    for alpha in (0.0, 1.0, float("nan")):
        with pytest.raises(SpecError, match="between 0 and 1"):
            share(alpha, 5)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("60s", TimeBudget(60)),
        ("1.5m", TimeBudget(90)),
        ("1h", TimeBudget(3600)),
        ("12000", TokenBudget(12000)),
    ],
)
def test_budget_is_read(text: str, budget: TimeBudget | TokenBudget) -> None:
    """Times carry a unit, tokens do not; each is spent by what it counts."""
    assert parse_budget(text) == budget
    assert not budget.spent(0, 0.0)
    assert budget.spent(12000, 3600.0)


@pytest.mark.parametrize("text", ["", "0", "0s", "-5", "60 s", "many", "1e4", "٣"])
def test_wrong_budget_is_refused(text: str) -> None:
    """Anything else is an error that shows both forms."""
    with pytest.raises(SpecError, match="60s or 5m, or a number of tokens"):
        parse_budget(text)


def planned(count: int, *names: str) -> list[Asked]:
    """Return the requests of the first rounds."""
    source = rounds(PROMPTS, [entry.parameters for entry in conditions(names)], 5)
    return [asked for _ in range(count) for asked in next(source)]


def test_requests_are_planned() -> None:
    """No number comes twice, every round has all conditions, one prompt in four comes twice."""
    asked = planned(2, "T=1", "T=0.8")
    second = asked[10:]

    assert [entry.request for entry in asked] == list(range(30))
    assert [entry.condition for entry in asked] == [0] * 5 + [1] * 5 + [0] * 10 + [1] * 10
    assert {entry.parameters.temperature for entry in second[10:]} == {0.8}
    assert [entry.prompt_id for entry in asked[:6]] == ["p0", "p1", "p2", "p3", "p3", "p4"]
    assert {entry.max_tokens for entry in second} == set(OUTPUT_TOKENS)


@pytest.mark.parametrize(("names", "each"), [(DEFAULT[:1], 15), (DEFAULT[:2], 10), (DEFAULT, 5)])
def test_rounds_hold_whole_groups_of_every_condition(names: tuple[str, ...], each: int) -> None:
    """Few conditions get more requests each after a first round, so that streams are busy."""
    assert len(planned(1, *names)) == 5 * len(names)
    assert len(planned(2, *names)) == (5 + each) * len(names)


def test_seeds_are_apart_and_meet_every_length() -> None:
    """No two requests share a seed, and seeded ones come in all lengths."""
    seeded = [entry for entry in planned(7, "T=1", "T=0.8") if entry.seed is not None]

    assert len(seeded) == -(-130 // SEEDED_EVERY)
    assert len({entry.seed for entry in seeded}) == len(seeded)
    assert {entry.max_tokens for entry in seeded} == set(OUTPUT_TOKENS)
    assert seed_of(5, 8) == 13


@pytest.mark.parametrize("engine", DIALECTS)
def test_curl_repeats_the_request(engine: str) -> None:
    """The command holds address, ids and settings, and names the key's variable, not the key."""
    server = Server(Endpoint("http://host:1", "m", api_key_env="MY_KEY"), engine)
    asked = Asked(
        request=3,
        condition=0,
        prompt_id="p",
        prompt=(11, 12),
        parameters=condition("T=0.8,top_k=4").parameters,
        max_tokens=9,
        seed=17,
    )
    said = server.curl(asked)

    assert said.startswith("curl -N http://host:1/")
    assert '-H "Authorization: Bearer $MY_KEY"' in said
    assert all(part in said for part in ("[11,12]", '"temperature":0.8', '"top_k":4', ":17", ":9"))


def test_unknown_engine_is_refused() -> None:
    """An engine without token ids is one error that lists the known ones."""
    with pytest.raises(SpecError, match="vllm, sglang, tensorrt_llm"):
        Server(Endpoint("http://host:1", "m"), "acme")


def test_settings_reach_the_load_generator() -> None:
    """Temperature, filters, length and seed are those of the condition and the request."""
    sent = sampling(condition("T=1.5,top_p=0.9").parameters, 48, 3)

    assert (sent.temperature, sent.top_p, sent.top_k) == (1.5, 0.9, 0)
    assert (sent.max_tokens, sent.seed, sent.ignore_eos) == (48, 3, True)


def test_options_name_the_engines_that_can_be_asked() -> None:
    """The command's choices are the dialects, though it lists them without importing them."""
    assert tuple(DIALECTS) == ENGINES
