"""What a million tokens costs on one's own machine, beside list prices of APIs.

`arithmetic` holds the formulas, `prices` reads the dated price file, `measured`
finds the highest load that meets the SLO in stored runs or load summaries,
`machine` finds the prices that fit, `report` works out a `result`, `render`
shows it. Measures nothing.
"""

from draftgate.cost.measured import Measurement, read_measurement
from draftgate.cost.prices import Prices, load_prices
from draftgate.cost.report import cost_report
from draftgate.cost.result import Assumptions, CostReport

__all__ = [
    "Assumptions",
    "CostReport",
    "Measurement",
    "Prices",
    "cost_report",
    "load_prices",
    "read_measurement",
]
