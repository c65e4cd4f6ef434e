"""What the Kubernetes manifests must keep, read with PyYAML alone.

One function per rule, from manifests to the faults that it finds. Rules of
`DOCUMENT_RULES` take the objects of one cluster, so they also hold what
kustomize renders; those of `TREE_RULES` compare files with each other. An API
server knows what Kubernetes accepts; these know what this project promises.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Document = Mapping[str, Any]

ROOT = Path(__file__).parents[2] / "gpu-ci" / "k8s"
OVERLAYS = ("gpt-oss-120b", "llama-3.3-70b", "qwen3-coder-30b")
ALLOWANCE = "draftgate/start-allowance-s"
GPU = "nvidia.com/gpu"

FIRST_BUCKET_MS = 300
"""Upper end of the first bucket of vLLM's queue time: `tests/unit/data/vllm_metrics.txt`."""

SPARE_S = 30
"""Least time between the end of a drain and the kill: the server has to end too."""

_VARIABLE = re.compile(r"\$\(([A-Z_]+)\)")


@dataclass(frozen=True, slots=True)
class Tree:
    """The files below `gpu-ci/k8s`, by path."""

    texts: Mapping[str, str]

    def documents(self, path: str) -> tuple[Document, ...]:
        """Return the objects of one file."""
        return tuple(yaml.safe_load_all(self.texts[path]))

    def one(self, path: str) -> Document:
        """Return the one object of a file."""
        (document,) = self.documents(path)
        return document

    @property
    def base(self) -> tuple[Document, ...]:
        """The objects of the base, as its kustomization lists them."""
        listed = self.one("base/kustomization.yaml")["resources"]
        return tuple(one for name in listed for one in self.documents(f"base/{name}"))

    def overlay(self, name: str) -> Document:
        """Return the kustomization of an overlay."""
        return self.one(f"overlays/{name}/kustomization.yaml")

    @property
    def recorded(self) -> dict[str, str]:
        """Expression of each recorded series by its name."""
        groups = self.one("prometheus-rules/queue-wait.yaml")["spec"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return {rule["record"]: rule["expr"] for rule in rules if "record" in rule}

    @property
    def scaled_object(self) -> Document:
        """What KEDA is told."""
        spec: Document = self.one("components/keda/scaledobject.yaml")["spec"]
        return spec


def read(folder: Path = ROOT) -> Tree:
    """Return the committed manifests."""
    return Tree(
        {
            path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
    )


def of_kind(documents: Sequence[Document], kind: str) -> list[Document]:
    """Return the objects of one kind."""
    return [document for document in documents if document["kind"] == kind]


def name_of(document: Document) -> str:
    """Return kind and name."""
    return f"{document['kind']} {document['metadata']['name']}"


def workloads(documents: Sequence[Document]) -> Iterator[tuple[str, Document]]:
    """Give the pod template of each workload with its name."""
    for document in documents:
        if document["kind"] in ("Deployment", "Job"):
            yield name_of(document), document["spec"]["template"]


def servers(documents: Sequence[Document]) -> Iterator[tuple[str, Document, Document]]:
    """Give name, pod template and container of each Deployment."""
    for deployment in of_kind(documents, "Deployment"):
        template = deployment["spec"]["template"]
        for container in template["spec"]["containers"]:
            yield name_of(deployment), template, container


def selects(selector: Document, template: Document) -> bool:
    """Say whether a selector's labels are all on the pods."""
    return selector["matchLabels"].items() <= template["metadata"]["labels"].items()


def volumes(template: Document) -> dict[str, Document]:
    """Return the volumes of pods by name."""
    return {volume["name"]: volume for volume in template["spec"]["volumes"]}


def flag(container: Document, name: str) -> str:
    """Return the value of an argument `name=value`; empty if it is not given."""
    return next(
        (one.split("=", 1)[1] for one in container["args"] if one.startswith(f"{name}=")), ""
    )


def mounted(container: Document, path: str) -> Document:
    """Return what is mounted at a path; empty if nothing is."""
    return next((one for one in container["volumeMounts"] if one["mountPath"] == path), {})


def root_containers(documents: Sequence[Document]) -> list[str]:
    """Containers that may run as root, gain rights, or write into their image."""
    faults = []
    for name, template in workloads(documents):
        pod = template["spec"]
        given = dict(pod.get("securityContext") or {})
        if given.get("runAsNonRoot") is not True or not given.get("runAsUser", 0) > 0:
            faults.append(f"{name}: root")
        if given.get("seccompProfile") != {"type": "RuntimeDefault"}:
            faults.append(f"{name}: seccomp")
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            wanted = {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            if container.get("securityContext") != wanted:
                faults.append(f"{name}: {container['name']}")
    return faults


def missing_gpus(documents: Sequence[Document]) -> list[str]:
    """Servers that ask for no whole GPU under limits."""
    counts = {
        name: container["resources"].get("limits", {}).get(GPU)
        for name, _, container in servers(documents)
    }
    return [name for name, count in counts.items() if not isinstance(count, int) or count < 1]


def small_shared_memory(documents: Sequence[Document]) -> list[str]:
    """Servers without a /dev/shm of their own in memory, with a limit."""
    faults = []
    for name, template, container in servers(documents):
        volume = volumes(template).get(mounted(container, "/dev/shm").get("name", ""), {})
        empty = volume.get("emptyDir", {})
        if empty.get("medium") != "Memory" or "sizeLimit" not in empty:
            faults.append(name)
    return faults


def patience_s(probe: Document) -> int:
    """Return how long a probe may fail, seconds."""
    return int(probe["failureThreshold"]) * int(probe["periodSeconds"])


def impatient_probes(documents: Sequence[Document]) -> list[str]:
    """Starts cut before their allowance, and restarts that come before a pod leaves service."""
    faults = []
    for name, template, container in servers(documents):
        allowance_s = int(template["metadata"]["annotations"][ALLOWANCE])
        start = container.get("startupProbe")
        if start is None or patience_s(start) < allowance_s:
            faults.append(f"{name}: start")
        if patience_s(container["livenessProbe"]) <= patience_s(container["readinessProbe"]):
            faults.append(f"{name}: liveness")
    return faults


def readiness_by_load(documents: Sequence[Document]) -> list[str]:
    """Servers whose readiness asks anything but whether the engine lives."""
    paths = {
        name: container["readinessProbe"].get("httpGet", {}).get("path")
        for name, _, container in servers(documents)
    }
    return [name for name, path in paths.items() if path != "/health"]


def abrupt_ends(documents: Sequence[Document]) -> list[str]:
    """Servers that do not drain, or are killed before they have."""
    faults = []
    for name, template, container in servers(documents):
        drain_s = int(flag(container, "--shutdown-timeout") or 0)
        hook = container.get("lifecycle", {}).get("preStop", {})
        pause_s = hook.get("sleep", {}).get("seconds", 0)
        grace_s = template["spec"].get("terminationGracePeriodSeconds", 30)
        if not drain_s or not pause_s:
            faults.append(f"{name}: no drain")
        elif grace_s < pause_s + drain_s + SPARE_S:
            faults.append(f"{name}: {grace_s} s")
    return faults


def blocking_budgets(documents: Sequence[Document]) -> list[str]:
    """Deployments without a disruption budget, or with one that blocks drains of one replica."""
    faults = []
    budgets = of_kind(documents, "PodDisruptionBudget")
    for deployment in of_kind(documents, "Deployment"):
        template = deployment["spec"]["template"]
        own = [one["spec"] for one in budgets if selects(one["spec"]["selector"], template)]
        if [one.get("maxUnavailable") for one in own] != [1]:
            faults.append(name_of(deployment))
    return faults


def open_networks(documents: Sequence[Document]) -> list[str]:
    """Workloads whose traffic, in or out, no policy names."""
    policies = [one["spec"] for one in of_kind(documents, "NetworkPolicy")]
    faults = []
    for name, template in workloads(documents):
        own = [one for one in policies if selects(one["podSelector"], template)]
        both = {kind for one in own for kind in one["policyTypes"]} == {"Ingress", "Egress"}
        if not both or any("from" not in rule for one in own for rule in one["ingress"]):
            faults.append(name)
    return faults


def unwatched_services(documents: Sequence[Document]) -> list[str]:
    """Services that no ServiceMonitor scrapes by a port that they have."""
    watched = of_kind(documents, "ServiceMonitor")
    faults = []
    for service in of_kind(documents, "Service"):
        ports = {port["name"] for port in service["spec"]["ports"]}
        seen = [one["spec"] for one in watched if selects(one["spec"]["selector"], service)]
        if not any(end["port"] in ports for one in seen for end in one["endpoints"]):
            faults.append(name_of(service))
    return faults


def several_owners(documents: Sequence[Document]) -> list[str]:
    """Deployments whose count has no owner, or more than one: a manifest's own number is one."""
    faults = []
    for deployment in of_kind(documents, "Deployment"):
        name = deployment["metadata"]["name"]
        scalers = of_kind(documents, "HorizontalPodAutoscaler") + of_kind(documents, "ScaledObject")
        owners = [one for one in scalers if one["spec"]["scaleTargetRef"]["name"] == name]
        if len(owners) != 1 or "replicas" in deployment["spec"]:
            faults.append(name_of(deployment))
    return faults


def behaviors(documents: Sequence[Document]) -> list[Document]:
    """Return what the autoscalers are told about up and down."""
    made = [one["spec"] for one in of_kind(documents, "HorizontalPodAutoscaler")]
    made += [
        one["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
        for one in of_kind(documents, "ScaledObject")
    ]
    return [one["behavior"] for one in made]


def short_windows(documents: Sequence[Document]) -> list[str]:
    """Scale-down windows that end while a new pod may still load."""
    allowed_s = [
        int(template["metadata"]["annotations"][ALLOWANCE]) for _, template, _ in servers(documents)
    ]
    windows_s = [one["scaleDown"]["stabilizationWindowSeconds"] for one in behaviors(documents)]
    return [f"{window} s" for window in windows_s if window < max(allowed_s)]


def service_links(documents: Sequence[Document]) -> list[str]:
    """Pods that get VLLM_PORT from the Service's name."""
    found = workloads(documents)
    return [name for name, pod in found if pod["spec"].get("enableServiceLinks") is not False]


def private_weights(documents: Sequence[Document]) -> list[str]:
    """Servers that do not read the weights from a claim shared between hosts, read-only."""
    modes = {
        one["metadata"]["name"]: one["spec"]["accessModes"]
        for one in of_kind(documents, "PersistentVolumeClaim")
    }
    faults = []
    for name, template, container in servers(documents):
        mount = mounted(container, "/models")
        volume = volumes(template).get(mount.get("name", ""), {})
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if modes.get(claim) != ["ReadWriteMany"] or mount.get("readOnly") is not True:
            faults.append(name)
    return faults


def unknown_variables(tree: Tree) -> list[str]:
    """Parameters that a container asks for and an overlay does not give."""
    asked = set(_VARIABLE.findall(tree.texts["base/deployment.yaml"]))
    asked |= set(re.findall(r'"\$([A-Z_]{2,})"', tree.texts["base/fetch.sh"]))
    return [
        f"{overlay}: {missing}"
        for overlay in OVERLAYS
        for missing in sorted(asked - set(parameters(tree, overlay)))
    ]


def parameters(tree: Tree, overlay: str) -> dict[str, str]:
    """Return the ConfigMap `model` of an overlay."""
    (model,) = tree.overlay(overlay)["configMapGenerator"]
    assert model["name"] == "model"
    return dict(literal.split("=", 1) for literal in model["literals"])


def unequal_gpus(tree: Tree) -> list[str]:
    """Overlays whose GPUs and tensor-parallel size differ."""
    faults = []
    for overlay in OVERLAYS:
        (patch,) = tree.overlay(overlay)["patches"]
        (change,) = yaml.safe_load(patch["patch"])
        assert change["path"].endswith("/limits/nvidia.com~1gpu")
        if str(change["value"]) != parameters(tree, overlay)["TENSOR_PARALLEL_SIZE"]:
            faults.append(overlay)
    return faults


def wrong_namespaces(tree: Tree) -> list[str]:
    """Overlays that deploy elsewhere than into the namespace that they make."""
    faults = []
    for overlay in OVERLAYS:
        made = tree.one(f"overlays/{overlay}/namespace.yaml")["metadata"]
        restricted = made["labels"].get("pod-security.kubernetes.io/enforce") == "restricted"
        if tree.overlay(overlay)["namespace"] != made["name"] or not restricted:
            faults.append(overlay)
    return faults


def floating_images(tree: Tree) -> list[str]:
    """Overlays whose image has no version, or is not the one that the base names."""
    faults = []
    for overlay in OVERLAYS:
        (image,) = tree.overlay(overlay)["images"]
        fixed = "digest" in image or re.fullmatch(r"v\d+\.\d+\.\d+", image.get("newTag", ""))
        if image["name"] != "vllm" or not fixed:
            faults.append(overlay)
    return faults


def scaled_metric(tree: Tree) -> Document:
    """Return the metric of the HPA."""
    (hpa,) = of_kind(tree.base, "HorizontalPodAutoscaler")
    (metric,) = hpa["spec"]["metrics"]
    external: Document = metric["external"]
    return external


def unserved_metrics(tree: Tree) -> list[str]:
    """Names and labels in which HPA, recording rule, adapter and KEDA differ."""
    wanted = scaled_metric(tree)["metric"]
    name, labels = wanted["name"], wanted["selector"]["matchLabels"]
    (service,) = of_kind(tree.base, "Service")
    (rule,) = tree.one("prometheus-adapter/values.yaml")["rules"]["external"]
    (trigger,) = tree.scaled_object["triggers"]
    checks = {
        "recorded": name in tree.recorded,
        "adapter": rule["name"]["as"] == name and rule["seriesQuery"].startswith(name + "{"),
        "one series": rule["metricsQuery"].startswith("max("),
        "namespace": rule["resources"]["overrides"] == {"namespace": {"resource": "namespace"}},
        "service": labels == {"service": service["metadata"]["name"]},
        "by": all("service" in by for by in grouped(tree)),
        "KEDA": name + "{" in trigger["metadata"]["query"]
        and f'service="{service["metadata"]["name"]}"' in trigger["metadata"]["query"],
    }
    return [check for check, kept in checks.items() if not kept]


def grouped(tree: Tree) -> list[str]:
    """Return what the recorded series are grouped by."""
    return re.findall(r"sum by \(([^)]*)\)", tree.recorded["service:queue_wait_ms:p90"])


def averaged_latency(tree: Tree) -> list[str]:
    """Targets that divide the wait by the replicas."""
    (trigger,) = tree.scaled_object["triggers"]
    kinds = {"HPA": scaled_metric(tree)["target"]["type"], "KEDA": trigger.get("metricType")}
    return [owner for owner, kind in kinds.items() if kind != "Value"]


def target_ms(tree: Tree) -> int:
    """Return the HPA's target, milliseconds."""
    return int(scaled_metric(tree)["target"]["value"])


def wrong_clamps(tree: Tree) -> list[str]:
    """A clamp or a stuck engine's reading other than twice the target; a target too near idle."""
    expression = tree.recorded["service:queue_wait_ms:p90"]
    clamp = re.search(r",\s*(\d+)\s*\)\s*>= 0", expression)
    stuck = re.search(r"or\s+(\d+) \* \(sum", expression)
    checks = {
        "clamp": clamp is not None and int(clamp[1]) == 2 * target_ms(tree),
        "stuck": stuck is not None and int(stuck[1]) == 2 * target_ms(tree),
        # Nearer, and a quiet pool of two never shrinks to one: ceil(2 x quiet / target) is 2.
        "target": target_ms(tree) >= 2 * 0.9 * FIRST_BUCKET_MS,
    }
    return [check for check, kept in checks.items() if not kept]


def invented_zeros(tree: Tree) -> list[str]:
    """Ways for a lost scrape to read as an idle pool."""
    (trigger,) = tree.scaled_object["triggers"]
    faults = [name for name, text in tree.recorded.items() if re.search(r"\bvector\(", text)]
    faults += ["KEDA: null"] if trigger["metadata"].get("ignoreNullValues") != "false" else []
    return faults + (["KEDA: fallback"] if "fallback" in tree.scaled_object else [])


def other_owner_other_rules(tree: Tree) -> list[str]:
    """What KEDA's variant does differently from the HPA."""
    (hpa,) = of_kind(tree.base, "HorizontalPodAutoscaler")
    spec, other = hpa["spec"], tree.scaled_object
    (trigger,) = other["triggers"]
    pairs = {
        "behavior": (spec["behavior"], behaviors([{"kind": "ScaledObject", "spec": other}])[0]),
        "min": (spec["minReplicas"], other["minReplicaCount"]),
        "max": (spec["maxReplicas"], other["maxReplicaCount"]),
        "target": (scaled_metric(tree)["target"]["value"], trigger["metadata"]["threshold"]),
        "owner": (spec["scaleTargetRef"]["name"], other["scaleTargetRef"]["name"]),
    }
    return [what for what, (one, two) in pairs.items() if one != two]


def broken_speculation(tree: Tree) -> list[str]:
    """Overlays whose speculative config is no JSON, or does not speculate with EAGLE-3."""
    faults = []
    for overlay in OVERLAYS:
        config = json.loads(speculative_config(tree, overlay))
        drafts = config["method"] == "eagle3" and config["num_speculative_tokens"] >= 1
        if not drafts or not config["model"]:
            faults.append(overlay)
    return faults


def speculative_config(tree: Tree, overlay: str) -> str:
    """Return the argument as the kubelet makes it."""
    ((_, _, container),) = servers(tree.base)
    text = flag(container, "--speculative-config")
    given = parameters(tree, overlay)
    return _VARIABLE.sub(lambda found: given.get(found[1], found[0]), text)


DocumentRule = Callable[[Sequence[Document]], list[str]]
TreeRule = Callable[[Tree], list[str]]

DOCUMENT_RULES: tuple[DocumentRule, ...] = (
    root_containers,
    missing_gpus,
    small_shared_memory,
    impatient_probes,
    readiness_by_load,
    abrupt_ends,
    blocking_budgets,
    open_networks,
    unwatched_services,
    several_owners,
    short_windows,
    service_links,
    private_weights,
)

TREE_RULES: tuple[TreeRule, ...] = (
    unknown_variables,
    unequal_gpus,
    wrong_namespaces,
    floating_images,
    unserved_metrics,
    averaged_latency,
    wrong_clamps,
    invented_zeros,
    other_owner_other_rules,
    broken_speculation,
)
