"""The manifests keep this project's rules, and each rule finds a fault that is planted.

With PyYAML alone; what kustomize and the API's schema say is in `test_k8s_tools.py`.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import manifests
from tests.support.manifests import DOCUMENT_RULES, OVERLAYS, ROOT, TREE_RULES, Tree, read

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes.md"
METRICS = Path(__file__).parent / "data" / "vllm_metrics.txt"

DEPLOYMENT = "base/deployment.yaml"
HPA = "base/hpa.yaml"
RULES = "prometheus-rules/queue-wait.yaml"
KEDA = "components/keda/scaledobject.yaml"
ADAPTER = "prometheus-adapter/values.yaml"
LLAMA = "overlays/llama-3.3-70b/kustomization.yaml"

Rule = Callable[[Any], list[str]]

FAULTS: tuple[tuple[Rule, str, str, str], ...] = (
    (manifests.root_containers, DEPLOYMENT, "runAsNonRoot: true", "runAsNonRoot: false"),
    (manifests.root_containers, DEPLOYMENT, "runAsUser: 2000", "runAsUser: 0"),
    (manifests.root_containers, DEPLOYMENT, "drop: [ALL]", "drop: [NET_RAW]"),
    (
        manifests.root_containers,
        "base/model-fetch.yaml",
        "allowPrivilegeEscalation: false",
        "privileged: true",
    ),
    (manifests.missing_gpus, DEPLOYMENT, "nvidia.com/gpu: 1 ", "example.com/gpu: 1 "),
    (manifests.missing_gpus, DEPLOYMENT, "nvidia.com/gpu: 1 ", 'nvidia.com/gpu: "0.5" '),
    (manifests.small_shared_memory, DEPLOYMENT, "mountPath: /dev/shm", "mountPath: /shm"),
    (manifests.small_shared_memory, DEPLOYMENT, "medium: Memory", 'medium: ""'),
    (manifests.impatient_probes, DEPLOYMENT, "failureThreshold: 120", "failureThreshold: 60"),
    (manifests.impatient_probes, DEPLOYMENT, "startupProbe:", "otherProbe:"),
    (manifests.impatient_probes, DEPLOYMENT, "failureThreshold: 12\n", "failureThreshold: 3\n"),
    (
        manifests.readiness_by_load,
        DEPLOYMENT,
        "readinessProbe:\n            httpGet:\n              path: /health",
        "readinessProbe:\n            httpGet:\n              path: /load",
    ),
    (
        manifests.abrupt_ends,
        DEPLOYMENT,
        "terminationGracePeriodSeconds: 660",
        "terminationGracePeriodSeconds: 600",
    ),
    (manifests.abrupt_ends, DEPLOYMENT, "preStop:", "postStart:"),
    (manifests.abrupt_ends, DEPLOYMENT, "--shutdown-timeout=600", "--shutdown-timeout=0"),
    (manifests.blocking_budgets, "base/pdb.yaml", "maxUnavailable: 1", "minAvailable: 1"),
    (manifests.blocking_budgets, "base/kustomization.yaml", "  - pdb.yaml\n", ""),
    (manifests.open_networks, "base/kustomization.yaml", "  - networkpolicy.yaml\n", ""),
    (
        manifests.open_networks,
        "base/networkpolicy.yaml",
        "policyTypes: [Ingress, Egress]",
        "policyTypes: [Egress]",
    ),
    (
        manifests.open_networks,
        "base/networkpolicy.yaml",
        "ingress: []",
        "ingress: [{ports: [{port: 443}]}]",
    ),
    (manifests.unwatched_services, "base/servicemonitor.yaml", "- port: http", "- port: metrics"),
    (manifests.several_owners, DEPLOYMENT, "spec:\n", "spec:\n  replicas: 2\n"),
    (manifests.several_owners, "base/kustomization.yaml", "  - hpa.yaml\n", ""),
    (
        manifests.short_windows,
        HPA,
        "stabilizationWindowSeconds: 1200",
        "stabilizationWindowSeconds: 300",
    ),
    (manifests.service_links, DEPLOYMENT, "      enableServiceLinks: false\n", ""),
    (manifests.private_weights, "base/model-cache.yaml", "ReadWriteMany", "ReadWriteOnce"),
    (manifests.private_weights, DEPLOYMENT, "readOnly: true", "readOnly: false"),
    (manifests.unknown_variables, LLAMA, "DRAFT_REVISION=", "REVISION="),
    (manifests.unequal_gpus, LLAMA, "TENSOR_PARALLEL_SIZE=2", "TENSOR_PARALLEL_SIZE=4"),
    (
        manifests.wrong_namespaces,
        LLAMA,
        "namespace: vllm-llama-3-3-70b",
        "namespace: vllm-llama",
    ),
    (manifests.floating_images, LLAMA, "newTag: v0.33.0", "newTag: latest"),
    (manifests.unserved_metrics, HPA, "name: queue_wait_ms", "name: queue_wait"),
    (manifests.unserved_metrics, HPA, "service: vllm", "service: server"),
    (manifests.unserved_metrics, RULES, "record: queue_wait_ms", "record: wait_ms"),
    (manifests.unserved_metrics, ADAPTER, "metricsQuery: max(", "metricsQuery: sum("),
    (manifests.unserved_metrics, KEDA, "max(queue_wait_ms", "max(queue_wait"),
    (manifests.averaged_latency, HPA, "type: Value", "type: AverageValue"),
    (manifests.averaged_latency, KEDA, "metricType: Value", "name: wait"),
    (manifests.wrong_clamps, HPA, 'value: "1000"', 'value: "500"'),
    (manifests.wrong_clamps, RULES, "2000 * (sum", "0 * (sum"),
    (
        manifests.invented_zeros,
        RULES,
        "round(avg_over_time(service:queue_wait_ms:p90[40s]))",
        "round(avg_over_time(service:queue_wait_ms:p90[40s])) or vector(0)",
    ),
    (manifests.invented_zeros, KEDA, 'ignoreNullValues: "false"', 'ignoreNullValues: "true"'),
    (manifests.invented_zeros, KEDA, "  advanced:\n", "  fallback: {}\n  advanced:\n"),
    (manifests.other_owner_other_rules, KEDA, "maxReplicaCount: 4", "maxReplicaCount: 8"),
    (manifests.other_owner_other_rules, KEDA, "periodSeconds: 120", "periodSeconds: 60"),
    (manifests.other_owner_other_rules, HPA, "minReplicas: 1", "minReplicas: 2"),
    (manifests.broken_speculation, DEPLOYMENT, '"eagle3"', '"ngram"'),
    (manifests.broken_speculation, LLAMA, "NUM_SPECULATIVE_TOKENS=3", "NUM_SPECULATIVE_TOKENS=0"),
)


def faults(rule: Rule, tree: Tree) -> list[str]:
    """Return what a rule finds."""
    return rule(tree.base) if rule in DOCUMENT_RULES else rule(tree)


def test_all_overlays_are_looked_at() -> None:
    """The three models of the issue have an overlay each."""
    assert tuple(sorted(path.name for path in (ROOT / "overlays").iterdir())) == OVERLAYS


def test_every_file_of_the_base_is_listed() -> None:
    """A manifest that no kustomization names would be deployed by nobody."""
    listed = read().one("base/kustomization.yaml")
    scripts = [name for one in listed["configMapGenerator"] for name in one["files"]]
    there = {path.name for path in (ROOT / "base").iterdir()} - {"kustomization.yaml"}

    assert there == {*listed["resources"], *scripts}


@pytest.mark.parametrize("rule", DOCUMENT_RULES + TREE_RULES, ids=lambda rule: rule.__name__)
def test_manifests_keep_the_rule(rule: Rule) -> None:
    """The committed manifests have no fault of any kind."""
    assert faults(rule, read()) == []


@pytest.mark.parametrize(("rule", "path", "good", "bad"), FAULTS)
def test_planted_fault_is_found(rule: Rule, path: str, good: str, bad: str) -> None:
    """A copy with one thing made wrong is found by the rule about it."""
    texts = read().texts
    assert good in texts[path]

    assert faults(rule, Tree({**texts, path: texts[path].replace(good, bad, 1)})) != []


def test_every_rule_has_a_planted_fault() -> None:
    """No rule is trusted that was never seen to find anything."""
    assert {rule for rule, *_ in FAULTS} == {*DOCUMENT_RULES, *TREE_RULES}


def test_first_bucket_is_vllms() -> None:
    """The end of the first bucket of queue time is the one on vLLM's own page."""
    ends = re.findall(
        r'^vllm:request_queue_time_seconds_bucket\{.*le="([0-9.]+)"\}',
        METRICS.read_text(encoding="utf-8"),
        re.MULTILINE,
    )

    assert min(float(end) for end in ends) * 1000 == manifests.FIRST_BUCKET_MS


def test_page_says_what_the_manifests_say() -> None:
    """docs/kubernetes.md quotes the numbers of the files, and says that nothing was run."""
    page = PAGE.read_text(encoding="utf-8")
    tree = read()
    behavior = manifests.behaviors(tree.base)[0]
    window_s = behavior["scaleDown"]["stabilizationWindowSeconds"]

    assert "Nothing here has run on a cluster" in page
    assert f"target is {manifests.target_ms(tree):,} ms" in page
    assert f"window of {window_s:,} s" in page
    assert all(f"overlays/{overlay}" in page for overlay in OVERLAYS)
