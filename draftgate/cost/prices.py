"""The price file: a TOML that a user edits, read strictly into records.

Every price has a date, a source and a unit. Rows of a user's file replace those
that come with draftgate. Computes no cost.
"""

import datetime
import re
import tomllib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from draftgate.errors import SpecError
from draftgate.specfile.table import Key, Place, number, read_list, read_table, show, strings
from draftgate.speculation.method import Rule, choice, is_integer

PRICES_SCHEMA = 1
# History: 1 first version.

SHIPPED = Path(__file__).parent / "prices.toml"

GPU_HOUR, MACHINE_HOUR, MILLION_TOKENS = "GPU-hour", "machine-hour", "1M tokens"
FIRST_HAND, SECOND_HAND = "first-hand", "second-hand"

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class MachinePrice:
    """What a provider asks for hardware by the hour, on demand.

    Attributes:
        provider: Who rents it out.
        hardware: Short name, for example "H200".
        devices: What a measurement may call it: names of GPUs as the driver
            prints them, or the hardware name of a machine without GPU.
        unit: `GPU_HOUR` or `MACHINE_HOUR`.
        usd: US dollars per unit; the dearest where offers differ.
        date: When the price held, YYYY-MM or YYYY-MM-DD.
        source: Where it stands.
        read: `FIRST_HAND` or `SECOND_HAND`.
        lowest_usd: The cheapest offer; None where there is one price.
        note: What else to know; empty for nothing.
    """

    provider: str
    hardware: str
    devices: tuple[str, ...]
    unit: str
    usd: float
    date: str
    source: str
    read: str = FIRST_HAND
    lowest_usd: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """What an API bills for a model.

    Attributes:
        provider: Who serves it.
        model: Its name.
        unit: `MILLION_TOKENS`.
        date: When the price held, or was looked for; YYYY-MM or YYYY-MM-DD.
        source: Where it stands, or should.
        read: `FIRST_HAND` or `SECOND_HAND`.
        input_usd: US dollars per unit of input that is in no cache; None where
            no list price is known.
        output_usd: US dollars per unit of output; None likewise.
        cached_input_usd: US dollars per unit of cached input; None if unknown.
        note: Why there is no price, or what else to know; empty for nothing.
    """

    provider: str
    model: str
    unit: str
    date: str
    source: str
    read: str = FIRST_HAND
    input_usd: float | None = None
    output_usd: float | None = None
    cached_input_usd: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Prices:
    """All rows, in the order of the files.

    Attributes:
        sources: Files that they come from.
        machines: Hardware by the hour.
        apis: Models by the token.
    """

    sources: tuple[str, ...]
    machines: tuple[MachinePrice, ...]
    apis: tuple[ApiPrice, ...]


def load_prices(path: Path | None = None) -> Prices:
    """Return the prices that come with draftgate, with those of a user's file in their place.

    Args:
        path: The user's file; None for none. Its rows stand first and replace
            shipped ones of the same provider and hardware, or the same model.

    Raises:
        SpecError: If a file is missing or wrong; the message names file and key.
    """
    shipped = _read(SHIPPED)
    if path is None:
        return shipped
    own = _read(path)
    return Prices(
        own.sources + shipped.sources,
        _replaced(own.machines, shipped.machines, _machine_key),
        _replaced(own.apis, shipped.apis, _api_key),
    )


def parse_prices(text: str, source: str) -> Prices:
    """Return the prices in a TOML text.

    Of rows that differ in their date alone the newest counts.

    Args:
        text: TOML.
        source: File it came from, for messages.

    Raises:
        SpecError: If the text is wrong; the message names `source` and the key.
    """
    place = Place(f"prices {source}")
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(
            f"{place.source}: got text that is not TOML: {error}. Correct that line; texts need "
            "quotes."
        ) from error
    top = read_table(raw, _TOP, place)
    if top["schema"] != PRICES_SCHEMA:
        place.at("schema").fail(show(top["schema"]), str(PRICES_SCHEMA), "Correct the value.")
    if not ("machine" in top or "api" in top):
        place.fail("no price", "a table [[machine]] or [[api]]", f"{SHIPPED.name} shows both.")
    machines = [_machine(row, at) for row, at in _rows(top, "machine", place)]
    apis = [_api(row, at) for row, at in _rows(top, "api", place)]
    return Prices(
        (source,),
        _newest(machines, _machine_key, lambda row: row.date),
        _newest(apis, _api_key, lambda row: row.date),
    )


