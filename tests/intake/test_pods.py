"""Pods as rows: where they may go, and what is free on nodes. Demands are in the vectors."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reprieve.api.core import KueueWorkload, Node, Pod
from reprieve.engine.idle.resources import DEFAULT_VENDORS
from reprieve.engine.idle.vendors import AMD, NVIDIA
from reprieve.intake.pods import (
    admitted_nodes,
    gpus_of,
    is_demand,
    lacks_quota,
    node_amounts,
    node_row,
    other_requests,
    pod_row,
    workload_gpus,
)
from reprieve.planes.idle import records


def pod(**spec: Any) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-03-04T10:00:00Z"},
            "spec": {"containers": [{"resources": {"requests": {"amd.com/gpu": "2"}}}], **spec},
            "status": {"phase": "Pending"},
        },
        Pod,
    )


def node(name: str = "gpu-0", labels: dict[str, str] | None = None, **rest: Any) -> Node:
    return msgspec.convert({"metadata": {"name": name, "labels": labels or {}}, **rest}, Node)


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


TAINT = {"key": "amd-dcm", "value": "up", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "admitted"),
    [
        ({}, True),
        ({"nodeSelector": {"gpu": "mi300"}}, True),
        ({"nodeSelector": {"gpu": "mi250"}}, False),
        ({"affinity": affinity(expression("gpu", "In", "mi250", "mi300"))}, True),
        ({"affinity": affinity(expression("gpu", "NotIn", "mi300"))}, False),
        ({"affinity": affinity(expression("other", "NotIn", "x"))}, True),
        ({"affinity": affinity(expression("gpu", "Exists"))}, True),
        ({"affinity": affinity(expression("gpu", "DoesNotExist"))}, False),
        ({"affinity": affinity(expression("count", "Gt", "7"))}, True),
        ({"affinity": affinity(expression("count", "Lt", "8"))}, False),
        ({"affinity": affinity(expression("gpu", "Gt", "7"))}, False),
        ({"affinity": affinity(expression("gpu", "Like", "mi"))}, False),
        ({"affinity": affinity({}, expression("gpu", "Exists"))}, True),
        ({"affinity": affinity({})}, False),
        (
            {
                "affinity": affinity(
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
                )
            },
            False,
        ),
    ],
)
def test_selectors_and_required_affinity_decide(spec: dict[str, Any], admitted: bool) -> None:
    nodes = [node(labels={"gpu": "mi300", "count": "8"})]
    assert bool(admitted_nodes(pod(**spec), nodes)) is admitted


@pytest.mark.parametrize(
    ("tolerations", "admitted"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "amd-dcm", "operator": "Exists"}], True),
        ([{"key": "amd-dcm", "value": "up"}], True),
        ([{"key": "amd-dcm", "value": "down"}], False),
        ([{"key": "amd-dcm", "value": "up", "effect": "NoExecute"}], False),
        ([{"value": "up"}], True),  # as kube-scheduler does; the API stores none
    ],
)
def test_taints_repel_what_does_not_tolerate_them(
    tolerations: list[dict[str, str]], admitted: bool
) -> None:
    tainted = [node(spec={"taints": [TAINT]})]
    assert bool(admitted_nodes(pod(tolerations=tolerations), tainted)) is admitted


def test_a_preference_repels_nobody_and_a_cordoned_node_everybody() -> None:
    assert admitted_nodes(pod(), [node(spec={"taints": [{**TAINT, "effect": "PreferNoSchedule"}]})])
    assert not admitted_nodes(pod(), [node(spec={"unschedulable": True})])


def test_a_bound_pod_needs_no_nodes() -> None:
    bound = pod(nodeName="gpu-0")
    assert pod_row(bound, gpus_of(bound), (), nodes=[node()]).nodes is None
    waiting = pod_row(pod(), gpus_of(pod()), (), nodes=[node()])
    assert (waiting.nodes, waiting.gpus) == (frozenset({"gpu-0"}), {"amd.com/gpu": 2})


def test_free_gpus_are_allocatable_minus_what_is_used() -> None:
    allocatable = {"amd.com/gpu": "8", "cpu": "64", "memory": "1Gi", "pods": "110"}
    offered = node_amounts(node(status={"allocatable": allocatable}))
    row = node_row("gpu-0", offered, {"amd.com/gpu": 10, "cpu": 4_500, "pods": 2, "odd/one": 1})
    assert dict(row.free) == {
        "amd.com/gpu": -2,
        "cpu": 59_500,
        "memory": 2**30,
        "odd/one": -1,
        "pods": 108,
    }


def test_a_pod_requests_what_kube_scheduler_counts_beside_its_gpus() -> None:
    def asking(cpu: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu, "amd.com/gpu": "1"}}, **more}

    wants = pod(
        containers=[asking("1"), asking("500m")],
        initContainers=[asking("250m", restartPolicy="Always"), asking("4")],
        overhead={"memory": "64Mi"},
    )
    assert dict(other_requests(wants)) == {"cpu": 4_250, "memory": 64 * 2**20, "pods": 1}


def test_a_sidecar_holds_its_gpus_beside_those_of_the_containers() -> None:
    gpu = {"resources": {"limits": {"amd.com/gpu": 1}}}
    beside = pod(containers=[gpu], initContainers=[{**gpu, "restartPolicy": "Always"}, gpu])
    before = pod(containers=[gpu], initContainers=[gpu, gpu])
    assert (gpus_of(beside), gpus_of(before)) == ({"amd.com/gpu": 2}, {"amd.com/gpu": 1})


def test_other_vendors_count_when_they_are_watched() -> None:
    wants = pod(containers=[{"resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}])
    assert gpus_of(wants) == {}
    assert gpus_of(wants, (AMD, NVIDIA)) == {"nvidia.com/mig-1g.10gb": 1}


def test_a_quantity_that_cannot_be_read_counts_as_none() -> None:
    assert gpus_of(pod(containers=[{"resources": {"limits": {"amd.com/gpu": "many"}}}])) == {}


FITS_NEVER = (
    "couldn't assign flavors to pod set main: insufficient quota for amd.com/gpu in flavor a, "
    "previously considered podsets requests (0) + current podset request (8) > maximum capacity (4)"
)
WAITS = "insufficient unused quota for amd.com/gpu in flavor b, 2 more needed"


@pytest.mark.parametrize(
    ("message", "waits"),
    [
        (f"couldn't assign flavors to pod set main: {WAITS}", True),
        (f"{FITS_NEVER}, {WAITS}", True),
        (FITS_NEVER, False),
        (FITS_NEVER.replace("amd.com/gpu", "cpu"), False),
        ("couldn't assign flavors: resource amd.com/gpu unavailable in ClusterQueue", False),
        # Quota makes room for it already.
        (f"couldn't assign flavors: {WAITS}. Pending the preemption of 1 workload(s)", False),
        (f"{WAITS}. Not preempted: 1 workload(s) within their minimum runtime, the first", True),
    ],
)
def test_waiting_for_quota_is_a_demand_if_others_can_give_it_back(
    message: str, waits: bool
) -> None:
    pods = [{"count": 3, "template": {"spec": {"containers": [gpus(2)]}}}, {"count": 1}]
    condition = {"type": "QuotaReserved", "status": "False", "message": message}
    found = msgspec.convert(
        {"spec": {"podSets": pods}, "status": {"conditions": [condition]}}, KueueWorkload
    )
    assert lacks_quota(found, ["AMD.com/gpu"]) is waits
    assert not lacks_quota(found, ["nvidia.com/gpu"])
    assert workload_gpus(found) == {"amd.com/gpu": 6}


def test_a_gated_pod_waits_for_the_quota_of_what_it_belongs_to() -> None:
    """The Workload of a LeaderWorkerSet is the set's, not its pods'."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}

    def is_gated_demand(managed: str, of_root: list[KueueWorkload]) -> bool:
        given = {
            "metadata": {"labels": {"kueue.x-k8s.io/managed": managed}},
            "status": {"phase": "Pending", "conditions": [condition]},
        }
        return is_demand(msgspec.convert(given, Pod), ["amd.com/gpu"], (), of_root)

    short = {"type": "QuotaReserved", "status": "False", "message": WAITS}
    waiting = msgspec.convert({"status": {"conditions": [short]}}, KueueWorkload)
    assert is_gated_demand("true", [waiting])
    assert not is_gated_demand("true", [])
    assert not is_gated_demand("", [waiting])


