"""Costs by hand, and the points at which both sides cost the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftgate.cost.arithmetic import (
    TokenPrices,
    TokensPerRequest,
    api_cost_per_request,
    break_even_tokens_per_day,
    break_even_utilisation,
    capacity_tokens_per_day,
    per_million_output,
    per_million_tokens,
    self_cost_per_request,
    split_by_price,
    tokens_per_step_at,
)

REQUEST = TokensPerRequest(300, 100)
PRICES = TokenPrices(2.0, 10.0)

HOURLY = st.floats(0.01, 1000)
RATES = st.floats(1e-3, 1e4)
SHARES = st.floats(0.01, 1)
REQUESTS = st.builds(TokensPerRequest, st.floats(0, 1e5), st.floats(1, 1e5))
LISTED = st.builds(TokenPrices, st.floats(0.01, 100), st.floats(0.01, 100))


def test_self_cost_by_hand() -> None:
    """At 3.60 $ an hour, 10 requests/s half the time cost 0.0002 $ each: 18,000 in an hour."""
    cost = self_cost_per_request(3.6, 10, 0.5)

    assert cost == pytest.approx(3.6 / 18_000)
    assert per_million_tokens(cost, REQUEST) == pytest.approx(0.5)  # 400 tokens each
    assert per_million_output(cost, REQUEST) == pytest.approx(2.0)  # 100 tokens each


def test_api_cost_by_hand() -> None:
    """300 tokens at 2 $ and 100 at 10 $ per million are 0.0016 $."""
    cost = api_cost_per_request(REQUEST, PRICES)

    assert cost == pytest.approx(0.0016)
    assert per_million_tokens(cost, REQUEST) == pytest.approx(4.0)


def test_break_even_by_hand() -> None:
    """0.0001 $ at full load against 0.0016 $ is even at 1/16; 86.40 $ a day buy 54,000 requests."""
    assert break_even_utilisation(3.6, 10, 0.0016) == pytest.approx(1 / 16)
    assert break_even_tokens_per_day(3.6, 0.0016, REQUEST) == pytest.approx(54_000 * 400)
    assert capacity_tokens_per_day(10, REQUEST) == pytest.approx(864_000 * 400)


def test_split_by_hand() -> None:
    """0.0002 $ over 300 input and 100 output tokens that weigh five times as much."""
    split = split_by_price(0.0002, REQUEST, PRICES)

    assert split.input_usd == pytest.approx(0.25)
    assert split.output_usd == pytest.approx(1.25)


def test_tokens_per_step_by_hand() -> None:
    """Half the steps with drafts of length 3 give 2 tokens a step; at length 2 they give 1.5."""
    there = tokens_per_step_at(2.0, measured_length=3.0, measured_tokens_per_step=2.0)

    assert there == pytest.approx(1.5)


@given(HOURLY, RATES, SHARES, st.floats(1.01, 10))
def test_cost_falls_with_throughput_and_utilisation(
    hourly: float, rate: float, share: float, faster: float
) -> None:
    """A faster or busier machine makes a request cheaper, in inverse proportion."""
    cost = self_cost_per_request(hourly, rate, share)

    assert self_cost_per_request(hourly, rate * faster, share) == pytest.approx(cost / faster)
    assert self_cost_per_request(hourly, rate, share / faster) == pytest.approx(cost * faster)


@given(HOURLY, RATES, REQUESTS, LISTED)
def test_both_cost_the_same_at_break_even(
    hourly: float, rate: float, tokens: TokensPerRequest, listed: TokenPrices
) -> None:
    """At the break-even utilisation, where there is one, self cost is the API's bill."""
    billed = api_cost_per_request(tokens, listed)
    share = break_even_utilisation(hourly, rate, billed)
    traffic = break_even_tokens_per_day(hourly, billed, tokens)

    if share <= 1:
        assert self_cost_per_request(hourly, rate, share) == pytest.approx(billed)
    else:
        assert self_cost_per_request(hourly, rate, 1.0) > billed
    assert traffic / tokens.total * billed == pytest.approx(24 * hourly)
    assert share * capacity_tokens_per_day(rate, tokens) == pytest.approx(traffic)


@given(st.floats(1e-7, 10), REQUESTS, LISTED)
def test_split_gives_the_cost_back_in_the_ratio_of_the_prices(
    cost: float, tokens: TokensPerRequest, listed: TokenPrices
) -> None:
    """Both parts sum to the cost of the request and stand as the list prices do."""
    split = split_by_price(cost, tokens, listed)

    assert api_cost_per_request(tokens, split) == pytest.approx(cost)
    assert split.output_usd / split.input_usd == pytest.approx(listed.output_usd / listed.input_usd)


@given(st.floats(1.01, 8), st.floats(1, 8))
def test_measured_acceptance_gives_the_measured_tokens_per_step(length: float, step: float) -> None:
    """The model says of the measured length what was measured, and 1 of no acceptance."""
    there = tokens_per_step_at(length, measured_length=length, measured_tokens_per_step=step)
    nothing = tokens_per_step_at(1.0, measured_length=length, measured_tokens_per_step=step)

    assert there == pytest.approx(step)
    assert nothing == 1.0


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, float("nan")])
def test_utilisation_out_of_range_is_refused(share: float) -> None:
    """Utilisation lies above 0 and is at most 1."""
    with pytest.raises(ValueError, match="utilisation"):
        self_cost_per_request(1.0, 1.0, share)


@pytest.mark.parametrize(("hourly", "rate"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_no_price_or_rate_is_refused(hourly: float, rate: float) -> None:
    """A machine has a price and a rate above 0."""
    with pytest.raises(ValueError, match="above 0"):
        self_cost_per_request(hourly, rate, 0.5)


def test_other_arguments_out_of_range_are_refused() -> None:
    """Lengths, weights, bills and acceptance lengths are checked."""
    with pytest.raises(ValueError, match="output tokens > 0"):
        TokensPerRequest(10, 0)
    with pytest.raises(ValueError, match="weights"):
        split_by_price(1.0, REQUEST, TokenPrices(0.0, 0.0))
    with pytest.raises(ValueError, match="api_request_usd"):
        break_even_utilisation(1.0, 1.0, 0.0)
    with pytest.raises(ValueError, match="acceptance length"):
        tokens_per_step_at(0.9, measured_length=2.0, measured_tokens_per_step=1.5)
