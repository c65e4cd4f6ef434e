"""Growth gathered until it makes a window: enough requests, or enough verify steps.

Knows nothing of clocks or levels. A window may hold more than asked for, because
readings come when they come; it never holds less.
"""

from dataclasses import dataclass

from draftgate.errors import SpecError
from draftgate.watch.totals import Growth


@dataclass(frozen=True, slots=True)
class WindowSize:
    """When a window is full.

    Attributes:
        requests: Requests ended, >= 1; None to count steps.
        steps: Verify steps, >= 1; None to count requests.

    Raises:
        SpecError: If not exactly one is given, or it is below 1.
    """

    requests: int | None = 100
    steps: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        given = [size for size in (self.requests, self.steps) if size is not None]
        if len(given) != 1 or given[0] < 1:
            raise SpecError(
                f"watch: a window needs a number of requests or of verify steps, 1 or more, got "
                f"{self.requests} and {self.steps}. Give --window 100 or --window-steps 5000."
            )

    def holds(self, gathered: Growth) -> bool:
        """Return whether this much is a window."""
        if self.requests is not None:
            return gathered.requests >= self.requests
        return gathered.drafts >= (self.steps or 0)

    @property
    def text(self) -> str:
        """Return it in words."""
        return f"{self.requests} requests" if self.requests else f"{self.steps} verify steps"


def gather(before: Growth, more: Growth, size: WindowSize) -> tuple[Growth, Growth | None]:
    """Return what is gathered now, and the window that became full, if one did.

    Requests without a single verify step are no window; they are dropped when they
    would make one, so that later steps are not taken for theirs.
    """
    together = before + more
    if not size.holds(together):
        return together, None
    return Growth(), together if together.drafts > 0 else None
