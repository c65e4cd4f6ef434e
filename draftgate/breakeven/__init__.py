"""Where speculation pays: break-even acceptance by streams and drafts, and what follows.

Takes the summary of a sweep with forced acceptance, from which the cost of a
verify step is known apart from what it yields. Measures nothing.
"""

from draftgate.breakeven.model import (
    StepCost,
    acceptance_for,
    break_even_acceptance,
    fit_step_cost,
    tokens_per_step,
)
from draftgate.breakeven.pays import CellCost, Choice, PayMap, pay_map
from draftgate.breakeven.render import document, markdown
from draftgate.breakeven.schedule import best_choices, inflection, schedule

__all__ = [
    "CellCost",
    "Choice",
    "PayMap",
    "StepCost",
    "acceptance_for",
    "best_choices",
    "break_even_acceptance",
    "document",
    "fit_step_cost",
    "inflection",
    "markdown",
    "pay_map",
    "schedule",
    "tokens_per_step",
]
