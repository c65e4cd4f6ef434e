"""The alert rules: accepted by the real promtool, tested by it, and matched to what is exported."""

import re
from pathlib import Path
from typing import Any

import yaml

from draftgate.watch.exporter import PREFIX
from draftgate.watch.monitor import Alarm
from tests.support.prometheus import RULES, promtool

TESTS = RULES.with_name("draft-acceptance.test.yml")
PAGE = (Path(__file__).parents[2] / "docs" / "watch.md").read_text(encoding="utf-8")


def rules() -> list[dict[str, Any]]:
    """Return every rule of the file."""
    document = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    """Return every alert of the file."""
    return [rule for rule in rules() if "alert" in rule]


def test_promtool_accepts_the_rules() -> None:
    """`promtool check rules` finds them and no fault."""
    assert f"{len(rules())} rules found" in promtool("check", "rules", RULES)


def test_promtool_tests_pass() -> None:
    """`promtool test rules` passes: each alert fires when it should, and resolves."""
    assert "SUCCESS" in promtool("test", "rules", TESTS)


def test_every_alert_has_a_test_that_wants_it_and_one_that_does_not() -> None:
    """Each alert's name stands in the tests with expected alerts or a count, and without."""
    document = yaml.safe_load(TESTS.read_text(encoding="utf-8"))
    asked = [one for test in document["tests"] for one in test.get("alert_rule_test", [])]
    wanted = {one["alertname"] for one in asked if one.get("exp_alerts")}
    wanted |= set(
        re.findall(r'count\(ALERTS\{alertname="(\w+)"', TESTS.read_text(encoding="utf-8"))
    )
    silent = {one["alertname"] for one in asked if not one.get("exp_alerts")}

    names = {rule["alert"] for rule in alerts()}
    assert names - wanted == set()
    assert names - silent == set()


def test_every_alarm_of_the_watch_has_an_alert() -> None:
    """Each value of the label `alarm` is named by a rule."""
    text = " ".join(str(rule["expr"]) for rule in alerts())
    named = set(re.findall(r"\w+", " ".join(re.findall(r'alarm=~?"([\w|]+)"', text))))

    assert named == {alarm.value for alarm in Alarm}
    assert PREFIX + "alarm" in text


def test_every_runbook_is_a_section_of_the_page() -> None:
    """What an alert links to is there, by GitHub's anchors."""
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-")
        for head in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    linked = {rule["annotations"]["runbook"].partition("#")[2] for rule in alerts()}

    assert linked - anchors == set()
