"""Rules of an autoscaler from the API's own form."""

from typing import Any

from draftgate.scaling import PolicyType, ScalingPolicy, ScalingRules, SelectPolicy


def rules_of(document: dict[str, Any]) -> ScalingRules:
    """Return the rules of one direction."""
    return ScalingRules(
        document["stabilizationWindowSeconds"],
        tuple(
            ScalingPolicy(PolicyType(policy["type"]), policy["value"], policy["periodSeconds"])
            for policy in document["policies"]
        ),
        SelectPolicy(document["selectPolicy"]),
    )
