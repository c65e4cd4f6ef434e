"""Which rows of the price file fit the measured machine, and how many GPUs are paid for.

Asks for what a measurement does not say and refuses what contradicts it. Works
out no cost.
"""

from collections.abc import Sequence

from draftgate.cost.measured import Measurement
from draftgate.cost.prices import GPU_HOUR, MACHINE_HOUR, MachinePrice, Prices
from draftgate.cost.result import Assumptions, Offer
from draftgate.errors import SpecError
from draftgate.specfile.table import suggestion


def fitting(
    measurement: Measurement, prices: Prices, assumed: Assumptions
) -> tuple[MachinePrice, ...]:
    """Return the rows of the measured hardware.

    Raises:
        SpecError: If there is none, or the hardware is not known.
    """
    setup = measurement.setup
    devices = set(setup.gpus) or ({setup.hardware} if setup.hardware else set())
    known = sorted({row.hardware for row in prices.machines})
    if devices:
        rows = tuple(row for row in prices.machines if devices <= set(row.devices))
        if not rows:
            raise SpecError(_no_price(measurement, sorted(devices), prices))
        if assumed.hardware and not any(_same(row.hardware, assumed.hardware) for row in rows):
            raise SpecError(
                f"cost: --hardware got {assumed.hardware!r}, expected {rows[0].hardware!r}: "
                f"{measurement.sources[0]} was taken on {', '.join(sorted(devices))}. Drop the "
                "option, or measure on the other hardware."
            )
        return rows
    name = assumed.hardware
    rows = tuple(row for row in prices.machines if name and _same(row.hardware, name))
    if not rows:
        got = "nothing" if name is None else repr(name)
        raise SpecError(
            f"cost: --hardware got {got}, expected one of {', '.join(known)}: "
            f"{measurement.sources[0]} does not say what served it.{suggestion(name or '', known)} "
            "Give --hardware, or add a [[machine]] with that hardware to a file for --prices."
        )
    return rows


def _no_price(measurement: Measurement, devices: Sequence[str], prices: Prices) -> str:
    unit = GPU_HOUR if measurement.setup.gpus else MACHINE_HOUR
    return (
        f"cost of {measurement.sources[0]}: no price for the machine that it was taken on "
        f"({', '.join(devices)}) in {', '.join(prices.sources)}. Add this to a file and give it "
        f'as --prices: [[machine]] with devices = ["{devices[0]}"], usd = (US dollars per hour), '
        f'unit = "{unit}", provider, hardware, date and source.'
    )


def paid_gpus(
    measurement: Measurement, rows: Sequence[MachinePrice], assumed: Assumptions
) -> int | None:
    """Return how many GPUs are paid for; None if no row counts them.

    Raises:
        SpecError: If that is not known, or can't be asked.
    """
    if not any(row.unit == GPU_HOUR for row in rows):
        if assumed.gpus is not None:
            raise SpecError(
                f"cost: --gpus got {assumed.gpus}, but {rows[0].hardware} is priced as a whole "
                f"(unit {rows[0].unit!r}). Drop the option."
            )
        return None
    if assumed.gpus is None and not measurement.setup.gpus:
        raise SpecError(
            f"cost: --gpus got nothing: {measurement.sources[0]} does not say how many GPUs served "
            "it, and prices are by the GPU-hour. Give --gpus N."
        )
    return assumed.gpus or len(measurement.setup.gpus)


def chosen_offer(offers: Sequence[Offer], provider: str | None) -> Offer:
    """Return the offer of a provider; without a name the first, which is the cheapest.

    Raises:
        SpecError: If that provider has no price for this hardware.
    """
    if provider is None:
        return offers[0]
    for offer in offers:
        if _same(offer.price.provider, provider):
            return offer
    known = [offer.price.provider for offer in offers]
    raise SpecError(
        f"cost: --provider got {provider!r}, expected one of {', '.join(known)}, which have a "
        f"price for {offers[0].price.hardware}.{suggestion(provider, known)} Choose one, or add a "
        "[[machine]] with that provider to a file for --prices."
    )


def _same(left: str, right: str) -> bool:
    return left.casefold() == right.casefold()
