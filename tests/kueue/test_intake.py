"""Kueue's objects into the rows that the quota plane decides on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeworld.units.instants import parse_instant
from reprieve.api import kueue
from reprieve.engine.quota.assigning.request_rules import RequestRules, Transformation
from reprieve.engine.quota.holdings.amounts import UNLIMITED
from reprieve.engine.quota.model import (
    Check,
    Eviction,
    FlavorQuotas,
    Policy,
    Quota,
    Reason,
    ResourceGroup,
)
from reprieve.intake.quota import (
    Unusable,
    cluster_queue_row,
    cohort_row,
    local_queue_row,
    resource_flavor_row,
)
from reprieve.intake.quota_limits import LimitRange, container_limits
from reprieve.intake.quota_requests import amount_of, pod_requests
from reprieve.intake.quota_workloads import PodSetRows, workload_row
from tests.conformance import quota_objects as oracle
from tests.kueue.objects import (
    SINCE,
    Json,
    admission,
    cluster_queue,
    condition,
    group,
    kueue_object,
    pod_set,
    reserved,
    workload,
)

VECTORS = Path(__file__).resolve().parents[2].parent / "shared" / "conformance" / "quota"


def read(kind: type[Any], obj: Json) -> Any:
    return msgspec.json.decode(json.dumps(obj).encode(), type=kind)


def queue_row(obj: Json, *checks: str) -> Any:
    return cluster_queue_row(read(kueue.ClusterQueue, obj), set(checks))


def work_row(obj: Json, rows: PodSetRows | None = None, **more: Any) -> Any:
    return workload_row(read(kueue.Workload, obj), rows or PodSetRows(), **more)


def requests(spec: Json) -> dict[str, int]:
    return pod_requests(read(kueue.PodSpec, spec))


def container(asked: Json, policy: str | None = None, limits: Json | None = None) -> Json:
    found: Json = {"name": "c", "resources": {"requests": asked, "limits": limits or {}}}
    return found if policy is None else {**found, "restartPolicy": policy}


def test_quotas_keep_their_order_and_limits() -> None:
    obj = cluster_queue(
        "a",
        group({"cpu": "1500m", "nvidia.com/gpu": 8}, "a100", lendingLimit=1),
        group({"memory": "64Gi"}, "any", borrowingLimit="0"),
        cohortName="all",
    )
    row = queue_row(obj)
    assert row.cohort == "all"
    quotas = {"cpu": Quota(1500, None, 1000), "nvidia.com/gpu": Quota(8, None, 1)}
    assert row.groups == (
        ResourceGroup(("cpu", "nvidia.com/gpu"), (FlavorQuotas("a100", quotas),)),
        ResourceGroup(("memory",), (FlavorQuotas("any", {"memory": Quota(64 * 2**30, 0)}),)),
    )


def test_no_selector_lets_no_namespace_in_and_an_empty_one_all() -> None:
    assert queue_row(cluster_queue()).selector is None
    selector = queue_row(cluster_queue(namespaceSelector={})).selector
    assert selector is not None and selector.matches({})
    labels = {"matchLabels": {"team": "a"}}
    selector = queue_row(cluster_queue(namespaceSelector=labels)).selector
    assert [selector.matches({"team": t}) for t in ("a", "b")] == [True, False]


def test_checks_that_are_not_active_are_named() -> None:
    rules = [{"name": "budget"}, {"name": "nodes", "onFlavors": ["spot"]}]
    obj = cluster_queue(admissionChecksStrategy={"admissionChecks": rules})
    assert [
        queue_row(obj, *active).unready_checks for active in ([], ["budget"], ["budget", "nodes"])
    ] == [("budget", "nodes"), ("nodes",), ()]
    assert queue_row(obj).checks_on_flavors == {"budget": (), "nodes": ("spot",)}


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (cluster_queue(stopPolicy="Stop"), "spec.stopPolicy"),
        (
            cluster_queue(preemption={"withinClusterQueue": "All"}),
            "spec.preemption.withinClusterQueue",
        ),
        (
            cluster_queue("a", group({"cpu": -1})),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
        ),
        (
            cluster_queue("a", group({"cpu": "much"})),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
        ),
        (cluster_queue(fairSharing={"weight": "-1"}), "spec.fairSharing.weight"),
        (cluster_queue(fairSharing={"weight": "heavy"}), "spec.fairSharing.weight"),
    ],
)
def test_a_field_that_cannot_be_meant_is_named(obj: Json, field: str) -> None:
    with pytest.raises(Unusable) as raised:
        queue_row(obj)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("weight", "value"),
    [
        (0, 0.0),
        ("500m", 0.5),
        (3, 3.0),
        ("1e3", 1000.0),
        ("1E3", 1000.0),
        ("1e-6", 1e-6),
        ("+.5", 0.5),
        ("3E", 3e18),
        ("2Ki", 2048.0),
        ("1.5Ki", 1536.0),
    ],
)
def test_a_weight_is_any_quantity(weight: Any, value: float) -> None:
    cohort = kueue_object("Cohort", "all", {"fairSharing": {"weight": weight}})
    assert cohort_row(read(kueue.Cohort, cohort)).weight == value


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "0.0001", 1),
        ("memory", "1.5", 2),
        ("memory", "9Ei", UNLIMITED),
        ("cpu", "1e40", UNLIMITED),
        ("cpu", "-1e40", -(2**63)),
    ],
)
def test_amounts_are_whole_and_stay_in_range(resource: str, text: str, amount: int) -> None:
    assert amount_of(resource, text) == amount


def test_init_containers_count_as_the_most_that_runs_at_once() -> None:
    spec = {
        "containers": [container({"cpu": "1"}), container({"cpu": "500m"})],
        "initContainers": [
            container({"cpu": "2"}),
            container({"cpu": "250m"}, "Always"),
            container({"cpu": "3", "memory": "1Gi"}),
        ],
        "overhead": {"cpu": "10m"},
    }
    assert requests(spec) == {"cpu": 3260, "memory": 2**30}


def test_a_limit_without_a_request_is_asked_for() -> None:
    spec = {"containers": [container({"cpu": "1"}, limits={"cpu": "2", "x.com/gpu": 1})]}
    assert requests(spec) == {"cpu": 1000, "x.com/gpu": 1}


def test_requests_of_the_pod_replace_those_of_containers() -> None:
    spec = {
        "containers": [container({"cpu": "1", "x.com/gpu": 1})],
        "resources": {"requests": {"cpu": "4", "x.com/gpu": 9}},
    }
    assert requests(spec) == {"cpu": 4000, "x.com/gpu": 1}


def test_the_overhead_of_the_runtime_class_counts_unless_the_pod_has_its_own() -> None:
    obj = workload()
    obj["spec"]["podSets"][0]["template"]["spec"]["runtimeClassName"] = "sandbox"
    rows = PodSetRows(overheads={"sandbox": {"cpu": "100m"}})
    assert work_row(obj, rows).pod_sets[0].requests == {"cpu": 1100}
    obj["spec"]["podSets"][0]["template"]["spec"]["overhead"] = {"cpu": "1m"}
    assert work_row(obj, rows).pod_sets[0].requests == {"cpu": 1001}


def test_a_workload_with_an_unreadable_request_says_so_and_others_go_on() -> None:
    rows = PodSetRows()
    row = work_row(workload("bad", pod_set(), pod_set("b", cpu="lots")), rows)
    assert row.pod_sets == ()
    where = "spec.podSets[1].template.spec.containers[0].resources.requests[cpu]: 'lots'"
    assert row.invalid.startswith(where)
    assert work_row(workload(), rows).invalid == ""


def test_a_namespace_gives_defaults_and_bounds() -> None:
    item = {
        "type": "Container",
        "max": {"cpu": "2"},
        "min": {"memory": "1Gi"},
        "default": {"cpu": "2"},
        "defaultRequest": {"cpu": "500m", "memory": "1Gi"},
    }
    strict = {"type": "Container", "max": {"cpu": "1500m"}, "defaultRequest": {"cpu": "1"}}
    pods = {"type": "Pod", "max": {"cpu": "4"}}
    limits = container_limits(
        read(LimitRange, {"metadata": {"name": name}, "spec": {"limits": items}})
        for name, items in (("b", [strict]), ("a", [item, pods]))
    )
    rows = PodSetRows(limits=limits)
    bare = workload()
    bare["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = {}
    row = work_row(bare, rows)
    assert (row.invalid, row.pod_sets[0].requests) == ("", {"cpu": 500, "memory": 2**30})
    at = "spec.podSets[0].template.spec.containers[0]: Invalid value: "
    assert work_row(workload("w", pod_set(cpu="1600m")), rows).invalid == (
        f"resources didn't satisfy LimitRange constraints: {at}"
        '["cpu"]: requests must not be above the limitRange max'
    )
    assert work_row(workload("w", pod_set(cpu="3")), rows).invalid == (
        f'resources validation failed: {at}["cpu"]: requests must not exceed its limits'
    )


def test_requests_of_a_whole_pod_that_leaves_them_out_are_those_of_its_containers() -> None:
    items = [{"type": "Container", "defaultRequest": {"cpu": "500m"}}]
    limits = container_limits([read(LimitRange, {"spec": {"limits": items}})])
    rows, obj = PodSetRows(limits=limits), workload()
    spec = obj["spec"]["podSets"][0]["template"]["spec"]
    spec["containers"] = [container({"cpu": "1"}), container({})]
    spec["resources"] = {"limits": {"cpu": "4", "memory": "1Gi"}}
    asked = work_row(obj, rows).pod_sets[0].requests
    # The pod's limit stands in for what no container requests.
    assert asked == {"cpu": 1500, "memory": 2**30}


def test_a_namespace_bounds_what_a_whole_pod_asks_for() -> None:
    items = [
        {"type": "Pod", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}},
        {"type": "Pod", "max": {"cpu": "3"}, "min": {"memory": "1Mi"}},
        {"type": "PersistentVolumeClaim", "max": {"cpu": "1m"}},
    ]
    limits = container_limits([read(LimitRange, {"spec": {"limits": items}})])
    rows, obj = PodSetRows(limits=limits), workload()
    spec = obj["spec"]["podSets"][0]["template"]["spec"]
    spec["containers"] = [container({"cpu": "1500m"}), container({"cpu": "500m"})]
    assert work_row(obj, rows).invalid == ""
    spec["containers"].append(container({"cpu": "1m", "memory": "1023Mi"}))
    at = "spec.podSets[0].template.spec: Invalid value: "
    assert work_row(obj, rows).invalid == (
        f"resources didn't satisfy LimitRange constraints: "
        f'[{at}["cpu"]: requests must not be above the limitRange max, '
        f'{at}["memory"]: requests must not be below the limitRange min]'
    )


def test_pod_sets_that_say_the_same_are_one_row() -> None:
    rows = PodSetRows()
    first, second, third = (
        work_row(workload(name, pod_set(cpu=cpu)), rows).pod_sets[0]
        for name, cpu in (("a", "1"), ("b", "1"), ("c", "2"))
    )
    assert first is second
    assert third.requests == {"cpu": 2000}


def test_a_status_is_read_whole() -> None:
    obj = workload(priority=7, active=False, preemptionGates=[{"name": "a"}, {"name": "b"}])
    obj["metadata"] |= {
        "uid": "u",
        "creationTimestamp": SINCE,
        "labels": {"kueue.x-k8s.io/job-uid": "j"},
        "annotations": {
            "kueue.x-k8s.io/priority-boost": "-3",
            "kueue.x-k8s.io/admission-gated-by": "x.com/a",
        },
    }
    obj["status"] = reserved(
        conditions=[
            condition("QuotaReserved"),
            condition("Evicted", reason="Preempted"),
            condition("Preempted", reason="InCohortReclamation"),
            condition("Requeued", "False"),
        ],
        admission=admission(2, "2500m"),
        requeueState={"count": 2, "requeueAt": SINCE},
        reclaimablePods=[{"name": "main", "count": 1}],
        admissionChecks=[
            {"name": "c", "state": "Ready", "lastTransitionTime": SINCE, "message": ""}
        ],
        preemptionGates=[{"name": "a", "position": "Open"}, {"name": "b", "position": "Closed"}],
    )
    row = work_row(obj, waits_for_pods=True, min_runtimes_s=(60, 0))
    since = parse_instant(SINCE)
    assert row.admission.pod_sets[0].usage == {"cpu": 2500}
    assert row.admission.pod_sets[0].count == 2
    assert (row.uid, row.job_uid, row.queue, row.key) == ("u", "j", "default/door", "default/work")
    assert (row.priority, row.boost, row.active, row.admission_gated) == (7, -3, False, True)
    assert (row.created, row.reserved_at, row.requeue_at) == (since, since, since)
    assert row.evicted == Eviction("Preempted", since)
    assert row.preempted == Eviction(Reason.IN_COHORT_RECLAMATION, since)
    assert (row.requeued, row.pods_ready, row.finished) == (False, False, False)
    assert (row.reclaimable, row.checks) == ({"main": 1}, {"c": Check.READY})
    assert (row.closed_gates, row.preempt_min_runtime_s) == (("b",), 60)


def test_a_status_survives_being_written_back() -> None:
    status = reserved(
        conditions=[{**condition("QuotaReserved"), "observedGeneration": 3}],
        schedulingStats={"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]},
        unhealthyNodes=[{"name": "n"}],
        accumulatedPastExecutionTimeSeconds=3,
        resourceRequests=[{"name": "main", "resources": {"cpu": "1"}}],
    )
    found = read(kueue.WorkloadStatus, status)
    assert json.loads(msgspec.json.encode(found)) == status


def test_excluded_resources_are_dropped_and_others_stand_for_more() -> None:
    rules = RequestRules(
        ("example.com/",),
        {
            "nvidia.com/mig-1g.5gb": Transformation({"credits": Fraction(5), "mem": Fraction(5)}),
            "nvidia.com/mig-2g.10gb": Transformation(
                {"credits": Fraction(15), "mem": Fraction(10)}, retain=False
            ),
        },
    )
    asked = {
        "cpu": 1000,
        "example.com/x": 3,
        "nvidia.com/mig-1g.5gb": 2,
        "nvidia.com/mig-2g.10gb": 1,
    }
    assert rules.apply(asked) == {
        "cpu": 1000,
        "nvidia.com/mig-1g.5gb": 2,
        "credits": 25,
        "mem": 20,
    }


def test_a_transformation_multiplies_by_what_is_requested_too_and_never_goes_below_zero() -> None:
    rules = RequestRules(
        (),
        {
            "memory-per-gpu": Transformation({"mem": Fraction(1)}, "gpu", retain=False),
            "gpu": Transformation({"cpu": Fraction(-1)}),
        },
    )
    assert rules.apply({"gpu": 4, "memory-per-gpu": 10, "cpu": 2000}) == {
        "gpu": 4,
        "cpu": 2000,
        "mem": 40,
    }
    assert rules.apply({"memory-per-gpu": 10}) == {"mem": 10}


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9)))
def test_no_rules_change_nothing(asked: dict[str, int]) -> None:
    assert RequestRules().apply(asked) == asked


def cases() -> Iterator[Json]:
    for path in sorted(VECTORS.glob("Test*.json")):
        document = json.loads(path.read_text())
        for case in document["cases"] if isinstance(document, dict) else document:
            yield case.get("input", case)


def objects(node: Any, keys: tuple[str, ...]) -> Iterator[Json]:
    """Yield what stands in lists under one of these names, anywhere."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in keys and isinstance(value, list):
                yield from (each for each in value if isinstance(each, dict))
            yield from objects(value, keys)
    elif isinstance(node, list):
        for each in node:
            yield from objects(each, keys)


