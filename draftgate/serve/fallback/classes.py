"""Controllers by class of traffic, as clients label it.

A class that is new gets a controller of its own, up to a number: labels come from clients,
and each costs memory and series of metrics. No I/O.
"""

import re

from draftgate.serve.fallback.controller import BreakEvenOf, Controller, Policy

MOST_CLASSES = 16
"""Classes with a controller of their own; what is labelled otherwise after that is OTHER."""

OTHER = "other"

_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,32}")


def class_of(label: bytes | None) -> str:
    """Return the class that a header's value names: "" without one, OTHER for what is none."""
    if not label:
        return ""
    text = label.decode("latin-1").strip()
    return text if _LABEL.fullmatch(text) else OTHER


class Classes:
    """The controllers.

    Args:
        ladder: Arms, as a `Controller` wants them.
        policy: How each acts.
        break_even: Says from when an arm pays.
        now_s: Time, seconds.

    Attributes:
        controllers: By class.
    """

    def __init__(
        self, ladder: tuple[str, ...], policy: Policy, break_even: BreakEvenOf, now_s: float
    ) -> None:
        self._made = (ladder, policy, break_even)
        self._gone: set[str] = set()
        self.controllers = {"": Controller(*self._made, now_s)}

    def of(self, name: str, now_s: float) -> tuple[str, Controller]:
        """Return the class that a label counts as, and its controller."""
        if name not in self.controllers and len(self.controllers) >= MOST_CLASSES:
            name = OTHER
        if name not in self.controllers:
            found = self.controllers[name] = Controller(*self._made, now_s)
            for arm in self._gone:
                found.set_alive(arm, now_s, alive=False)
        return name, self.controllers[name]

    def set_alive(self, arm: str, *, alive: bool) -> None:
        """Note an engine's state for classes that are still to come."""
        (self._gone.discard if alive else self._gone.add)(arm)
