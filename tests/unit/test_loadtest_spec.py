"""What a load test asks for: checked before it is sent, cut into shares without rest."""

import itertools
import pickle
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from draftgate.errors import SpecError
from draftgate.load.apis import LoadPrompt
from draftgate.load.arrivals import (
    Arrivals,
    ClosedLoop,
    Constant,
    Gamma,
    Poisson,
    Ramp,
    Replay,
    Steps,
    ThinkTime,
)
from draftgate.load.closed import ClosedLoopPlan
from draftgate.load.lengths import Fixed
from draftgate.load.open import OpenLoopPlan
from draftgate.load.prompts import ListedPrompt, PromptList
from draftgate.load.spool import Share
from draftgate.load.workload import RequestPlan
from draftgate.loadtest.spec import with_fresh_salts
from tests.support.load_tests import IDS, WORDS, make_test


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_requests": None}, "nothing ends it"),
        ({"max_requests": None, "arrivals": Poisson(3)}, "nothing ends it"),
        ({"max_requests": 0}, "max_requests must be"),
        ({"duration_s": -1.0}, "duration_s must be"),
        ({"duration_s": float("nan")}, "duration_s must be"),
        ({"stall_timeout_s": 0.0}, "stall_timeout_s must be"),
        ({"run_timeout_s": float("inf")}, "run_timeout_s must be"),
        ({"arrivals": Poisson(3), "workload": replace(WORDS, turns=2)}, "in an open loop"),
    ],
)
def test_impossible_test_is_refused(changes: dict[str, Any], words: str) -> None:
    """A test that cannot end, or whose parts contradict each other, is never made."""
    with pytest.raises(SpecError, match=words):
        make_test(**changes)


@pytest.mark.parametrize("arrivals", [Replay((0.0, 1.0)), Steps(((5, 1),), poisson=False)])
def test_arrivals_that_end_need_no_limit(arrivals: Arrivals) -> None:
    """A trace and steps end by themselves, and the run a drain later."""
    test = make_test(arrivals=arrivals, max_requests=None)

    assert test.sends_for_s == 1.0
    assert test.longest_s == 301.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"api": "chatt"}, "unknown API 'chatt'. Known: chat"),
        ({"workload": IDS}, "cannot express the token ids"),
        ({"api": "trtllm", "salt": "s"}, "cannot express cache_salt"),
        ({"api": "trtllm", "workload": replace(WORDS, turns=2)}, "hold no text"),
        ({"api": "completions", "workload": replace(WORDS, turns=2)}, "cannot express the mess"),
    ],
)
def test_what_the_api_cannot_express_is_told_before_anything_is_sent(
    changes: dict[str, Any], words: str
) -> None:
    """Each mismatch of API and prompts is found by looking, not by sending."""
    with pytest.raises(SpecError, match=words):
        make_test(**changes).check()


def test_every_listed_prompt_is_checked() -> None:
    """One prompt in the middle of a list that the API cannot express is found."""
    prompts = [LoadPrompt("a", text="a"), LoadPrompt("b", token_ids=(1,))]
    entries = tuple(ListedPrompt(prompt) for prompt in prompts)
    test = make_test(workload=RequestPlan(PromptList(entries, "mine"), Fixed(2), 1))

    with pytest.raises(SpecError, match="token ids of prompt 'b'"):
        test.check()


@pytest.mark.parametrize("of", [1, 3])
def test_shares_of_a_closed_loop_are_the_whole(of: int) -> None:
    """Streams and requests of all shares add up, and no request is in two of them."""
    test = make_test()
    shares = [Share(index, of) for index in range(of)]

    plans = [test.plan(share) for share in shares]
    bodies: Counter[bytes] = Counter()
    for share, plan in zip(shares, plans, strict=True):
        source = test.requests(share)
        bodies.update(_sent(source) for _ in range(plan.max_requests or 0))

    assert sum(p.concurrency for p in plans if isinstance(p, ClosedLoopPlan)) == 4
    whole = test.requests(Share(0, 1))
    assert bodies == Counter(_sent(whole) for _ in range(21))
    assert len(bodies) == 21


