"""What Prometheus is told about a watch."""

import threading
import urllib.request

import pytest

from draftgate.engines.counters import parse_samples
from draftgate.errors import EngineError
from draftgate.watch.exporter import exporting
from draftgate.watch.monitor import Alarm, Monitor, Plan
from draftgate.watch.page import read_page
from tests.support.metrics_pages import Traffic

LABELS = {"model_name": "m", "kind": ""}


def exported(monitor: Monitor) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return what a real scrape of the exporter reads."""
    with (
        exporting(monitor, threading.Lock(), "127.0.0.1", 0) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer,
    ):
        text = answer.read().decode()
    return {
        name: [(dict(labels), value) for labels, value in samples]
        for name, samples in parse_samples(text).items()
    }


def watched(windows: int, last: float = 1.5) -> Monitor:
    """Return a monitor after some windows and five of another acceptance."""
    monitor, traffic = Monitor(Plan()), Traffic(1)
    for number in range(windows + 6):
        traffic.per_step = last if number > windows else 1.5
        monitor.tick(read_page(traffic.serve(), "kind"), 10.0, "now")
    return monitor


def test_fresh_watch_exports_that_it_is_up() -> None:
    """Before the first reading nothing is known but that."""
    found = exported(Monitor(Plan()))

    assert found["draftgate_watch_up"] == [({}, 1.0)]
    assert found["draftgate_watch_scrape_success"] == [({}, 0.0)]
    assert "draftgate_watch_alarm" not in found


def test_learning_watch_has_no_reference() -> None:
    """What is not known is absent, never 0."""
    found = exported(watched(20))

    assert found["draftgate_watch_learning_windows"] == [(LABELS, 25.0)]
    assert "draftgate_watch_reference_mean_acceptance_length" not in found
    assert "draftgate_watch_evidence_ratio" not in found


def test_drop_is_exported_with_its_numbers() -> None:
    """Length, rate, reference, evidence and the alarm itself."""
    found = exported(watched(60, last=1.0))

    assert found["draftgate_watch_mean_acceptance_length"][0][1] == pytest.approx(2.0, abs=0.1)
    assert found["draftgate_watch_acceptance_ratio"][0][1] == pytest.approx(0.25, abs=0.03)
    (reference,) = found["draftgate_watch_reference_mean_acceptance_length"]
    assert reference[1] == pytest.approx(2.5, abs=0.1)
    evidence = {labels["shift"]: value for labels, value in found["draftgate_watch_evidence_ratio"]}
    assert evidence["drop"] >= 1.0
    assert evidence["rise"] == 0.0
    alarms = {labels["alarm"]: value for labels, value in found["draftgate_watch_alarm"]}
    assert alarms.keys() == {alarm.value for alarm in Alarm}
    assert (alarms["drop"], alarms["rise"], alarms["vanished"]) == (1.0, 0.0, 0.0)
    assert found["draftgate_watch_windows_total"] == [(LABELS, 65.0)]


def test_failed_reading_is_exported() -> None:
    """The gauge falls and the quiet time goes on."""
    monitor = watched(5)
    monitor.tick(None, 10.0, "now")

    found = exported(monitor)
    assert found["draftgate_watch_scrape_success"] == [({}, 0.0)]
    assert found["draftgate_watch_scrape_failures_total"] == [({}, 1.0)]
    assert found["draftgate_watch_counters_quiet_seconds"] == [(LABELS, 10.0)]


def test_address_in_use_is_an_error() -> None:
    """Two watches on one port: the second says which address and what to do."""
    monitor = Monitor(Plan())
    with (
        exporting(monitor, threading.Lock(), "127.0.0.1", 0) as port,
        pytest.raises(EngineError, match="--listen"),
        exporting(monitor, threading.Lock(), "127.0.0.1", port),
    ):
        pass
