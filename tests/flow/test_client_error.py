"""A client that is too slow for what is judged is caught on a real connection."""

import time
from collections.abc import Callable
from dataclasses import replace

from draftgate.engines.fake_server import FakeConfig
from draftgate.load.closed import ClosedLoopPlan
from draftgate.load.generator import run as run_load
from draftgate.load.requests import PreparedRequest
from draftgate.metrics.client_error import client_faults
from draftgate.records import RunSamples
from tests.support.fake import chat, endpoint, fake_server
from tests.support.samples import make_run


def _measured(next_request: Callable[[int], PreparedRequest]) -> RunSamples:
    plan = ClosedLoopPlan(
        concurrency=2,
        warmup_requests=1,
        window_s=0.5,
        min_requests=4,
        stagger_s=0.0,
        stall_timeout_s=5.0,
        run_timeout_s=20.0,
    )
    with fake_server(FakeConfig(step_s=0.01, ttft_s=0.02)) as server:
        loaded = run_load(endpoint(server), next_request, plan)
    return replace(make_run(), records=loaded.records, window=loaded.window, client=loaded.client)


def test_slow_client_is_caught_and_a_quick_one_is_not() -> None:
    """A generator that blocks 15 ms before each request is told, one that does not is not."""
    request = chat(max_tokens=24)
    margins = {"output_tokens_per_s": 0.2}

    def slowly(_stream: int) -> PreparedRequest:
        time.sleep(0.015)
        return request

    assert client_faults(_measured(lambda _stream: request), margins) == ()
    assert len(client_faults(_measured(slowly), margins)) == 1
