"""The operator's own metrics, as a Prometheus server would read them."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.parser import text_string_to_metric_families

import reprieve
from kubeworld.units.durations import SECOND
from reprieve.engine.diagnosis.reasons import REASONS, Reason
from reprieve.engine.plan import Plane
from reprieve.telemetry.metrics import IdleGpuSeconds, Metrics, Remembered
from reprieve.units.ids import PlanId


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_two_operators_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.count_plan(PlanId("p"), "idle", "committed")
    labels = {"plane": "idle", "outcome": "committed"}
    assert value(one, "reprieve_plans_total", **labels) == 1
    assert value(other, "reprieve_plans_total", **labels) is None


def test_plans_and_preemptions_carry_the_plan_id_as_exemplar() -> None:
    metrics = Metrics()
    metrics.count_plan(PlanId("0123456789abcdef"), "idle", "committed")
    metrics.count_preemption(PlanId("0123456789abcdef"), "idle", "oldest-idle-first", "evicted")
    text = openmetrics(metrics.registry).decode()  # type: ignore[no-untyped-call]
    for family in ("reprieve_plans_total", "reprieve_preemptions_total"):
        assert re.search(rf'{family}{{.*}} 1.0 # {{plan="0123456789abcdef"}} 1.0', text)


def test_a_phase_without_workloads_is_no_longer_shown() -> None:
    metrics = Metrics()
    metrics.set_workloads({"Active": 3, "Idle": 1})
    metrics.set_workloads({"Active": 2})
    assert value(metrics, "reprieve_gpu_workloads", phase="Active") == 2
    assert value(metrics, "reprieve_gpu_workloads", phase="Idle") is None


def test_idle_gpu_seconds_are_gpus_times_the_time_they_were_held() -> None:
    metrics = Metrics()
    idle = IdleGpuSeconds(metrics)
    idle.observe({("team", "amd.com/gpu"): 4}, 100 * SECOND)
    idle.observe({("team", "amd.com/gpu"): 1}, 110 * SECOND)
    idle.observe({}, 115 * SECOND)
    idle.observe({}, 500 * SECOND)
    labels = {"namespace": "team", "resource": "amd.com/gpu"}
    assert value(metrics, "reprieve_idle_gpu_seconds_total", **labels) == 45


def test_no_file_outside_of_telemetry_names_a_metric() -> None:
    root = Path(reprieve.__file__).parent
    making = re.compile(r"\b(Counter|Gauge|Histogram|Summary|Info)\(\s*f?\"")
    offenders = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] not in ("local", "telemetry")
        and making.search(path.read_text())
    ]
    assert offenders == []


def test_every_metric_of_ours_has_the_prefix_and_a_help_text() -> None:
    metrics = Metrics()
    families = [
        family
        for family in metrics.registry.collect()
        if not family.name.startswith(("process_", "python_"))
    ]
    assert len(families) >= 18
    assert [f.name for f in families if not f.name.startswith("reprieve_")] == []
    assert [f.name for f in families if not f.documentation.endswith(".")] == []


def test_the_text_can_be_read_by_a_prometheus_parser() -> None:
    from prometheus_client import generate_latest

    metrics = Metrics()
    metrics.leader.set(1)
    text = generate_latest(metrics.registry).decode()
    found = {family.name for family in text_string_to_metric_families(text)}
    assert {"reprieve_leader", "reprieve_build_info", "process_cpu_seconds"} <= found


def test_who_waits_is_counted_by_reason_and_those_of_nobody_are_zero() -> None:
    metrics = Metrics()
    metrics.show_waiting(Plane.SCHEDULING, {Reason.FULL: 2, Reason.BACKOFF: 1})
    metrics.show_waiting(Plane.SCHEDULING, {Reason.FULL: 3})
    found = {
        sample.labels["reason"]: sample.value
        for family in metrics.registry.collect()
        if family.name == "reprieve_waiting_units"
        for sample in family.samples
    }
    expected = dict.fromkeys((str(each) for each in REASONS[Plane.SCHEDULING]), 0)
    assert found == {**expected, "Full": 3}


def test_rows_of_tables_of_one_name_are_shown_together_as_they_are_now() -> None:
    metrics, one, other = Metrics(), [1], [1, 2]
    for table in (one, other):
        metrics.remembers(Remembered.NAMED_VICTIMS, table.__len__)
    one.append(2)
    assert value(metrics, "reprieve_remembered_rows", table="named-victims") == 4
    assert value(metrics, "reprieve_remembered_rows", table="displacements") is None
