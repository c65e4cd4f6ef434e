"""Jobs for worker processes; at module level, so that these can import them."""

import itertools
import os
import signal
from dataclasses import dataclass

from draftgate.errors import SpecError
from draftgate.load.closed import ClosedLoopPlan, NextRequest
from draftgate.load.generator import LoadPlan
from draftgate.load.open import OpenLoopPlan
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.spool import Share
from tests.support.fake import chat

GAP_NS = 4_000_000


@dataclass(frozen=True, slots=True)
class PlainJob:
    """A fixed number of equal requests; `fault` names what goes wrong in the second share."""

    endpoint: Endpoint
    total: int
    streams: int = 4
    is_open: bool = False
    fault: str = ""
    pause_s: float = 0.0

    def plan(self, share: Share) -> LoadPlan:
        """Return how one share goes."""
        if share.index == 1 and self.fault == "error":
            raise SpecError("planted in the second share")
        requests = share.size(self.total)
        if self.is_open:
            offsets = (share.number(i) * GAP_NS for i in itertools.count())
            return OpenLoopPlan(offsets, 5.0, 30.0, max_requests=requests)
        return ClosedLoopPlan(
            concurrency=share.size(self.streams),
            stall_timeout_s=5.0,
            run_timeout_s=30.0,
            has_window=False,
            max_requests=requests,
        )

    def requests(self, share: Share) -> NextRequest:
        """Return the source of one share's requests."""

        def next_request(_stream: int) -> PreparedRequest:
            if share.index == 1 and self.fault == "death":
                os.kill(os.getpid(), signal.SIGKILL)
            return chat(max_tokens=5)

        return next_request
