"""Situations of queues: quota, borrowing, flavors, and what is wrong with a queue itself."""

from __future__ import annotations

from typing import Any

from tests.quota_plane.site import cluster_queue, flavor, local_queue
from tests.quota_plane.site import priority_class as queue_class
from tests.situations.asked import Situation, situation
from tests.situations.nodes import tainted
from tests.whatif.plan_stories import GPU, Object, job, namespace, node, pod, queue

_THERE = (namespace(), queue_class("low", 100), queue_class("high", 1000))


def of_gpus(
    name: str, nominal: int, cohort: str = "", limit: int | None = None, **spec: Any
) -> Object:
    """Return a ClusterQueue with GPUs of flavor mi300x."""
    quota = {"name": GPU, "nominalQuota": str(nominal)}
    if limit is not None:
        quota["borrowingLimit"] = str(limit)
    cpu = {"name": "cpu", "nominalQuota": "1000"}
    group = {
        "coveredResources": ["cpu", GPU],
        "flavors": [{"name": "mi300x", "resources": [cpu, quota]}],
    }
    return cluster_queue(name, 0, cohort, resourceGroups=[group], **spec)


def _base(*more: Object) -> tuple[Object, ...]:
    return (*_THERE, flavor("mi300x"), local_queue("q", "team-b"), *more)


@situation
def own_quota_is_used_up() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 8)),
        [job("mine", 1, 4, "q", "low")],
        [
            "team-b: 8 of 8 nvidia.com/gpu (mi300x) used, requests 4",
            "may not borrow: ClusterQueue team-b is in no cohort",
        ],
        [[job("old", 1, 8, "q", "low")]],
        "quota",
        explain_expects=["Workload team/job-old"],
    )


@situation
def admission_check_that_is_not_there() -> Situation:
    checks = {"admissionChecks": [{"name": "prov"}]}
    return Situation(
        _base(of_gpus("team-b", 8, admissionChecksStrategy=checks)),
        [job("mine", 1, 4, "q", "low")],
        ["missing or inactive AdmissionCheck(s): prov"],
        controllers="quota",
    )


@situation
def borrowing_limit_is_reached() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 8, "all", 4), of_gpus("team-c", 32, "all")),
        [job("mine", 1, 4, "q", "low")],
        [
            "team-b: 12 of 12 nvidia.com/gpu (mi300x) used (nominal 8, borrowingLimit 4), ",
            "requests 4; may borrow 0 more: borrowingLimit 4",
        ],
        [[job("old", 3, 4, "q", "low")]],
        "quota",
    )


@situation
def nothing_left_to_borrow() -> Situation:
    there = (of_gpus("team-b", 8, "all"), of_gpus("team-c", 8, "all"), local_queue("c", "team-c"))
    return Situation(
        _base(*there),
        [job("mine", 1, 8, "q", "low")],
        [
            "team-b: 8 of 8 nvidia.com/gpu (mi300x) used, requests 8",
            "may borrow 0 more: cohort all has 0 left",
        ],
        [[job("old", 1, 8, "q", "low"), job("other", 1, 8, "c", "low")]],
        "quota",
    )


@situation
def others_have_borrowed_its_quota() -> Situation:
    there = (of_gpus("team-b", 8, "all"), of_gpus("team-c", 8, "all"), local_queue("c", "team-c"))
    return Situation(
        _base(*there),
        [job("mine", 1, 8, "q", "low")],
        [
            "team-b: 0 of 8 nvidia.com/gpu (mi300x) used, requests 8",
            "team-c has borrowed 8 of its cohort",
            "reclaimWithinCohort: Any",
        ],
        [[job("other", 2, 8, "c", "low")]],
        "quota",
    )


@situation
def quota_is_kept_for_the_head_of_a_strict_queue() -> Situation:
    """Source: kueue 4809."""
    strict = of_gpus("team-c", 8, "all", queueingStrategy="StrictFIFO")
    return Situation(
        _base(of_gpus("team-b", 0, "all"), strict, local_queue("c", "team-c")),
        [job("mine", 1, 4, "q", "low")],
        ["kept for team/job-big", "of ClusterQueue team-c"],
        [[job("old", 1, 4, "c", "low")], [job("big", 1, 8, "c", "low")]],
        "quota",
        never=["in use by work"],
    )


@situation
def more_than_the_queue_can_ever_have() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 8, "all", 4), of_gpus("team-c", 32, "all")),
        [job("mine", 2, 8, "q", "low")],
        ["it needs 16 nvidia.com/gpu", "12 nvidia.com/gpu at most: nominal 8, borrowingLimit 4"],
        controllers="quota",
    )


@situation
def resource_that_the_queue_does_not_cover() -> Situation:
    mine = job("mine", 1, 1, "q", "low")
    amounts = mine["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    amounts["memory"] = "64Gi"
    return Situation(
        _base(of_gpus("team-b", 8)),
        [mine],
        ["ClusterQueue team-b has none for memory", "coveredResources"],
        controllers="quota",
    )


@situation
def overhead_that_the_queue_does_not_cover() -> Situation:
    mine = job("mine", 1, 1, "q", "low")
    mine["spec"]["template"]["spec"]["runtimeClassName"] = "kata"
    kata = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"memory": "100Mi"}},
    }
    return Situation(
        _base(of_gpus("team-b", 8), kata),
        [mine],
        ["ClusterQueue team-b has none for memory", "RuntimeClass kata", "100Mi"],
        controllers="quota",
    )


