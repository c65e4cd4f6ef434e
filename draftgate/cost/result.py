"""What `draftgate cost` says, as records that become its JSON file.

Money in US dollars, shares as plain ratios. Computes nothing; `report` fills it in.
"""

from dataclasses import dataclass

from draftgate.cost.arithmetic import TokenPrices, TokensPerRequest
from draftgate.cost.measured import Load, Measurement
from draftgate.cost.prices import ApiPrice, MachinePrice

SCHEMA_VERSION = 1
"""Version of the JSON file's form: raised when a key changes its name or meaning."""

DEFAULT_UTILISATION = 0.5
"""A round number that nobody measured; whoever knows the traffic gives --utilisation."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the user says beside the measurement.

    Attributes:
        utilisation: Mean rate over the paid time / sustained rate, in (0, 1].
        provider: Whose machine; None for the cheapest in the price file.
        hardware: Of the price file; None takes what the measurement says.
        gpus: GPUs that served; None takes what the measurement says.
        input_tokens: Mean per request; None takes the measured mean.
        output_tokens: Likewise.
    """

    utilisation: float = DEFAULT_UTILISATION
    provider: str | None = None
    hardware: str | None = None
    gpus: int | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What the measured traffic costs on one provider's machine.

    Attributes:
        price: Row of the price file.
        machine_usd_per_hour: The whole machine.
        request_usd: One request, at the assumed utilisation.
        lowest_request_usd: The same at the provider's cheapest offer; None
            where there is one price.
        per_million_usd: One million tokens of the mix.
        per_million_output_usd: One million output tokens, the whole cost on them.
    """

    price: MachinePrice
    machine_usd_per_hour: float
    request_usd: float
    lowest_request_usd: float | None
    per_million_usd: float
    per_million_output_usd: float


@dataclass(frozen=True, slots=True)
class LoadCost:
    """A measured load and what the mix would cost if it were the one that is kept.

    Attributes:
        load: The load.
        per_million_usd: One million tokens of the mix, in the chosen offer;
            None for a load that does not meet the SLO.
    """

    load: Load
    per_million_usd: float | None


@dataclass(frozen=True, slots=True)
class ApiCost:
    """The same requests at an API's list price, beside the chosen offer.

    Attributes:
        request_usd: One request.
        per_million_usd: One million tokens of the mix.
        self_split: Self cost of one million input and output tokens, split by
            the ratio of this API's prices.
        self_to_api_ratio: Self cost / API cost; below 1 the machine is cheaper.
        break_even_utilisation: At which both cost the same; above 1 never.
        break_even_tokens_per_day: Input and output tokens per day at which one
            machine that is always on costs what the API bills.
    """

    request_usd: float
    per_million_usd: float
    self_split: TokenPrices
    self_to_api_ratio: float
    break_even_utilisation: float
    break_even_tokens_per_day: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One model of the price file.

    Attributes:
        price: Its row.
        cost: None where the row has no price.
    """

    price: ApiPrice
    cost: ApiCost | None


@dataclass(frozen=True, slots=True)
class AcceptanceCost:
    """What another acceptance length would make of the cost: a model, not measured.

    Attributes:
        factor: Share of the measured acceptance length.
        acceptance_length: Tokens per step with drafts, bonus token included.
        tokens_per_step: Over all steps; None where the length can't be had.
        output_tokens_per_s: Likewise.
        per_million_usd: One million tokens of the mix, likewise.
        impossible: Why the length can't be had; empty if it can.
    """

    factor: float
    acceptance_length: float
    tokens_per_step: float | None
    output_tokens_per_s: float | None
    per_million_usd: float | None
    impossible: str = ""


@dataclass(frozen=True, slots=True)
class CostReport:
    """Everything that `draftgate cost` says.

    Attributes:
        schema_version: Version of this record's form.
        measurement: What was measured.
        price_files: Where prices come from.
        chosen: The load that costs are computed from.
        tokens: Lengths of the requests that are paid for.
        tokens_given: Whether a length was given instead of measured.
        requests_per_s: Sustained rate of such requests.
        capacity_tokens_per_day: Tokens of the mix that the machine serves in a
            day at that rate.
        utilisation: As assumed.
        gpus: GPUs that are paid for; None for a machine that is priced whole.
        offers: Every provider of this hardware, cheapest first.
        offer: The chosen one.
        loads: Every measured load.
        comparisons: Every model of the price file.
        acceptance_of: Load whose acceptance is varied: the fastest with drafts
            that meets the SLO; None without one.
        acceptance: Its cost at other acceptance lengths; empty likewise.
        limits: What the numbers rest on, one sentence each.
    """

    schema_version: int
    measurement: Measurement
    price_files: tuple[str, ...]
    chosen: Load
    tokens: TokensPerRequest
    tokens_given: bool
    requests_per_s: float
    capacity_tokens_per_day: float
    utilisation: float
    gpus: int | None
    offers: tuple[Offer, ...]
    offer: Offer
    loads: tuple[LoadCost, ...]
    comparisons: tuple[Comparison, ...]
    acceptance_of: Load | None
    acceptance: tuple[AcceptanceCost, ...]
    limits: tuple[str, ...]
