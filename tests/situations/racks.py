"""Situations of topologies: which level lacks what, who stays there, and which level would fit."""

from __future__ import annotations

from typing import Any

from tests.quota_plane.site import flavor, local_queue
from tests.quota_plane.site import priority_class as queue_class
from tests.situations.asked import Situation, situation
from tests.situations.queues import of_gpus
from tests.whatif.plan_stories import Object, job, namespace, node

_RACK = "example.com/rack"
_HOST = "kubernetes.io/hostname"
_KUEUE = "kueue.x-k8s.io/podset-"


def _topology() -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": _RACK}, {"nodeLabel": _HOST}]},
    }


def _there(quota: int, racks: dict[str, int], **queue: Any) -> tuple[Object, ...]:
    """Return racks of nodes of 8 GPUs, and a queue over them."""
    nodes = [
        node(f"{rack}-{n}", 8, **{_RACK: rack}) for rack, size in racks.items() for n in range(size)
    ]
    mi300x = flavor("mi300x")
    mi300x["spec"] = {"topologyName": "racks", "nodeLabels": {"pool": "gpu"}}
    for each in nodes:
        each["metadata"]["labels"] |= {"pool": "gpu", _HOST: each["metadata"]["name"]}
    classes = (queue_class("low", 100), queue_class("high", 1000))
    queues = (of_gpus("team-b", quota, **queue), local_queue("q", "team-b"))
    return (namespace(), *classes, _topology(), mi300x, *queues, *nodes)


def placed(name: str, pods: int, gpus: int, level: str, priority: str, how: str) -> Object:
    """Return a gang that requests a level of the topology."""
    made = job(name, pods, gpus, "q", priority)
    template = made["spec"]["template"].setdefault("metadata", {})
    template["annotations"] = {f"{_KUEUE}{how}-topology": level}
    return made


@situation
def no_rack_has_enough_free() -> Situation:
    """Five of eight nodes are held by work of higher priority, the rest are in one rack."""
    held = [placed(f"held-{n}", 1, 8, _HOST, "high", "required") for n in range(5)]
    return Situation(
        _there(128, {"r1": 4, "r2": 4}, preemption={"withinClusterQueue": "LowerPriority"}),
        [placed("mine", 4, 8, _RACK, "low", "required")],
        [
            "its places are those of work that is preempted for a higher priority only",
            "no example.com/rack has capacity for 4 pods: the best, r2, has capacity for 3",
            "who stays: 1 of no lower priority",
        ],
        [held],
        "scheduling,quota",
        explain_expects=["Workload team/job-held-"],
    )


@situation
def gang_that_is_larger_than_any_rack() -> Situation:
    return Situation(
        _there(64, {"r1": 4, "r2": 4}),
        [placed("mine", 5, 8, _RACK, "low", "required")],
        ["no example.com/rack has capacity for 5 pods: the best, r1, has capacity for 4"],
        controllers="scheduling,quota",
        plan_expects=["NEVER FITS"],
    )


@situation
def gang_that_fits_in_a_wider_level() -> Situation:
    return Situation(
        _there(64, {"r1": 4}),
        [placed("mine", 2, 8, _HOST, "low", "required")],
        ["example.com/rack instead of kubernetes.io/hostname it starts"],
        controllers="scheduling,quota",
    )


@situation
def level_that_the_topology_does_not_have() -> Situation:
    return Situation(
        _there(64, {"r1": 4}),
        [placed("mine", 2, 8, "example.com/block", "low", "required")],
        [
            "they request example.com/block",
            "topology racks has example.com/rack and kubernetes.io/hostname",
            "example.com/rack instead of example.com/block it starts",
        ],
        controllers="scheduling,quota",
        plan_expects=["NEVER FITS"],
    )


@situation
def level_of_a_queue_without_a_topology() -> Situation:
    there = [each for each in _there(64, {"r1": 4}) if each["kind"] != "ResourceFlavor"]
    return Situation(
        (*there, flavor("mi300x")),
        [placed("mine", 2, 8, _RACK, "low", "required")],
        ["no flavor of its queue has one", "they request example.com/rack"],
        controllers="scheduling,quota",
    )


@situation
def work_in_the_rack_that_its_policies_leave_alone() -> Situation:
    held = [placed(f"held-{n}", 1, 8, _HOST, "low", "required") for n in range(5)]
    never = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
    return Situation(
        _there(128, {"r1": 4, "r2": 4}, preemption=never),
        [placed("mine", 4, 8, _RACK, "high", "required")],
        [
            "no example.com/rack has capacity for 4 pods: the best, r2, has capacity for 3",
            "its queue's preemption policies leave alone",
        ],
        [held],
        "scheduling,quota",
    )
