"""A model of Kubernetes' HorizontalPodAutoscaler, `autoscaling/v2`.

`spec` is the vocabulary, `proposal` says what the metrics ask for, `behavior`
what windows, policies and limits make of it, `hpa` keeps the history and
decides. Knows no cluster: it exists to test scaling rules without one.
"""

from draftgate.scaling.behavior import Limit, Limited, Past, Recent
from draftgate.scaling.hpa import SYNC_PERIOD_S, Controller, Decision
from draftgate.scaling.proposal import (
    ExternalAverageValue,
    ExternalValue,
    Metric,
    Pods,
    PodsMetric,
    Unreadable,
    propose,
)
from draftgate.scaling.spec import (
    DEFAULT_SCALE_DOWN,
    DEFAULT_SCALE_UP,
    ControllerRules,
    HPASpec,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)

__all__ = [
    "DEFAULT_SCALE_DOWN",
    "DEFAULT_SCALE_UP",
    "SYNC_PERIOD_S",
    "Controller",
    "ControllerRules",
    "Decision",
    "ExternalAverageValue",
    "ExternalValue",
    "HPASpec",
    "Limit",
    "Limited",
    "Metric",
    "Past",
    "Pods",
    "PodsMetric",
    "PolicyType",
    "Recent",
    "ScalingPolicy",
    "ScalingRules",
    "SelectPolicy",
    "Unreadable",
    "propose",
]
