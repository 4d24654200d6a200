"""The quota plane's metrics: Kueue's names, labels and buckets, and none of who is gone."""

from __future__ import annotations

import re
from collections import defaultdict
from math import isnan, nan
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from reprieve.telemetry.quota import Place, QuotaMetrics

OBSERVED = Path(__file__).parents[3] / "shared" / "observed"
PLACE = Place("cq", "team", "door", "high")
# What no recording shows, since nothing of the kind happened there.
OTHER = {
    "kueue_admission_checks_wait_time_seconds": {"cluster_queue", "priority_class"},
    "kueue_local_queue_admission_checks_wait_time_seconds": {"name", "namespace", "priority_class"},
    "kueue_execution_time_seconds": {"cluster_queue", "priority_class"},
    "kueue_local_queue_execution_time_seconds": {"name", "namespace", "priority_class"},
    "kueue_admission_cycle_preemption_skips": {"cluster_queue"},
    "kueue_preemption_target_recomputations_total": {"cluster_queue", "result"},
    "kueue_pod_scheduling_gate_removal_seconds": {"name", "cluster_queue", "is_group"},
    "kueue_cohort_weighted_share": {"cohort"},
    "kueue_cohort_info": {"cohort", "parent_cohort", "root_cohort"},
    "kueue_local_queue_finished_workloads_total": {"name", "namespace", "priority_class"},
    "kueue_local_queue_finished_workloads": {"name", "namespace"},
    "kueue_local_queue_admission_fair_sharing_usage": {"name", "namespace", "cluster_queue"},
}


def busy(registry: CollectorRegistry, *, local_queues: bool = True) -> QuotaMetrics:
    """Return metrics to which everything has happened once."""
    metrics = QuotaMetrics(registry, local_queues=local_queues)
    metrics.cycle(0.02, admitted=True)
    metrics.skipped(["cq"], {"cq": 2})
    metrics.recomputed("cq", "new_targets", 3)
    metrics.made("Job", 0.3)
    metrics.ungated("kueue.x-k8s.io/admission", "cq", group=True, seconds=0.2)
    metrics.reserved(PLACE, 3.0)
    metrics.admitted(PLACE, 4.0, 1.0, ["team", "root"])
    metrics.ready(PLACE, 9.0, 5.0)
    metrics.ended(PLACE, 60.0)
    metrics.preempted("cq", "InClusterQueue")
    metrics.evicted(PLACE, "Preempted", first=True, ready_for=7.0)
    metrics.released("cq", "Preempted", -1.0)
    amount = ("gpu", "nvidia.com/gpu")
    metrics.show(
        "queue",
        "cq",
        {
            ("pending_workloads", ("cq", "active")): 1,
            ("pending_scheduling_hashes", ("cq", "active")): 1,
            ("finished_workloads", ("cq",)): 1,
            ("reserving_active_workloads", ("cq",)): 1,
            ("admitted_active_workloads", ("cq",)): 1,
            ("unadmitted_workloads", ("cq", "NoReservation", "WaitingForQuota")): 1,
            ("cluster_queue_status", ("cq", "active")): 1,
            ("cluster_queue_info", ("cq", "team", "root")): 1,
            ("cluster_queue_resource_pending", ("cq", "cpu")): 1,
            ("cluster_queue_weighted_share", ("cq", "team")): nan,
            **{
                (f"cluster_queue_{name}", ("team", "cq", *amount)): 1
                for name in (
                    "resource_reservation",
                    "resource_usage",
                    "nominal_quota",
                    "borrowing_limit",
                    "lending_limit",
                )
            },
        },
    )
    metrics.show(
        "queue",
        "team/door",
        {
            ("local_queue_pending_workloads", ("door", "team", "active")): 1,
            ("local_queue_finished_workloads", ("door", "team")): 1,
            ("local_queue_reserving_active_workloads", ("door", "team")): 1,
            ("local_queue_admitted_active_workloads", ("door", "team")): 1,
            ("local_queue_unadmitted_workloads", ("door", "team", "cq", "a", "b")): 1,
            ("local_queue_status", ("door", "team", "True")): 1,
            ("local_queue_resource_reservation", ("door", "team", *amount)): 1,
            ("local_queue_resource_usage", ("door", "team", *amount)): 1,
            ("local_queue_admission_fair_sharing_usage", ("door", "team", "cq")): 1,
        },
    )
    metrics.show(
        "cohort",
        "team",
        {
            ("cohort_weighted_share", ("team",)): 1,
            ("cohort_info", ("team", "root", "root")): 1,
            ("cohort_subtree_quota", ("team", *amount)): 1,
            ("cohort_subtree_resource_reservations", ("team", *amount)): 1,
            ("cohort_subtree_admitted_active_workloads", ("team",)): 1,
        },
    )
    return metrics


