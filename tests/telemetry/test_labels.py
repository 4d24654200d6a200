"""Labels of metrics: what values each takes, and that none takes what tenants make up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry

from kubeworld.units.durations import SECOND
from reprieve.telemetry.capped_names import OTHER, CappedNames
from reprieve.telemetry.gangs import GangMetrics
from reprieve.telemetry.metrics import IdleGpuSeconds, Metrics
from reprieve.telemetry.quota import QuotaMetrics
from reprieve.telemetry.quota_series import COUNTERS, GAUGES, HISTOGRAMS
from reprieve.telemetry.scheduling import SchedulingMetrics

#: Values come from the code, the build or the API's own closed sets.
CLOSED: Final = {
    *("phase", "plane", "outcome", "rule", "reason", "state", "method", "code", "logger", "end"),
    *("table", "result", "queue", "type", "event", "preemptor", "status", "extension_point"),
    *("job_size", "generation", "version", "implementation", "major", "minor", "patchlevel"),
    *("git_version", "git_commit", "build_date", "go_version", "compiler", "platform"),
    *("underlying_cause", "is_group", "job_kind", "replica_role", "active", "le"),
}
#: Values are what administrators configure or make: flags, files and cluster-wide objects.
CONFIGURED: Final = {
    *("source", "resource", "profile", "plugin", "cluster_queue", "preempting_cluster_queue"),
    *("cohort", "parent_cohort", "root_cohort", "flavor", "priority_class", "budget"),
}
#: Values are names of tenants' work, of which so many are shown as are asked for.
CAPPED: Final = {"jobName", "first", "second"}
#: Values are those of LocalQueues and namespaces: their series end with them, or are capped.
OF_NAMESPACES: Final = {"namespace", "name"}


def labels() -> Iterator[tuple[str, str]]:
    metrics = Metrics()
    SchedulingMetrics(metrics.registry)
    GangMetrics(metrics.registry)
    QuotaMetrics(metrics.registry)
    for collector in metrics.registry._collector_to_names:
        for label in getattr(collector, "_labelnames", ()):
            yield str(getattr(collector, "_name", collector)), label
    named = {name: names for name, (_, names) in [*COUNTERS.items(), *GAUGES.items()]}
    named |= {name: names for name, (_, names, _) in HISTOGRAMS.items()}
    for name, names in named.items():
        for label in names:
            yield name, label


def test_every_label_of_every_metric_is_of_a_known_kind() -> None:
    known = CLOSED | CONFIGURED | CAPPED | OF_NAMESPACES
    found = list(labels())
    assert len(found) >= 100
    assert [each for each in found if each[1] not in known] == []


def test_what_names_a_namespace_is_a_local_queue_or_capped() -> None:
    of_namespaces = {name for name, label in labels() if label in OF_NAMESPACES}
    assert {name for name in of_namespaces if not name.startswith("local_queue_")} == {
        "reprieve_idle_gpu_seconds",
        "pod_scheduling_gate_removal_seconds",  # the gate's name
    }
    metrics = Metrics()
    idle = IdleGpuSeconds(metrics)
    held = {(f"ns-{number}", "amd.com/gpu"): 1 for number in range(1_500)}
    idle.observe(held, 0)
    idle.observe(held, 10 * SECOND)
    (family,) = metrics.idle_gpu_seconds.collect()
    series = {s.labels["namespace"]: s.value for s in family.samples if s.name.endswith("_total")}
    assert len(series) == 1_001 and series[OTHER] == 5_000


def test_the_first_names_are_shown_and_all_others_are_one() -> None:
    names = CappedNames(2)
    assert [names.of(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]
    assert CappedNames(0).of("a") == OTHER


def test_gangs_that_are_not_to_be_named_have_one_series_together() -> None:
    for most, series in ((0, 1), (5, 6)):
        metrics = Metrics(most)
        gangs = GangMetrics(CollectorRegistry())
        for number in range(100):
            name = metrics.names.of(f"team/gang-{number}")
            gangs.preemption_seconds.labels(name, "Success").observe(1)
        (family,) = gangs.preemption_seconds.collect()
        assert len({each.labels["jobName"] for each in family.samples}) == series
