"""The price file: strict about every row, and a user's rows replace ours."""

from pathlib import Path

import pytest

from draftgate.cost.prices import SECOND_HAND, load_prices, parse_prices
from draftgate.errors import SpecError
from tests.support.costs import API, CPU_MACHINE, MACHINE

HEAD = "schema = 1\n"


def test_rows_become_records() -> None:
    """A machine and a model are read with all that was said of them."""
    prices = parse_prices(HEAD + MACHINE + API, "mine.toml")

    (machine,), (api,) = prices.machines, prices.apis
    assert (machine.provider, machine.usd, machine.unit) == ("Example", 3.6, "GPU-hour")
    assert machine.devices == ("NVIDIA H200",)
    assert (api.model, api.input_usd, api.output_usd) == ("Example 1", 2.0, 10.0)
    assert (machine.date, api.date) == ("2026-01", "2026-01-31")


def test_date_without_quotes_is_a_date() -> None:
    """TOML has dates of its own."""
    prices = parse_prices(HEAD + API.replace('"2026-01-31"', "2026-01-31"), "mine.toml")

    assert prices.apis[0].date == "2026-01-31"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('date = "2026-01-31"\n', "", "api[1].date: got nothing"),
        ('source = "https://example.org/models"\n', "", "api[1].source: got nothing"),
        ("input_usd = 2.0", "input_usd = -2.0", "api[1].input_usd: got -2.0"),
        ("input_usd = 2.0", "input_usd = 0", "api[1].input_usd: got 0"),
        ("input_usd = 2.0", "input_usd = inf", "api[1].input_usd: got inf"),
        ("input_usd = 2.0\n", "", "api[1].input_usd: got nothing"),
        ("input_usd", "input_eur", "Did you mean 'input_usd'?"),
        ('"1M tokens"', '"1k tokens"', "api[1].unit: got '1k tokens'"),
        ('"2026-01-31"', '"2026-13"', "api[1].date: got '2026-13'"),
        ('"2026-01-31"', '"January 2026"', "api[1].date: got 'January 2026'"),
        ("input_usd = 2.0\noutput_usd = 10.0\n", "", "api[1].note: got nothing"),
        ("[[api]]", "[[apis]]", "apis: got an unknown key"),
        ("[[api]]", "[api]", "api: got"),
    ],
)
def test_wrong_row_is_named(old: str, new: str, said: str) -> None:
    """Each fault of a row is one error that names the file, the row and the key."""
    assert old in API

    with pytest.raises(SpecError) as caught:
        parse_prices(HEAD + API.replace(old, new), "mine.toml")

    assert str(caught.value).startswith("prices mine.toml: ")
    assert said in str(caught.value)


def test_wrong_machine_is_named() -> None:
    """A price below 0 and a cheapest offer above the dearest are refused."""
    with pytest.raises(SpecError, match=r"machine\[1\]\.usd: got -3\.6"):
        parse_prices(HEAD + MACHINE.replace("3.60", "-3.60"), "mine.toml")
    with pytest.raises(SpecError, match=r"machine\[1\]\.lowest_usd: got 4\.0"):
        parse_prices(HEAD + MACHINE + "lowest_usd = 4\n", "mine.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema = 2\n" + API, "schema: got 2"),
        (API, "schema: got nothing"),
        (HEAD, "got no price"),
        ("schema = ", "not TOML"),
    ],
)
def test_wrong_file_is_refused(text: str, said: str) -> None:
    """A file of another schema, without a price or without sense is an error."""
    with pytest.raises(SpecError, match=r"mine\.toml") as caught:
        parse_prices(text, "mine.toml")

    assert said in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """The error says which file is not there."""
    with pytest.raises(SpecError, match=r"nothing\.toml"):
        load_prices(tmp_path / "nothing.toml")


def test_newest_row_of_a_model_counts() -> None:
    """Older prices may stay in the file; the date decides, not the order."""
    newer = API.replace("2026-01-31", "2026-02-01").replace("10.0", "9.0")

    assert parse_prices(HEAD + newer + API, "mine.toml").apis[0].output_usd == 9.0
    assert parse_prices(HEAD + API + newer, "mine.toml").apis[0].output_usd == 9.0


def test_rows_of_a_user_replace_shipped_ones(tmp_path: Path) -> None:
    """A model of the user's file takes the place of ours; the others stay."""
    path = tmp_path / "mine.toml"
    text = HEAD + CPU_MACHINE + API.replace("Example 1", "Claude Sonnet 4.7")
    path.write_text(text, encoding="utf-8")

    shipped, prices = load_prices(), load_prices(path)

    assert prices.machines[0].provider == "Ours"
    assert prices.machines[1:] == shipped.machines
    assert prices.apis[0].input_usd == 2.0
    assert sorted(row.model for row in prices.apis) == sorted(row.model for row in shipped.apis)
    assert prices.sources == (str(path), "prices.toml")


def test_shipped_prices_have_what_was_asked_for() -> None:
    """Four Claude Sonnet models and GPT-5.4 have prices; Claude Sonnet 4.7 has a row without."""
    by_model = {row.model: row for row in load_prices().apis}

    priced = {model for model, row in by_model.items() if row.input_usd is not None}
    assert priced == {
        "Claude Sonnet 4.5",
        "Claude Sonnet 4.6",
        "Claude Sonnet 5",
        "Claude Sonnet 5.5",
        "GPT-5.4",
    }
    assert by_model["Claude Sonnet 4.7"].input_usd is None
    assert by_model["Claude Sonnet 4.7"].note == "no public list price"


def test_shipped_prices_say_that_they_are_second_hand() -> None:
    """No shipped price claims to have been read at its source."""
    prices = load_prices()

    assert {row.read for row in (*prices.machines, *prices.apis)} == {SECOND_HAND}
    assert all(row.source.startswith("https://") for row in (*prices.machines, *prices.apis))
    assert {row.hardware for row in prices.machines} == {"H100 SXM", "H200"}