@situation
def cohort_that_lends_nothing() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 8, "all"), of_gpus("team-c", 0, "all")),
        [job("mine", 2, 8, "q", "low")],
        ["8 nvidia.com/gpu at most: nominal 8, and cohort all has nothing to lend"],
        controllers="quota",
        never=["the rest borrowed"],
    )


@situation
def borrowing_limit_above_what_the_cohort_has() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 8, "all", 32), of_gpus("team-c", 4, "all")),
        [job("mine", 2, 8, "q", "low")],
        ["12 nvidia.com/gpu at most: nominal 8, the rest borrowed from cohort all"],
        controllers="quota",
        never=["borrowingLimit 32"],
    )


@situation
def stopped_cluster_queue() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 8, stopPolicy="Hold")),
        [job("mine", 1, 4, "q", "low")],
        ["it is ClusterQueue team-b; its stopPolicy is Hold"],
        controllers="quota",
    )


@situation
def local_queue_that_does_not_exist() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 8)),
        [job("mine", 1, 4, "gpu", "low")],
        ["there is no LocalQueue gpu in namespace team", "the namespace has: q"],
        controllers="quota",
    )


@situation
def flavor_that_does_not_suit_the_pods() -> Situation:
    mine = job("mine", 1, 4, "q", "low")
    mine["spec"]["template"]["spec"]["nodeSelector"] = {"gpu": "h100"}
    there = (flavor("mi300x", nodeLabels={"gpu": "mi300x"}), local_queue("q", "team-b"))
    return Situation(
        (*_THERE, *there, of_gpus("team-b", 8)),
        [mine],
        ["flavor mi300x", "gpu=h100"],
        controllers="quota",
    )


@situation
def behind_the_head_of_a_strict_queue() -> Situation:
    there = (of_gpus("team-b", 8, queueingStrategy="StrictFIFO"),)
    return Situation(
        _base(*there),
        [job("mine", 1, 2, "q", "low")],
        ["the head is team/job-big"],
        [[job("old", 1, 4, "q", "low")], [job("big", 1, 8, "q", "low")]],
        "quota",
    )


@situation
def held_by_work_of_the_same_priority() -> Situation:
    lower = {"withinClusterQueue": "LowerPriority"}
    return Situation(
        _base(of_gpus("team-b", 8, preemption=lower)),
        [job("mine", 1, 8, "q", "low")],
        ["team-b: 8 of 8 nvidia.com/gpu (mi300x) used, requests 8"],
        [[job("old", 1, 8, "q", "low")]],
        "quota",
        plan_expects=["priority-class] high instead of low it starts"],
        explain_expects=["priority-class] high instead of low it gets its quota"],
    )


@situation
def victims_that_leave_for_it() -> Situation:
    lower = {"withinClusterQueue": "LowerPriority"}
    return Situation(
        _base(of_gpus("team-b", 8, preemption=lower)),
        [job("mine", 1, 8, "q", "high")],
        ["Job team/old"],
        [[job("old", 1, 8, "q", "low")]],
        "quota",
        plan_expects=["STARTS, others are preempted"],
    )


@situation
def has_its_quota_and_no_node_takes_it() -> Situation:
    nodes = [tainted(f"gpu-{n}", "dedicated", "research") for n in range(2)]
    return Situation(
        _base(of_gpus("team-b", 16), *nodes),
        [job("mine", 1, 8, "q", "low")],
        ["2 of 2 nodes have the taint dedicated=research:NoSchedule"],
        controllers="quota,scheduling",
    )


@situation
def quota_is_free_and_nodes_are_full() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 16), node("gpu-0")),
        [job("mine", 1, 8, "q", "low")],
        ["it lacks 8 nvidia.com/gpu"],
        [[pod("old", 8)]],
        "quota,scheduling",
    )


@situation
def queue_without_cluster_queue() -> Situation:
    return Situation(
        (*_THERE, flavor("mi300x"), local_queue("q", "team-b")),
        [job("mine", 1, 4, "q", "low")],
        ["ClusterQueue team-b: it does not exist"],
        controllers="quota",
    )


@situation
def namespace_that_the_queue_does_not_take() -> Situation:
    selector = {"matchLabels": {"tier": "gold"}}
    return Situation(
        _base(of_gpus("team-b", 8, namespaceSelector=selector)),
        [job("mine", 1, 4, "q", "low")],
        ["ClusterQueue team-b accepts namespaces with tier=gold"],
        controllers="quota",
    )


__all__ = ["of_gpus", "queue"]


@situation
def label_of_its_flavor_that_no_node_has() -> Situation:
    labelled = flavor("mi300x", nodeLabels={"pool": "gpu"})
    there = (*_THERE, labelled, local_queue("q", "team-b"), of_gpus("team-b", 16), node("gpu-0"))
    return Situation(
        there,
        [job("mine", 1, 8, "q", "low")],
        [
            "no node has the label pool=gpu",
            "`kubectl label node gpu-0 pool=gpu`, or have `nodeLabels` of its queue's",
        ],
        controllers="quota,scheduling",
        never=["Drop pool=gpu"],
    )
