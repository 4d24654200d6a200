"""Situations of gangs: members that are missing, groups that are too large, and others' rules."""

from __future__ import annotations

from tests.situations.asked import Situation, situation
from tests.whatif.plan_stories import Object, job, namespace, node, pod, priority

_THERE = (namespace(), priority("low", 100), priority("high", 1000))


def group(name: str, minimum: int) -> Object:
    policy = {"gang": {"minCount": minimum}}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"schedulingPolicy": policy},
    }


def member(name: str, of: str, gpus: int = 8, level: str = "") -> Object:
    return pod(name, gpus, level, schedulingGroup={"podGroupName": of})


def suspended(pods: int, name: str = "train") -> Object:
    made = job(name, pods, 8)
    made["spec"]["suspend"] = True
    template = made["spec"]["template"]
    template["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    return made


@situation
def gang_that_lacks_members() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1"), node("gpu-2")),
        [group("train", 3), member("train-0", "train")],
        ["1 of 3 pods exist", "2 are missing"],
    )


@situation
def gang_whose_job_is_suspended() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1"), node("gpu-2")),
        [group("train", 3), member("train-0", "train"), suspended(2)],
        ["1 of 3 pods exist", "2 are missing"],
        explain_expects=["Job team/train is suspended"],
    )


@situation
def gang_whose_group_is_missing() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0")),
        [member("mine", "train")],
        ["there is no PodGroup team/train"],
    )


@situation
def gang_that_is_larger_than_the_cluster() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [group("train", 3), *(member(f"train-{n}", "train") for n in range(3))],
        ["of the 3 that its group needs 2 at most would fit"],
    )


@situation
def gang_that_finds_the_nodes_full() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [group("train", 2), *(member(f"train-{n}", "train") for n in range(2))],
        ["it lacks 8 nvidia.com/gpu"],
        [[pod("old", 8, "high")]],
        explain_expects=["Pod team/old 8 nvidia.com/gpu"],
    )


@situation
def gang_whose_pods_no_node_takes() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0", 4)),
        [group("train", 2), *(member(f"train-{n}", "train") for n in range(2))],
        ["it requests 8 nvidia.com/gpu", "the largest node, gpu-0, has 4"],
    )
