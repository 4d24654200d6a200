"""Situations of slips: a word that is almost right, one of two things wrong, a number too large."""

from __future__ import annotations

from tests.quota_plane.site import local_queue
from tests.situations.asked import Situation, situation
from tests.situations.groups import group, member
from tests.situations.nodes import _THERE, asking, of_amd, tainted
from tests.situations.queues import _base, of_gpus
from tests.whatif.plan_stories import GPU, job, node, pod


@situation
def toleration_of_another_value() -> Situation:
    slip = {"key": "dedicated", "operator": "Equal", "value": "infer", "effect": "NoSchedule"}
    return Situation(
        (*_THERE, tainted("gpu-0", "dedicated", "research")),
        [pod("mine", 1, tolerations=[slip])],
        [
            "1 of 1 node has the taint dedicated=research:NoSchedule",
            "{key: dedicated, operator: Equal, value: research, effect: NoSchedule}",
        ],
    )


@situation
def label_in_another_case() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0", pool="train")),
        [pod("mine", 1, nodeSelector={"Pool": "train"})],
        ["no node has the label Pool=train", "no node has a label Pool"],
    )


@situation
def one_label_of_two_is_wrong() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0", pool="train", disk="ssd")),
        [pod("mine", 1, nodeSelector={"pool": "train", "disk": "nvme"})],
        ["no node has the label disk=nvme", "nodes have disk=ssd"],
        never=["no node has the label pool"],
    )


@situation
def affinity_that_excludes_every_node() -> Situation:
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["a100"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return Situation(
        (*_THERE, node("gpu-0", gpu="a100"), node("gpu-1", gpu="a100")),
        [pod("mine", 1, affinity={"nodeAffinity": required})],
        ["no node meets its node affinity", "gpu", "a100"],
    )


@situation
def gpus_and_more_cpu_than_any_node() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0")),
        [asking("mine", {"cpu": "500", GPU: "1"})],
        ["it requests 500 cpu", "the largest node, gpu-0, has 64"],
    )


@situation
def amd_gpus_where_there_are_few() -> Situation:
    return Situation(
        (*_THERE, of_amd("gpu-0", 4), node("gpu-1")),
        [asking("mine", {"cpu": "1", "amd.com/gpu": "8"})],
        ["it requests 8 amd.com/gpu", "the largest node, gpu-0, has 4"],
    )


@situation
def job_of_pods_larger_than_a_node() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [job("mine", 2, 16)],
        ["it requests 16 nvidia.com/gpu", "the largest node, gpu-0, has 8"],
    )


@situation
def gang_of_pods_larger_than_a_node() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [group("train", 2), *(member(f"train-{n}", "train", 16) for n in range(2))],
        ["it requests 16 nvidia.com/gpu", "the largest node, gpu-0, has 8"],
    )


@situation
def job_of_more_pods_than_its_quota_takes() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 8)),
        [job("mine", 3, 4, "q", "low")],
        ["it needs 12 nvidia.com/gpu", "8 nvidia.com/gpu at most: nominal 8"],
        controllers="quota",
    )


@situation
def queue_with_a_typing_error() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 8), local_queue("r", "team-b")),
        [job("mine", 1, 4, "qq", "low")],
        ["there is no LocalQueue qq in namespace team", "the namespace has: q, r"],
        controllers="quota",
    )


@situation
def queue_of_no_quota() -> Situation:
    return Situation(
        _base(of_gpus("team-b", 0), local_queue("r", "team-b")),
        [job("mine", 1, 4, "r", "low")],
        ["it needs 4 nvidia.com/gpu", "0 nvidia.com/gpu at most: nominal 0"],
        controllers="quota",
    )
