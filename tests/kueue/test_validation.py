"""What the webhooks say of Kueue's objects, word for word."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from reprieve.api.field_errors import aggregate
from reprieve.api.kueue_validation import (
    cluster_queue_errors,
    cohort_errors,
    resource_flavor_errors,
    slice_errors,
    workload_errors,
    workload_update_errors,
)
from tests.kueue.objects import (
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

FIRST = "spec.resourceGroups[0].flavors[0].resources[0]"
POLICY = {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}
BOTH_NEXT = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}


def swapped() -> Json:
    found = group({"cpu": 1, "memory": 1})
    found["flavors"][0]["resources"].reverse()
    return found


def uneven() -> Json:
    found = group({"cpu": 1})
    found["coveredResources"].append("memory")
    return found


def flavors(count: int, resources: int = 1, prefix: str = "f") -> Json:
    names = [f"{prefix}-r{index}" for index in range(resources)]
    quotas = [{"name": name, "nominalQuota": 1} for name in names]
    listed = [{"name": f"{prefix}-{index}", "resources": quotas} for index in range(count)]
    return {"coveredResources": names, "flavors": listed}


@pytest.mark.parametrize(
    ("obj", "errors"),
    [
        (cluster_queue(), []),
        (cluster_queue("a", group({"cpu": "4"}, lendingLimit="4"), cohortName="all"), []),
        (
            cluster_queue("a", group({"cpu": "4"}, borrowingLimit="1", lendingLimit="1")),
            [
                f'{FIRST}.borrowingLimit: Invalid value: "1": must be nil when cohort is empty',
                f'{FIRST}.lendingLimit: Invalid value: "1": must be nil when cohort is empty',
            ],
        ),
        (
            cluster_queue("a", group({"cpu": "4"}, lendingLimit="4001m"), cohortName="all"),
            [
                (
                    f'{FIRST}.lendingLimit: Invalid value: "4001m": '
                    "must be less than or equal to the nominalQuota"
                )
            ],
        ),
        (
            cluster_queue("a", group({"cpu": "-1"}, borrowingLimit="-1"), cohortName="all"),
            [
                f'{FIRST}.nominalQuota: Invalid value: "-1": must be greater than or equal to 0',
                f'{FIRST}.borrowingLimit: Invalid value: "-1": must be greater than or equal to 0',
            ],
        ),
        (
            cluster_queue("a", swapped()),
            [
                f'{FIRST}.name: Invalid value: "memory": must match the name in coveredResources',
                FIRST.replace("resources[0]", "resources[1]")
                + '.name: Invalid value: "cpu": must match the name in coveredResources',
            ],
        ),
        (
            cluster_queue("a", uneven()),
            [
                (
                    "spec.resourceGroups[0].flavors[0].resources: Invalid value: "
                    "must have the same number of resources as the coveredResources"
                )
            ],
        ),
        (
            cluster_queue("a", group({"cpu": 1}), group({"cpu": 1})),
            [
                'spec.resourceGroups[1].coveredResources[0]: Duplicate value: "cpu"',
                'spec.resourceGroups[1].flavors[0].name: Duplicate value: "default-flavor"',
            ],
        ),
        (
            cluster_queue("a", *[flavors(64, 1, f"g{i}") for i in range(5)]),
            [
                (
                    "spec.resourceGroups: Invalid value: 320: total number of flavors across all "
                    "resourceGroups must be ≤ 256, got 320"
                )
            ],
        ),
        (
            cluster_queue("a", *[flavors(1, 64, f"g{i}") for i in range(5)]),
            [
                (
                    "spec.resourceGroups: Invalid value: 320: total number of covered resources "
                    "across all resourceGroups must be ≤ 256, got 320"
                )
            ],
        ),
        (
            cluster_queue("a", flavors(9, 57)),
            [
                (
                    "spec.resourceGroups[0]: Invalid value: 513: number of flavor-resource "
                    "combinations in a resourceGroup must be ≤ 512, got 513"
                )
            ],
        ),
        (
            cluster_queue(preemption=POLICY),
            [
                (
                    'spec.preemption: Invalid value: {"reclaimWithinCohort":"Never",'
                    '"borrowWithinCohort":{"policy":"LowerPriority"}}: '
                    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
                )
            ],
        ),
        (
            cluster_queue(flavorFungibility={"preference": "PreemptionOverBorrowing"}),
            [
                (
                    'spec.flavorFungibility: Invalid value: "PreemptionOverBorrowing": preference '
                    '"PreemptionOverBorrowing" requires both whenCanBorrow and whenCanPreempt to '
                    "be TryNextFlavor"
                )
            ],
        ),
        (
            cluster_queue(flavorFungibility={**BOTH_NEXT, "preference": "PreemptionOverBorrowing"}),
            [],
        ),
        (
            cluster_queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            [
                (
                    "spec.namespaceSelector.matchExpressions[0].values: Required value: "
                    "must be specified when `operator` is 'In' or 'NotIn'"
                )
            ],
        ),
        (
            cluster_queue(
                namespaceSelector={
                    "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]
                }
            ),
            [
                (
                    "spec.namespaceSelector.matchExpressions[0].values: Forbidden: "
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                )
            ],
        ),
    ],
)
def test_a_cluster_queue_is_told(obj: Json, errors: list[str]) -> None:
    assert list(cluster_queue_errors(obj)) == errors


@pytest.mark.parametrize(
    ("weight", "why"),
    [
        (0, ""),
        ("2n", ""),
        ("1n", "When not 0, weight must be > 10e-9"),
        ("0.5n", "When not 0, weight must be > 10e-9"),
        ("1e-9", "When not 0, weight must be > 10e-9"),
        ("-1n", "must be greater than or equal to 0"),
        ("500m", ""),
        ("1e40", ""),
    ],
)
def test_a_weight_is_0_or_more_than_a_nano(weight: Any, why: str) -> None:
    expected = [f'spec.fairSharing.weight: Invalid value: "{weight}": {why}'] if why else []
    sharing = {"weight": weight}
    assert list(cluster_queue_errors(cluster_queue(fairSharing=sharing))) == expected
    assert list(cohort_errors(kueue_object("Cohort", "a", {"fairSharing": sharing}))) == expected


def test_a_cohort_may_lend_more_than_its_own_and_needs_a_parent_for_limits() -> None:
    spec = {"resourceGroups": [group({"cpu": 1}, lendingLimit=4)]}
    assert list(cohort_errors(kueue_object("Cohort", "a", {**spec, "parentName": "b"}))) == []
    assert list(cohort_errors(kueue_object("Cohort", "a", spec))) == [
        f'{FIRST}.lendingLimit: Invalid value: "4": must be nil when parent is empty'
    ]


def test_a_flavor_has_each_taint_once_and_labels_that_are_some() -> None:
    taint = {"key": "gpu", "value": "x", "effect": "NoSchedule"}
    spec = {"nodeTaints": [taint, taint], "tolerations": [{"key": "-"}]}
    first, second = resource_flavor_errors(kueue_object("ResourceFlavor", "a", spec))
    assert first == (
        'spec.nodeTaints[1]: Duplicate value: {"key":"gpu","value":"x","effect":"NoSchedule"}: '
        "taints must be unique by key and effect pair"
    )
    assert second.startswith('spec.tolerations[0].key: Invalid value: "-": name part must consist')
    labelled = kueue_object("ResourceFlavor", "a", {"nodeLabels": {"a/b/c": "x" * 64}})
    assert [each.split(": ")[:2] for each in resource_flavor_errors(labelled)] == [
        ["spec.nodeLabels", "Invalid value"]
    ] * 2


def with_request(name: str, amount: str) -> Json:
    found = workload()
    container = found["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container["resources"]["requests"] = {name: amount}
    return found


REQUESTS = "spec.podSets[0].template.spec.containers[0].resources.requests"


@pytest.mark.parametrize(
    ("obj", "errors"),
    [
        (workload(), []),
        (workload() | {"status": reserved()}, []),
        (
            workload("w", pod_set("a", 2, minCount=1), pod_set("b", 2, minCount=1)),
            ["spec.podSets: Invalid value: 2: at most one podSet can use minCount"],
        ),
        (
            with_request("pods", "1"),
            [
                (
                    f'{REQUESTS}[pods]: Invalid value: "pods": '
                    "the key is reserved for internal kueue use"
                )
            ],
        ),
        (
            with_request("cpu", "-1"),
            [f'{REQUESTS}[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        (
            workload() | {"status": {"conditions": [condition("QuotaReserved")]}},
            [
                (
                    "status.admission: Required value: "
                    "must be set while the QuotaReserved condition is true"
                )
            ],
        ),
        (
            workload() | {"status": reserved(admission=admission(name="other"))},
            ['status.admission.podSetAssignments[0].name: Not found: "other"'],
        ),
        (
            workload("w", pod_set(count=3)) | {"status": reserved(admission=admission(3, "1"))},
            [
                (
                    "status.admission.podSetAssignments[0].resourceUsage[cpu]: "
                    'Invalid value: "1": is not a multiple of 3'
                )
            ],
        ),
        (with_request("cpu", "1e40"), []),
        (with_request("cpu", "1e-40"), []),
        (
            with_request("cpu", "-1e40"),
            [f'{REQUESTS}[cpu]: Invalid value: "-1e40": must be greater than or equal to 0'],
        ),
        (
            workload("w", pod_set(count=3)) | {"status": reserved(admission=admission(3, "1e40"))},
            [
                (
                    "status.admission.podSetAssignments[0].resourceUsage[cpu]: "
                    'Invalid value: "1e40": is not a multiple of 3'
                )
            ],
        ),
        (
            workload() | {"status": {"reclaimablePods": [{"name": "main", "count": 2}]}},
            [
                (
                    "status.reclaimablePods[main].count: Invalid value: 2: "
                    "should be less or equal to 1"
                )
            ],
        ),
        (
            workload() | {"status": {"reclaimablePods": [{"name": "x", "count": 0}]}},
            ['status.reclaimablePods[x].name: Unsupported value: "x": supported values: "main"'],
        ),
        (
            workload()
            | {"status": {"admissionChecks": [{"name": "c", "podSetUpdates": [{"name": "x"}]}]}},
            [
                (
                    "status.admissionChecks[0].podSetUpdates[0].name: "
                    'Unsupported value: "x": supported values: "main"'
                )
            ],
        ),
    ],
)
def test_a_workload_is_told(obj: Json, errors: list[str]) -> None:
    assert list(workload_errors(obj)) == errors


def test_a_boost_is_an_integer() -> None:
    obj = workload()
    for text, fine in (("-5", True), ("+5", True), ("2147483648", False), ("high", False)):
        obj["metadata"]["annotations"] = {"kueue.x-k8s.io/priority-boost": text}
        where = "metadata.annotations[kueue.x-k8s.io/priority-boost]"
        expected = [f'{where}: Invalid value: "{text}": must be a valid signed integer']
        assert list(workload_errors(obj)) == ([] if fine else expected)


def changed(status: Json, **spec: Any) -> tuple[Json, Json]:
    """A workload that holds quota, before and after a change of `status` and `spec`."""
    before = workload("w", pod_set(count=3)) | {
        "status": reserved(
            admission=admission(3, "3"), reclaimablePods=[{"name": "main", "count": 1}]
        )
    }
    after = deepcopy(before)
    after["status"] |= status
    after["spec"] |= spec
    return after, before


def test_pod_sets_stay_while_quota_is_held() -> None:
    after, before = changed({}, podSets=[pod_set(count=3, cpu="9")])
    (error,) = workload_update_errors(after, before)
    assert error.startswith('spec.podSets: Invalid value: [{"name":"main"')
    assert error.endswith(": field is immutable")
    del before["status"]
    assert list(workload_update_errors(after, before)) == []


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        ({"reclaimablePods": [{"name": "main", "count": 2}]}, []),
        (
            # Pods that start again are counted again: the set of jobs was restarted.
            {"reclaimablePods": [{"name": "main", "count": 0}]},
            [],
        ),
        ({"reclaimablePods": []}, []),
        ({"admission": None, "conditions": []}, []),
        (
            {"clusterName": "a"},
            [
                (
                    'status.clusterName: Invalid value: "a": '
                    "when setting clusterName it must be one of the nominatedClusterNames"
                )
            ],
        ),
    ],
)
def test_a_change_of_a_status_is_told(status: Json, errors: list[str]) -> None:
    assert list(workload_update_errors(*changed(status))) == errors


def test_an_admission_may_go_but_not_change() -> None:
    (error,) = workload_update_errors(*changed({"admission": admission(3, "6")}))
    assert error.startswith("status.admission: ") and error.endswith(": field is immutable")


def test_places_may_change_while_the_rest_of_an_admission_stays() -> None:
    """Pods of a failed node get another one, and delayed places come after the checks."""
    after, before = changed({})
    (held,) = after["status"]["admission"]["podSetAssignments"]
    held["topologyAssignment"] = {"levels": ["kubernetes.io/hostname"], "slices": []}
    held["delayedTopologyRequest"] = "Ready"
    assert list(workload_update_errors(after, before)) == []
    held["count"] = 2
    errors = [each.split(": ")[0] for each in workload_update_errors(after, before)]
    assert "status.admission" in errors


SIZE = "spec.podSets[0].topologyRequest.podSetSliceSize"


@pytest.mark.parametrize(
    ("request_", "errors"),
    [
        ({"required": "a"}, []),
        ({"podSetSliceRequiredTopology": "a", "podSetSliceSize": 2}, []),
        (
            {"podSetSliceRequiredTopology": "a"},
            [f"{SIZE}: Required value: must be set when podSetSliceRequiredTopology is specified"],
        ),
        (
            {"podSetSliceSize": 2},
            [
                (
                    f"{SIZE}: Forbidden: may not be set when podSetSliceRequiredTopology is not "
                    "specified"
                )
            ],
        ),
        (
            {"podSetSliceRequiredTopology": "a", "podSetSliceSize": 0},
            [f"{SIZE}: Invalid value: 0: must be greater than 0"],
        ),
    ],
)
def test_slices_of_a_workload_have_a_level_and_a_size(request_: Json, errors: list[str]) -> None:
    after, before = changed({})
    assert list(slice_errors(after)) == []
    after["spec"]["podSets"][0]["topologyRequest"] = request_
    assert list(slice_errors(after)) == errors
    del before["status"]
    assert [e for e in workload_update_errors(after, before) if e.startswith(SIZE)] == errors
    # Its status can be written all the same: it has stood there since before.
    assert [e for e in workload_update_errors(after, deepcopy(after)) if e.startswith(SIZE)] == []


def test_updates_of_a_ready_check_stay() -> None:
    def check(state: str, labels: Json) -> Json:
        update = {"name": "main", "labels": labels}
        return {"admissionChecks": [{"name": "c", "state": state, "podSetUpdates": [update]}]}

    after, before = changed(check("Ready", {"a": "1"}))
    before["status"] |= check("Ready", {"a": "2"})
    (error,) = workload_update_errors(after, before)
    assert error == (
        'status.admissionChecks[0].podSetUpdates: Invalid value: [{"name":"main",'
        '"labels":{"a":"1"}}]: field is immutable'
    )
    before["status"] |= check("Pending", {"a": "2"})
    assert list(workload_update_errors(after, before)) == []


def test_several_errors_stand_in_brackets_each_once() -> None:
    assert aggregate(["a"]) == "a"
    assert aggregate(["a", "b", "a"]) == "[a, b]"