@pytest.mark.parametrize("of", [1, 3])
def test_shares_of_an_open_loop_are_one_schedule(of: int) -> None:
    """Arrivals of all shares, merged, are those of one process."""
    test = make_test(arrivals=Poisson(40), duration_s=1.0)
    plans = [test.plan(Share(index, of)) for index in range(of)]

    merged = sorted(
        offset
        for plan in plans
        if isinstance(plan, OpenLoopPlan)
        for offset in itertools.islice(plan.offsets_ns, plan.max_requests)
    )

    assert merged == list(itertools.islice(Poisson(40).offsets_ns(test.seed), 21))


def test_think_times_are_those_of_the_whole_runs_streams() -> None:
    """A stream waits alike whichever process it is in."""
    think_time = ThinkTime(0.5, exponential=True)
    test = make_test(arrivals=ClosedLoop(4, think_time=think_time))
    plan = test.plan(Share(1, 2))
    assert isinstance(plan, ClosedLoopPlan)
    assert plan.think_times is not None

    got = next(plan.think_times(1))

    assert got == next(think_time.think_times_s(3, test.seed))
    assert got != next(think_time.think_times_s(1, test.seed))


@pytest.mark.parametrize(
    ("arrivals", "requests", "cores", "count"),
    [
        (ClosedLoop(1000), None, 8, 1),
        (ClosedLoop(1001), None, 8, 2),
        (ClosedLoop(2500), None, 8, 3),
        (ClosedLoop(2500), None, 2, 1),
        (ClosedLoop(2500), None, 1, 1),
        (ClosedLoop(2500), 2, 8, 2),
        (Constant(6000), None, 8, 1),
        (Poisson(7000), None, 8, 2),
        (Gamma(30_000, 0.5), None, 8, 5),
        (Ramp(1.0, 20_000, 10, poisson=True), None, 8, 4),
        (Steps(((1, 1), (20_000, 1)), poisson=True), None, 8, 4),
        (Replay(tuple(n / 20_000 for n in range(20_001))), None, 8, 4),
    ],
)
def test_workers_follow_the_load(
    arrivals: ClosedLoop | Arrivals, requests: int | None, cores: int, count: int
) -> None:
    """A thousand streams or 50,000 tokens/s to a process, one core left, no empty share."""
    test = make_test(arrivals=arrivals, workload=IDS, max_requests=requests, duration_s=1.0)

    assert test.workers(cores) == count


def test_salts_are_new_in_each_run_and_for_each_request() -> None:
    """Two runs of one test share no salt, and neither do two requests."""
    first, second = with_fresh_salts(make_test()), with_fresh_salts(make_test())
    sources = [test.requests(Share(0, 1)) for test in (first, first, second)]

    bodies = [_sent(source) for source in sources]
    assert bodies[0] == bodies[1]
    assert bodies[0] != bodies[2]
    assert _sent(sources[0]) != bodies[0]
    assert b'"cache_salt":' in bodies[0]


def test_api_without_salts_shares_the_cache() -> None:
    """Where a salt cannot be expressed, the test is sent without."""
    test = make_test(api="openai-chat")

    assert with_fresh_salts(test) == test


def test_turns_of_a_session_share_a_salt() -> None:
    """A session finds its own earlier turns in the cache, and nobody else's."""
    test = make_test(workload=replace(WORDS, turns=3), salt="x")
    sessions = [test.workload.session(number) for number in range(2)]
    turns = [[s.next_turn(None), s.next_turn("yes")] for s in sessions]

    bodies = [[test.prepared(turn).body for turn in pair if turn is not None] for pair in turns]
    assert all(b'"cache_salt":"x-0"' in body for body in bodies[0])
    assert all(b'"cache_salt":"x-1"' in body for body in bodies[1])
    assert [len(pair) for pair in bodies] == [2, 2]


def test_travels_to_other_processes() -> None:
    """A pickled test is the same test."""
    test = make_test(arrivals=Poisson(2.5), salt="s")

    assert pickle.loads(pickle.dumps(test)) == test


def _sent(source: Any) -> bytes:
    body: bytes = source(0).body
    return body
