"""Measured throughput and prices put together.

Takes the rows of the price file that fit the measured machine, works out every
cost with `draftgate.cost.arithmetic` and lists what the numbers rest on.
"""

from collections.abc import Iterable, Sequence

from draftgate.cost import arithmetic
from draftgate.cost.arithmetic import TokenPrices, TokensPerRequest
from draftgate.cost.machine import chosen_offer, fitting, paid_gpus
from draftgate.cost.measured import Load, Measurement, best_load
from draftgate.cost.prices import GPU_HOUR, SECOND_HAND, ApiPrice, MachinePrice, Prices
from draftgate.cost.result import (
    SCHEMA_VERSION,
    AcceptanceCost,
    ApiCost,
    Assumptions,
    Comparison,
    CostReport,
    LoadCost,
    Offer,
)
from draftgate.errors import SpecError

ACCEPTANCE_FACTORS = (0.8, 0.9, 1.0, 1.1, 1.2)
"""Acceptance lengths that are tried, as shares of the measured one."""


def cost_report(measurement: Measurement, prices: Prices, assumed: Assumptions) -> CostReport:
    """Return what the measured traffic costs on this hardware and at each API.

    Raises:
        SpecError: If an assumption is out of range, or no price fits the machine;
            the message names the option or the key to add.
        MeasurementError: If no load meets the SLO.
    """
    _check(assumed)
    chosen = best_load(measurement)
    tokens = _tokens(chosen, assumed)
    rows = fitting(measurement, prices, assumed)
    gpus = paid_gpus(measurement, rows, assumed)
    rate = _requests_per_s(chosen, tokens)
    offers = tuple(
        sorted(
            (_offer(row, gpus, rate, tokens, assumed.utilisation) for row in rows),
            key=lambda offer: offer.machine_usd_per_hour,
        )
    )
    offer = chosen_offer(offers, assumed.provider)
    loads = tuple(_load_cost(load, offer, chosen) for load in measurement.loads)
    drafting = _drafting(loads)
    comparisons = tuple(Comparison(row, _api_cost(row, offer, rate, tokens)) for row in prices.apis)
    return CostReport(
        schema_version=SCHEMA_VERSION,
        measurement=measurement,
        price_files=prices.sources,
        chosen=chosen,
        tokens=tokens,
        tokens_given=assumed.input_tokens is not None or assumed.output_tokens is not None,
        requests_per_s=rate,
        capacity_tokens_per_day=arithmetic.capacity_tokens_per_day(rate, tokens),
        utilisation=assumed.utilisation,
        gpus=gpus if offer.price.unit == GPU_HOUR else None,
        offers=offers,
        offer=offer,
        loads=loads,
        comparisons=comparisons,
        acceptance_of=None if drafting is None else drafting.load,
        acceptance=() if drafting is None else tuple(_sensitivity(drafting)),
        limits=(
            *_standing_limits(measurement.setup.model, prices.apis, assumed.utilisation),
            *_found_limits(measurement, chosen, offer.price, prices.apis, assumed),
        ),
    )


def _check(assumed: Assumptions) -> None:
    if not 0 < assumed.utilisation <= 1:
        raise SpecError(
            f"cost: --utilisation got {assumed.utilisation:g}, expected a share above 0 and up to "
            "1. 0.5 is a machine that is half busy on average."
        )
    if assumed.gpus is not None and assumed.gpus < 1:
        raise SpecError(f"cost: --gpus got {assumed.gpus}, expected 1 or more. Give what served.")
    for name, value, is_right in (
        ("--input-tokens", assumed.input_tokens, (assumed.input_tokens or 0.0) >= 0),
        ("--output-tokens", assumed.output_tokens, assumed.output_tokens != 0),
    ):
        if value is not None and not (is_right and 0 <= value < float("inf")):
            raise SpecError(
                f"cost: {name} got {value:g}, expected a mean number of tokens per request. Drop "
                "it to take the measured mean."
            )


def _tokens(chosen: Load, assumed: Assumptions) -> TokensPerRequest:
    given = assumed.input_tokens
    if given is None:
        given = chosen.input_tokens
    if given is None:
        raise SpecError(
            f"cost: {chosen.name}: the server told no prompt lengths, expected the mean number of "
            "input tokens per request. Give --input-tokens."
        )
    assert chosen.output_tokens is not None, "a load that meets the SLO served requests"
    return TokensPerRequest(given, assumed.output_tokens or chosen.output_tokens)


def _requests_per_s(load: Load, tokens: TokensPerRequest) -> float:
    return _speed(load) / tokens.output_tokens


def _speed(load: Load) -> float:
    assert load.output_tokens_per_s is not None, "a load that meets the SLO has a rate"
    return load.output_tokens_per_s


def _offer(
    row: MachinePrice, gpus: int | None, rate: float, tokens: TokensPerRequest, utilisation: float
) -> Offer:
    units = (gpus or 1) if row.unit == GPU_HOUR else 1
    hourly = row.usd * units
    request = arithmetic.self_cost_per_request(hourly, rate, utilisation)
    lowest = None
    if row.lowest_usd is not None:
        lowest = arithmetic.self_cost_per_request(row.lowest_usd * units, rate, utilisation)
    return Offer(
        price=row,
        machine_usd_per_hour=hourly,
        request_usd=request,
        lowest_request_usd=lowest,
        per_million_usd=arithmetic.per_million_tokens(request, tokens),
        per_million_output_usd=arithmetic.per_million_output(request, tokens),
    )