def _read(path: Path) -> Prices:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"prices {path}: got {error}, expected a readable TOML file. Give one with [[machine]] "
            "or [[api]] tables as --prices; docs/cost.md shows them."
        ) from error
    return parse_prices(text, path.name if path == SHIPPED else str(path))


def _rows(top: dict[str, Any], name: str, place: Place) -> Iterable[tuple[Any, Place]]:
    if name in top:
        for number_, row in enumerate(read_list(top[name], place.at(name)), start=1):
            yield row, place.at(f"{name}[{number_}]")


def _machine(raw: Any, place: Place) -> MachinePrice:
    price = MachinePrice(**read_table(raw, _MACHINE, place))
    if price.lowest_usd is not None and price.lowest_usd > price.usd:
        place.at("lowest_usd").fail(
            show(price.lowest_usd), f"at most usd = {price.usd:g}", "Swap the two."
        )
    return price


def _api(raw: Any, place: Place) -> ApiPrice:
    price = ApiPrice(**read_table(raw, _API, place))
    missing = [key for key in ("input_usd", "output_usd") if getattr(price, key) is None]
    if len(missing) == 1:
        place.at(missing[0]).fail("nothing", "a number > 0", "A model has both prices or none.")
    if missing and not price.note:
        place.at("note").fail(
            "nothing", "why there is no price", "Add input_usd and output_usd, or a note."
        )
    return price


def _machine_key(row: MachinePrice) -> Hashable:
    return row.provider.casefold(), row.hardware.casefold()


def _api_key(row: ApiPrice) -> Hashable:
    return row.model.casefold()


def _replaced(
    own: tuple[Row, ...], shipped: tuple[Row, ...], key: Callable[[Row], Hashable]
) -> tuple[Row, ...]:
    taken = {key(row) for row in own}
    return own + tuple(row for row in shipped if key(row) not in taken)


def _newest(
    rows: Iterable[Row], key: Callable[[Row], Hashable], date: Callable[[Row], str]
) -> tuple[Row, ...]:
    """Return the newest row of each key, in the order of the first ones."""
    newest: dict[Hashable, Row] = {}
    for row in rows:
        held = newest.get(key(row))
        if held is None or date(row) >= date(held):
            newest[key(row)] = row
    return tuple(newest.values())


def _is_date(value: Any) -> bool:
    if isinstance(value, datetime.date):
        return not isinstance(value, datetime.datetime)
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d{2}(-\d{2})?", value):
        return False
    try:
        datetime.date.fromisoformat(value if len(value) > 7 else f"{value}-01")
    except ValueError:
        return False
    return True


_TEXT = Rule("a text that is not empty", lambda v: isinstance(v, str) and v.strip() != "")
_DATE = Rule('a date, "YYYY-MM" or "YYYY-MM-DD"', _is_date, str)
_PRICE = number(0, above=True)
_READ = Key(choice(FIRST_HAND, SECOND_HAND))

_TOP = {
    "schema": Key(Rule("a whole number", is_integer), required=True),
    "machine": Key(Rule("tables [[machine]]", lambda v: isinstance(v, list))),
    "api": Key(Rule("tables [[api]]", lambda v: isinstance(v, list))),
}

_MACHINE = {
    "provider": Key(_TEXT, required=True),
    "hardware": Key(_TEXT, required=True),
    "devices": Key(strings(), required=True),
    "unit": Key(choice(GPU_HOUR, MACHINE_HOUR), required=True),
    "usd": Key(_PRICE, required=True),
    "date": Key(_DATE, required=True),
    "source": Key(_TEXT, required=True),
    "read": _READ,
    "lowest_usd": Key(_PRICE),
    "note": Key(_TEXT),
}

_API = {
    "provider": Key(_TEXT, required=True),
    "model": Key(_TEXT, required=True),
    "unit": Key(choice(MILLION_TOKENS), required=True),
    "date": Key(_DATE, required=True),
    "source": Key(_TEXT, required=True),
    "read": _READ,
    "input_usd": Key(_PRICE),
    "output_usd": Key(_PRICE),
    "cached_input_usd": Key(_PRICE),
    "note": Key(_TEXT),
}
