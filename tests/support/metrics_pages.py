"""Metrics pages made of numbers: what an engine with speculation would export."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

K = 4


@dataclass(frozen=True, slots=True)
class Counted:
    """Totals of one series.

    Attributes:
        drafts: Verify steps.
        accepted: Accepted draft tokens.
        requests: Ended requests.
        running: Requests that run now.
        created: Creation time of the counters; None to export none.
        generated: Output tokens; None for what the steps yield.
    """

    drafts: int = 0
    accepted: int = 0
    requests: int = 0
    running: int = 0
    created: float | None = None
    generated: int | None = None

    def after(self, *, drafts: int, accepted: int, requests: int) -> "Counted":
        """Return the totals after some more of each."""
        return replace(
            self,
            drafts=self.drafts + drafts,
            accepted=self.accepted + accepted,
            requests=self.requests + requests,
        )


def vllm_page(series: Mapping[tuple[tuple[str, str], ...], Counted]) -> str:
    """Return a page by vLLM's names; keys are labels beside those that hold a value."""
    lines = []
    for labels, counted in series.items():
        text = ",".join(f'{name}="{value}"' for name, value in labels)
        generated = counted.generated
        if generated is None:
            generated = counted.drafts + counted.accepted + counted.requests
        stem = "vllm:spec_decode_num"
        lines += [
            f"{stem}_drafts_total{{{text}}} {counted.drafts}",
            f"{stem}_draft_tokens_total{{{text}}} {counted.drafts * K}",
            f"{stem}_accepted_tokens_total{{{text}}} {counted.accepted}",
            f'{stem}_accepted_tokens_per_pos_total{{{text},position="0"}} {counted.accepted}',
            f'vllm:request_success_total{{{text},finished_reason="stop"}} {counted.requests}',
            f"vllm:generation_tokens_total{{{text}}} {generated}",
            f"vllm:num_requests_running{{{text}}} {counted.running}",
        ]
        if counted.created is not None:
            lines.append(f"{stem}_drafts_created{{{text}}} {counted.created}")
    return "\n".join(lines) + "\n"


MODEL = (("model_name", "m"), ("engine", "0"))
"""Labels of the only series of a plain server."""


class Traffic:
    """A server's totals as requests go by, with real scatter.

    Args:
        seed: Of the scatter.
        per_step: Accepted tokens per verify step.
    """

    def __init__(self, seed: int, per_step: float = 1.5) -> None:
        self.per_step = per_step
        self.counted = Counted(created=0.0)
        self._rng = np.random.default_rng(seed)

    def serve(self, requests: int = 100) -> str:
        """Serve requests whose acceptance differs by request, and return the page."""
        share = self.per_step / K
        shares = self._rng.beta(12 * share, 12 * (1 - share), requests)
        accepted = self._rng.binomial(40 * K, shares).sum()
        self.counted = self.counted.after(
            drafts=40 * requests, accepted=int(accepted), requests=requests
        )
        return self.page()

    def idle(self, generated: int) -> str:
        """Generate tokens without a single draft, and return the page."""
        counted = self.counted
        now = counted.drafts + counted.accepted + counted.requests
        before = now if counted.generated is None else counted.generated
        self.counted = replace(counted, generated=before + generated, running=3)
        return self.page()

    def restart(self) -> None:
        """Begin all counters anew."""
        self.counted = Counted(created=(self.counted.created or 0.0) + 1.0)

    def page(self) -> str:
        """Return the page as it is now."""
        return vllm_page({MODEL: self.counted})