def families(text: str) -> dict[str, set[str]]:
    """Return the labels of each family, without those that all have."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in text.splitlines():
        name, _, rest = line.partition("{")
        if not name.startswith("kueue_") or name.endswith("_created"):
            continue
        labels = set(re.findall(r'(\w+)="', rest)) - {"replica_role", "le"}
        found[re.sub(r"_(bucket|sum|count)$", "", name)] = labels
    return found


def test_names_and_labels_are_those_of_the_real_controller() -> None:
    recordings = sorted(OBSERVED.glob("kueue-*.metrics.txt"))
    if not recordings:
        pytest.skip("the recordings kueue-*.metrics.txt are not here")
    real: dict[str, set[str]] = dict(OTHER)
    for file in recordings:
        real.update(families(file.read_text()))
    registry = CollectorRegistry()
    busy(registry)
    assert families(generate_latest(registry).decode()) == real


def test_buckets_are_those_of_the_real_controller() -> None:
    registry = CollectorRegistry()
    busy(registry)
    text = generate_latest(registry).decode()
    buckets: dict[str, list[float]] = defaultdict(list)
    for name, bound in re.findall(r'^kueue_(\w+)_bucket{(?:.*,)?le="([^"]+)"', text, re.MULTILINE):
        buckets[name].append(float(bound))
    doubled = [1.0, *(2.5 * 2**n for n in range(15))]
    infinite = [float("inf")]
    fast = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
    # The reference gives the wait for admission at a LocalQueue two buckets less.
    longer = (
        "admission_wait_time_seconds",
        "execution_time_seconds",
        "local_queue_execution_time_seconds",
    )
    for name, found in buckets.items():
        wanted = doubled[:14]
        if name in longer:
            wanted = doubled
        elif name in ("admission_attempt_duration_seconds", "pod_scheduling_gate_removal_seconds"):
            wanted = fast
        elif name == "workload_creation_latency_seconds":
            wanted = [0.01 * 2**n for n in range(11)]
        assert found == [*wanted, *infinite], name
    assert len(buckets) == 17


def test_no_series_is_left_of_a_queue_or_cohort_that_is_gone() -> None:
    registry = CollectorRegistry()
    metrics = busy(registry)
    metrics.forget_queue("cq")
    assert not re.search(r'(cluster_queue|queue)="cq"', _without_doors(registry))
    metrics.forget_local_queue("team", "door")
    metrics.forget_cohort("team")
    metrics.forget_cohort("root")
    left = set(families(generate_latest(registry).decode()))
    assert left == {
        "kueue_admission_attempts_total",
        "kueue_admission_attempt_duration_seconds",
        "kueue_build_info",
        "kueue_workload_creation_latency_seconds",
    }


def _without_doors(registry: CollectorRegistry) -> str:
    lines = generate_latest(registry).decode().splitlines()
    return "\n".join(line for line in lines if "kueue_local_queue_" not in line)


def test_what_an_owner_does_not_show_any_more_is_gone() -> None:
    registry = CollectorRegistry()
    metrics = QuotaMetrics(registry)
    for cohort in ("old", "new"):
        metrics.show("queue", "cq", {("cluster_queue_weighted_share", ("cq", cohort)): nan})
    (family,) = [
        each
        for each in text_string_to_metric_families(generate_latest(registry).decode())
        if each.name == "kueue_cluster_queue_weighted_share"
    ]
    (sample,) = family.samples
    assert sample.labels == {"cluster_queue": "cq", "cohort": "new", "replica_role": "leader"}
    assert isnan(sample.value)


def test_local_queues_have_no_series_where_they_are_switched_off() -> None:
    registry = CollectorRegistry()
    busy(registry, local_queues=False)
    text = generate_latest(registry).decode()
    assert "kueue_local_queue_" not in text
    assert 'kueue_admitted_workloads_total{cluster_queue="cq"' in text
