"""Cost per request and per token, break-even points, and what acceptance does to them.

Plain numbers in, plain numbers out; money in US dollars. Knows no price file,
no run and no report. The formulas stand in docs/cost.md too.
"""

from dataclasses import dataclass

MILLION = 1e6
_HOUR_S = 3600.0
_HOURS_A_DAY = 24.0


@dataclass(frozen=True, slots=True)
class TokensPerRequest:
    """Mean lengths of the requests that are paid for.

    Attributes:
        input_tokens: Prompt tokens, >= 0.
        output_tokens: Completion tokens, > 0.
    """

    input_tokens: float
    output_tokens: float

    def __post_init__(self) -> None:
        """Check both.

        Raises:
            ValueError: If one is out of range.
        """
        if not (self.input_tokens >= 0 and self.output_tokens > 0):
            raise ValueError(
                f"expected input tokens >= 0 and output tokens > 0, got {self.input_tokens} and "
                f"{self.output_tokens}"
            )

    @property
    def total(self) -> float:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """What one million tokens of each kind costs, US dollars."""

    input_usd: float
    output_usd: float


def self_cost_per_request(
    machine_usd_per_hour: float, requests_per_s: float, utilisation: float
) -> float:
    """Return what one request costs on a machine that is paid for by the hour.

    The machine is paid for whether it works or not, so the cost is divided by
    the share of its throughput that is used, not multiplied.

    Args:
        machine_usd_per_hour: Price of the whole machine, > 0.
        requests_per_s: Sustained rate at the highest load that meets the SLO, > 0.
        utilisation: Mean rate over the paid time / that rate, in (0, 1].

    Returns:
        US dollars per request.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        $/hour / (3600 x requests/s x utilisation): own derivation.
    """
    _above_zero(machine_usd_per_hour=machine_usd_per_hour, requests_per_s=requests_per_s)
    if not 0 < utilisation <= 1:
        raise ValueError(f"expected a utilisation in (0, 1], got {utilisation}")
    return machine_usd_per_hour / (_HOUR_S * requests_per_s * utilisation)


def api_cost_per_request(tokens: TokensPerRequest, prices: TokenPrices) -> float:
    """Return what an API bills for a request of these lengths, US dollars."""
    billed = tokens.input_tokens * prices.input_usd + tokens.output_tokens * prices.output_usd
    return billed / MILLION


def per_million_tokens(request_usd: float, tokens: TokensPerRequest) -> float:
    """Return the blended cost of one million tokens, input and output alike, US dollars.

    It needs no split, but holds for this mix of input and output alone.
    """
    return request_usd * MILLION / tokens.total


def split_by_price(
    request_usd: float, tokens: TokensPerRequest, weights: TokenPrices
) -> TokenPrices:
    """Return the cost of a request split into one of input and one of output tokens.

    Prefill and decoding of different requests run in one batch, so what each
    costs can't be measured apart: they are joint costs. They are allocated by
    relative sales value, that is in proportion to what the market pays for
    either kind: here the list price of the API that stands beside them. Both
    sides then have the same ratio of output to input price, and self cost / API
    cost is the same for input, output and the blend.

    Args:
        request_usd: Cost of a request.
        tokens: Its lengths.
        weights: List prices; only their ratio matters.

    Returns:
        US dollars per million tokens of each kind.

    Raises:
        ValueError: If the weights give these tokens no value.

    Source:
        Joint-cost allocation by sales value at the split-off point: Horngren,
        Datar and Rajan, Cost Accounting, chapter on joint products.
    """
    value_usd = api_cost_per_request(tokens, weights)
    if not value_usd > 0:
        raise ValueError(f"expected weights that value these tokens above 0, got {weights}")
    scale = request_usd / value_usd
    return TokenPrices(weights.input_usd * scale, weights.output_usd * scale)


def per_million_output(request_usd: float, tokens: TokensPerRequest) -> float:
    """Return the cost of one million output tokens if input were free, US dollars.

    The upper bound of every split: the whole cost on output.
    """
    return request_usd * MILLION / tokens.output_tokens


def break_even_utilisation(
    machine_usd_per_hour: float, requests_per_s: float, api_request_usd: float
) -> float:
    """Return the utilisation at which a request costs the same on both sides.

    Args:
        machine_usd_per_hour: Price of the whole machine, > 0.
        requests_per_s: Sustained rate, > 0.
        api_request_usd: What the API bills for the same request, > 0.

    Returns:
        A share > 0. Above 1 the API is cheaper however busy the machine is.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        Self cost = API cost, solved for utilisation.
    """
    _above_zero(api_request_usd=api_request_usd)
    return self_cost_per_request(machine_usd_per_hour, requests_per_s, 1.0) / api_request_usd


def break_even_tokens_per_day(
    machine_usd_per_hour: float, api_request_usd: float, tokens: TokensPerRequest
) -> float:
    """Return the traffic at which one machine that is always on costs what the API bills.

    It does not depend on how fast the machine is; whether the machine can serve
    that much is another question (`capacity_tokens_per_day`).

    Args:
        machine_usd_per_hour: Price of the whole machine, > 0.
        api_request_usd: What the API bills for a request, > 0.
        tokens: Lengths of that request.

    Returns:
        Input and output tokens per day.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        24 x $/hour / (API cost per token of the mix): own derivation.
    """
    _above_zero(machine_usd_per_hour=machine_usd_per_hour, api_request_usd=api_request_usd)
    return _HOURS_A_DAY * machine_usd_per_hour / api_request_usd * tokens.total


def capacity_tokens_per_day(requests_per_s: float, tokens: TokensPerRequest) -> float:
    """Return the tokens, input and output, that a machine serves in a day at its sustained rate."""
    return requests_per_s * _HOUR_S * _HOURS_A_DAY * tokens.total


def tokens_per_step_at(
    acceptance_length: float, *, measured_length: float, measured_tokens_per_step: float
) -> float:
    """Return the tokens per step that another acceptance length would give.

    Steps without drafts give one token, those with drafts the acceptance
    length, and the share of steps with drafts stays as measured. A model: the
    step time is taken as unchanged.

    Args:
        acceptance_length: Asked for, >= 1.
        measured_length: Mean acceptance length, bonus token included, > 1.
        measured_tokens_per_step: Over all steps, >= 1.

    Returns:
        Tokens per step, in proportion to which decode throughput changes:
        tokens/s = tokens per step / step time.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        Own derivation from the definitions in docs/glossary.md.
    """
    if not (acceptance_length >= 1 and measured_length > 1 and measured_tokens_per_step >= 1):
        raise ValueError(
            "expected an acceptance length >= 1, a measured one > 1 and tokens per step >= 1, got "
            f"{acceptance_length}, {measured_length} and {measured_tokens_per_step}"
        )
    gained = (acceptance_length - 1) / (measured_length - 1)
    return 1 + (measured_tokens_per_step - 1) * gained


def _above_zero(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"expected {name} above 0, got {value}")