def _api_cost(row: ApiPrice, offer: Offer, rate: float, tokens: TokensPerRequest) -> ApiCost | None:
    if row.input_usd is None or row.output_usd is None:
        return None
    listed = TokenPrices(row.input_usd, row.output_usd)
    billed = arithmetic.api_cost_per_request(tokens, listed)
    hourly = offer.machine_usd_per_hour
    return ApiCost(
        request_usd=billed,
        per_million_usd=arithmetic.per_million_tokens(billed, tokens),
        self_split=arithmetic.split_by_price(offer.request_usd, tokens, listed),
        self_to_api_ratio=offer.request_usd / billed,
        break_even_utilisation=arithmetic.break_even_utilisation(hourly, rate, billed),
        break_even_tokens_per_day=arithmetic.break_even_tokens_per_day(hourly, billed, tokens),
    )


def _load_cost(load: Load, offer: Offer, chosen: Load) -> LoadCost:
    if load.refused:
        return LoadCost(load, None)
    # Cost is inverse to the rate, and every load is paid for the same mix.
    slower = _speed(chosen) / _speed(load)
    return LoadCost(load, offer.per_million_usd * slower)


def _drafting(loads: Sequence[LoadCost]) -> LoadCost | None:
    """Return the fastest load that meets the SLO and whose steps give more than one token."""
    drafting = [
        cost
        for cost in loads
        if not cost.load.refused
        and cost.load.num_speculative_tokens != 0
        and (cost.load.tokens_per_step or 0.0) > 1
        and _length(cost.load) > 1
    ]
    return max(drafting, key=lambda cost: _speed(cost.load), default=None)


def _length(load: Load) -> float:
    """Return the acceptance length; a load summary has no counters: every step counts there."""
    return load.acceptance_length or load.tokens_per_step or 0.0


def _sensitivity(measured: LoadCost) -> Iterable[AcceptanceCost]:
    """Yield the cost of a load that drafts, at other acceptance lengths."""
    load, steps, per_million = (
        measured.load,
        measured.load.tokens_per_step,
        measured.per_million_usd,
    )
    assert steps is not None, "it drafts"
    assert per_million is not None, "it meets the SLO"
    for factor in ACCEPTANCE_FACTORS:
        asked = _length(load) * factor
        impossible = _impossible(load, factor, asked)
        if impossible:
            yield AcceptanceCost(factor, asked, None, None, None, impossible)
            continue
        there = arithmetic.tokens_per_step_at(
            asked, measured_length=_length(load), measured_tokens_per_step=steps
        )
        ratio = there / steps
        yield AcceptanceCost(factor, asked, there, _speed(load) * ratio, per_million / ratio)


def _impossible(load: Load, factor: float, length: float) -> str:
    """Return why no draft can have this acceptance length; empty if one can."""
    if length < 1:
        return "below 1, the target's own token"
    drafts = load.num_speculative_tokens
    if drafts is not None and factor > 1 and length > drafts + 1:
        return f"above K + 1 = {drafts + 1}"
    return ""


def _standing_limits(model: str, prices: Iterable[ApiPrice], utilisation: float) -> Iterable[str]:
    """Yield what holds for every report, one sentence each."""
    yield (
        f"The served model is {model}; no model in the list of APIs is the same. Quality is not "
        "compared: a small open model is no substitute of equal quality."
    )
    yield (
        "Both sides are charged for the same requests with the token counts of the served model's "
        "tokenizer; an API counts with its own, so its bill for the same text differs."
    )
    yield (
        f"Utilisation {utilisation:.0%} is assumed, not measured. The machine's price is all that "
        "the self cost holds: no spare machine, staff, storage or network."
    )
    cached = ", ".join(
        f"{price.model} ${price.cached_input_usd:g}"
        for price in prices
        if price.cached_input_usd is not None
    )
    yield (
        "API input is at the price without prompt cache, output at the standard tier: no batch or "
        "volume discount." + (f" Per 1M cached input tokens: {cached}." if cached else "")
    )


def _found_limits(
    measurement: Measurement,
    chosen: Load,
    machine: MachinePrice,
    apis: Iterable[ApiPrice],
    assumed: Assumptions,
) -> Iterable[str]:
    """Yield what holds for this measurement and these prices, one sentence each."""
    yield f"The throughput rests on {_counted(chosen.runs)} of {chosen.name}."
    if assumed.input_tokens is not None or assumed.output_tokens is not None:
        yield (
            "Lengths were given, not measured: output tokens/s is taken as unchanged, which it is "
            "not where prompts are much longer."
        )
    if measurement.all_meet:
        yield (
            "Every measured load meets the SLO, so a higher one may too and would cost less: "
            "measure more streams."
        )
    second_hand = machine.read == SECOND_HAND
    for price in apis:
        if price.input_usd is None:
            yield (
                f"{price.model}: {price.note}. It is compared once input_usd and output_usd stand "
                "in its row of a file for --prices."
            )
        second_hand = second_hand or price.read == SECOND_HAND
    if second_hand:
        yield "Prices marked second-hand were not read at their source; look there before use."


def _counted(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"
