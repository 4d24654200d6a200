"""Situations that lie in other objects: volumes, zones, several planes."""

from __future__ import annotations

from typing import Any

from tests.situations.asked import Situation, situation
from tests.situations.nodes import _THERE, AMD, asking, of_amd
from tests.whatif.plan_stories import GPU, Object, node, pod

_ZONE = "topology.kubernetes.io/zone"
_BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
_OPTED_IN = {"kaiwo.silogen.ai/gpu-preemption.enabled": "true"}


def _claim(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "team", "annotations": _BOUND},
        "spec": {"accessModes": ["ReadWriteOnce"], **spec},
        "status": {"phase": "Bound" if "volumeName" in spec else "Pending"},
    }


def _using(claim: str) -> list[Object]:
    return [{"name": claim, "persistentVolumeClaim": {"claimName": claim}}]


@situation
def taint_that_evicts_running_pods() -> Situation:
    maintained = node("gpu-0")
    maintained["spec"]["taints"] = [{"key": "maintenance", "effect": "NoExecute"}]
    return Situation(
        (*_THERE, maintained),
        [pod("mine", 1)],
        [
            "1 of 1 node has the taint maintenance:NoExecute",
            "{key: maintenance, operator: Exists, effect: NoExecute}",
        ],
    )


@situation
def volume_in_a_zone_without_gpus() -> Situation:
    terms = [{"matchExpressions": [{"key": _ZONE, "operator": "In", "values": ["b"]}]}]
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv-data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Ti"},
            "claimRef": {"namespace": "team", "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }
    return Situation(
        (*_THERE, node("gpu-0", 8, **{_ZONE: "a"}), volume, _claim("data", volumeName="pv-data")),
        [pod("mine", 1, volumes=_using("data"))],
        ["1 of 1 node does not reach its PersistentVolume pv-data", f"{_ZONE}=b"],
    )


@situation
def volume_claim_of_a_class_that_is_not_there() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), _claim("data", storageClassName="fast")),
        [pod("mine", 1, volumes=_using("data"))],
        ["PersistentVolumeClaim team/data", "StorageClass fast does not exist"],
    )


@situation
def nodes_that_have_as_many_pods_as_they_may() -> Situation:
    small = node("gpu-0")
    for part in ("allocatable", "capacity"):
        small["status"][part]["pods"] = "1"
    return Situation(
        (*_THERE, small),
        [pod("mine", 1, "low")],
        ["it lacks 1 pod in gpu-0"],
        [[pod("old", 1, "low")]],
    )


@situation
def more_ephemeral_storage_than_any_node() -> Situation:
    disk = node("gpu-0")
    for part in ("allocatable", "capacity"):
        disk["status"][part]["ephemeral-storage"] = "100Gi"
    return Situation(
        (*_THERE, disk),
        [asking("mine", {"cpu": "1", GPU: "1", "ephemeral-storage": "500Gi"})],
        ["500Gi ephemeral-storage", "the largest node, gpu-0, has 100Gi"],
    )


@situation
def node_with_the_label_and_a_taint() -> Situation:
    chosen = node("gpu-0", pool="train")
    chosen["spec"]["taints"] = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
    return Situation(
        (*_THERE, chosen, node("gpu-1")),
        [pod("mine", 1, nodeSelector={"pool": "train"})],
        ["dedicated=x:NoSchedule"],
        never=["no node has the label pool=train"],
    )


@situation
def larger_than_a_node_and_not_opted_in() -> Situation:
    """An eviction of idle work changes nothing of that: it is not advised."""
    return Situation(
        (*_THERE, of_amd("gpu-0")),
        [asking("mine", {"cpu": "1", AMD: "16"})],
        ["the largest node, gpu-0, has 8"],
        controllers="idle,scheduling",
        never=["opt in", "Opt in", "opted in"],
    )


@situation
def opted_in_and_no_work_is_idle() -> Situation:
    mine = asking("mine", {"cpu": "1", AMD: "8"}, priority="low")
    mine["metadata"]["annotations"] = _OPTED_IN
    return Situation(
        (*_THERE, of_amd("gpu-0")),
        [mine],
        ["it lacks 8 amd.com/gpu"],
        [[asking("old", {"cpu": "1", AMD: "8"}, priority="low")]],
        "idle,scheduling",
        never=["opt in:", "It has not opted in"],
    )