def test_a_pod_for_which_its_scheduler_makes_room_is_no_demand() -> None:
    def demands(node: str | None) -> bool:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient amd.com/gpu.",
        }
        status = {"phase": "Pending", "conditions": [condition], "nominatedNodeName": node}
        return is_demand(msgspec.convert({"status": status}, Pod), ["amd.com/gpu"])

    assert demands(None)
    assert demands("")
    assert not demands("gpu-0")


@pytest.mark.parametrize(
    ("claimed", "message", "demands"),
    [
        ("acme/gpu", "0/2 nodes are available: 2 cannot allocate all claims.", True),
        ("acme/nic", "0/2 nodes are available: 2 cannot allocate all claims.", False),
        ("acme/gpu", "0/2 nodes are available: 2 node(s) had untolerated taint(s).", False),
        ("", "0/2 nodes are available: 2 Insufficient acme/gpu.", True),
    ],
)
def test_a_pod_that_waits_for_gpus_by_claim_is_a_demand(
    claimed: str, message: str, demands: bool
) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Pending", "conditions": [condition | {"message": message}]}
    waiting = msgspec.convert({"status": status}, Pod)
    assert is_demand(waiting, ["acme/gpu"], claimed=frozenset({claimed} - {""})) is demands


def test_a_group_is_named_by_scheduling_by_kueue_or_by_an_older_front_door() -> None:
    def group(spec: dict[str, Any] | None = None, **metadata: dict[str, str]) -> str:
        return pod_row(
            msgspec.convert({"metadata": metadata, "spec": spec or {}}, Pod), {}, ()
        ).group

    kueue = "kueue.x-k8s.io/pod-group-name"
    assert group() == ""
    assert group(labels={kueue: "a"}) == group(labels={kueue: "b"}, annotations={kueue: "a"}) == "a"
    assert group({"schedulingGroup": {"podGroupName": "c"}}, labels={kueue: "a"}) == "c"
    assert group(labels={"pod-group.scheduling.sigs.k8s.io": "d"}) == "d"


def gpus(count: int) -> dict[str, Any]:
    return {"resources": {"limits": {"amd.com/gpu": count}}}


@pytest.mark.parametrize("fault", [ValueError, RecursionError, TypeError])
def test_a_pod_that_cannot_be_read_holds_its_gpus_all_the_same(
    fault: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise fault("whatever it is")

    found = msgspec.convert(
        {
            "metadata": {"name": "odd", "namespace": "work", "uid": "u", "resourceVersion": "7"},
            "spec": {
                "nodeName": "node",
                "containers": [{"name": "c", "resources": {"limits": {"amd.com/gpu": "4"}}}],
            },
            "status": {"phase": "Running"},
        },
        Pod,
    )
    whole = records.pod_converter(DEFAULT_VENDORS)(found)
    monkeypatch.setattr(records, "pod_row", fails)
    record = records.pod_converter(DEFAULT_VENDORS)(found)
    assert record == whole
    assert (record.occupies, dict(record.row.gpus)) == (True, {"amd.com/gpu": 4})