@pytest.mark.skipif(not VECTORS.is_dir(), reason="no vectors in ../shared/conformance/quota")
def test_objects_of_the_vectors_are_read_as_the_vectors_mean_them() -> None:
    rows = PodSetRows()
    read_as_meant: Counter[str] = Counter()
    for case in cases():
        for each in objects(case, ("workloads", "objects", "admitted")):
            if "podSets" not in (each.get("spec") or {}):
                continue
            ranges = case.get("limitRanges") or []
            namespace = (each.get("metadata") or {}).get("namespace") or ""
            meant = oracle.workload(each, ranges)
            limits = container_limits(
                read(LimitRange, one)
                for one in ranges
                if (one["metadata"].get("namespace") or "") == namespace
            )
            row = work_row(each, PodSetRows(limits=limits) if ranges else rows)
            read_as_meant["invalid"] += meant.invalid != ""
            # The vectors have objects that were never created.
            assert replace(row, created=meant.created) == meant
            read_as_meant["workload"] += 1
        for each in objects(case, ("clusterQueues",)):
            old = oracle.cluster_queue(each)
            spec = json.dumps(each["spec"])
            policies = (old.preemption.within_cluster_queue, old.preemption.reclaim_within_cohort)
            # Neither is stored: an unset policy, and a word of v1beta1.
            if Policy.UNSET in policies or '"Borrow"' in spec or '"Preempt"' in spec:
                continue
            assert queue_row(each, *old.checks) == old
            read_as_meant["queue"] += 1
        for each in objects(case, ("resourceFlavors",)):
            assert resource_flavor_row(read(kueue.ResourceFlavor, each)) == oracle.flavor(each)
            read_as_meant["flavor"] += 1
        for each in objects(case, ("localQueues",)):
            assert local_queue_row(read(kueue.LocalQueue, each)) == oracle.local_queue(each)
            read_as_meant["door"] += 1
        for each in objects(case, ("cohorts",)):
            assert cohort_row(read(kueue.Cohort, each)) == oracle.cohort(each)
            read_as_meant["cohort"] += 1
    assert read_as_meant.pop("invalid") >= 2
    assert {kind: count > 100 for kind, count in read_as_meant.items()} == dict.fromkeys(
        ("workload", "queue", "flavor", "door", "cohort"), True
    )
