"""Situations of nodes: what they are, what they hold, and what the pod asks of them."""

from __future__ import annotations

from typing import Any

from tests.situations.asked import Situation, situation
from tests.whatif.plan_stories import GPU, Object, job, namespace, node, pod, priority

AMD = "amd.com/gpu"
_THERE = (namespace(), priority("low", 100), priority("high", 1000))


def tainted(name: str, key: str, value: str, gpus: int = 8, **labels: str) -> Object:
    made = node(name, gpus, **labels)
    taint = {"key": key, "effect": "NoSchedule", **({"value": value} if value else {})}
    made["spec"]["taints"] = [taint]
    return made


def cordoned(name: str) -> Object:
    made = node(name)
    made["spec"]["unschedulable"] = True
    return made


def of_amd(name: str, gpus: int = 8) -> Object:
    made = node(name)
    for part in ("allocatable", "capacity"):
        made["status"][part].pop(GPU, None)
        made["status"][part][AMD] = str(gpus)
    return made


def asking(name: str, amounts: dict[str, str], **spec: Any) -> Object:
    """Return a pod that asks for exactly these amounts."""
    made = pod(name, 1, **spec)
    resources = {"requests": amounts, "limits": {k: v for k, v in amounts.items() if "/" in k}}
    made["spec"]["containers"][0]["resources"] = resources
    return made


@situation
def taint_that_is_not_tolerated() -> Situation:
    nodes = [tainted(f"gpu-{n}", "dedicated", "research") for n in range(2)]
    return Situation(
        (*_THERE, *nodes),
        [pod("mine", 1)],
        [
            "2 of 2 nodes have the taint dedicated=research:NoSchedule",
            "{key: dedicated, operator: Equal, value: research, effect: NoSchedule}",
        ],
    )


@situation
def taint_without_a_value() -> Situation:
    return Situation(
        (*_THERE, tainted("gpu-0", GPU, "")),
        [pod("mine", 1)],
        [
            "1 of 1 node has the taint nvidia.com/gpu:NoSchedule",
            "{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}",
        ],
    )


@situation
def label_with_another_value() -> Situation:
    nodes = [node(f"gpu-{n}", pool="infer") for n in range(2)]
    return Situation(
        (*_THERE, *nodes),
        [pod("mine", 1, nodeSelector={"pool": "train"})],
        ["no node has the label pool=train", "nodes have pool=infer"],
    )


@situation
def label_that_no_node_has() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0")),
        [pod("mine", 1, nodeSelector={"disk": "nvme"})],
        ["no node has the label disk=nvme", "no node has a label disk"],
    )


@situation
def affinity_that_no_node_meets() -> Situation:
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100", "h200"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return Situation(
        (*_THERE, node("gpu-0", gpu="a100")),
        [pod("mine", 1, affinity={"nodeAffinity": required})],
        ["no node meets its node affinity (gpu in h100, h200)", "nodes have gpu=a100"],
    )


@situation
def gpus_of_another_vendor() -> Situation:
    return Situation(
        (*_THERE, of_amd("gpu-0"), of_amd("gpu-1")),
        [pod("mine", 1)],
        ["no node has nvidia.com/gpu (this cluster has amd.com/gpu)"],
    )


@situation
def resource_with_a_typing_error() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0")),
        [asking("mine", {"cpu": "1", "nvidia.com/gpus": "1"})],
        ["no node has nvidia.com/gpus (this cluster has nvidia.com/gpu)"],
    )


@situation
def more_gpus_than_the_largest_node() -> Situation:
    return Situation(
        (*_THERE, node("small", 4), node("large", 8)),
        [pod("mine", 16)],
        ["it requests 16 nvidia.com/gpu", "the largest node, large, has 8"],
    )


@situation
def more_cpu_than_the_largest_node() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [asking("mine", {"cpu": "96"})],
        ["it requests 96 cpu", "the largest node, gpu-0, has 64"],
    )


@situation
def more_memory_than_the_largest_node() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0")),
        [asking("mine", {"cpu": "1", "memory": "1Ti"})],
        ["it requests 1Ti memory", "the largest node, gpu-0, has 512Gi"],
    )


@situation
def volume_claim_that_is_not_there() -> Situation:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return Situation(
        (*_THERE, node("gpu-0")),
        [pod("mine", 1, volumes=volumes)],
        ["PersistentVolumeClaim team/data does not exist"],
    )


@situation
def nodes_that_are_cordoned() -> Situation:
    return Situation(
        (*_THERE, cordoned("gpu-0"), cordoned("gpu-1")),
        [pod("mine", 1)],
        ["2 of 2 nodes are cordoned: gpu-0, gpu-1", "kubectl uncordon gpu-0"],
    )


@situation
def node_name_that_is_not_there() -> Situation:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-9"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return Situation(
        (*_THERE, node("gpu-0")),
        [pod("mine", 1, affinity={"nodeAffinity": required})],
        ["there is no node gpu-9"],
    )


@situation
def each_node_has_another_reason() -> Situation:
    nodes = (
        tainted("research-0", "dedicated", "research", pool="train"),
        node("infer-0", pool="infer"),
        node("small-0", 2, pool="train"),
    )
    return Situation(
        (*_THERE, *nodes),
        [pod("mine", 8, nodeSelector={"pool": "train"})],
        [
            "1 of 3 nodes has the taint dedicated=research:NoSchedule",
            "1 does not have the label pool=train",
            "1 is too small: it requests 8 nvidia.com/gpu, that node, small-0, has 2",
            "{key: dedicated, operator: Equal, value: research, effect: NoSchedule}",
        ],
    )


@situation
def full_nodes_and_a_free_one_behind_a_taint() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), tainted("gpu-1", "dedicated", "research")),
        [pod("mine", 8, "low")],
        [
            "it lacks 8 nvidia.com/gpu",
            "capacity on 1 node with the taint dedicated=research:NoSchedule",
        ],
        [[pod("old", 8, "low")]],
    )


@situation
def full_and_a_higher_class_helps() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0")),
        [pod("mine", 8, "low")],
        ["it lacks 8 nvidia.com/gpu", "With spec.priorityClassName high instead of low it starts"],
        [[pod("old", 8, "low")]],
        explain_expects=["Pod team/old 8 nvidia.com/gpu"],
    )


@situation
def cpu_only_work_on_full_nodes() -> Situation:
    return Situation(
        (*_THERE, node("cpu-0", 0)),
        [asking("mine", {"cpu": "32"}, priority="low")],
        ["it lacks 24 cpu in cpu-0"],
        [[asking("old", {"cpu": "56"}, priority="low")]],
    )


@situation
def host_port_that_is_in_use() -> Situation:
    def serving(name: str) -> Object:
        made = asking(name, {"cpu": "1"})
        made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        return made

    return Situation(
        (*_THERE, node("gpu-0")),
        [serving("mine")],
        ["1 of 1 node has host port 8080 in use"],
        [[serving("old")]],
    )


@situation
def anti_affinity_on_every_node() -> Situation:
    def alone(name: str) -> Object:
        made = asking(name, {"cpu": "1"})
        made["metadata"]["labels"] = {"app": "web"}
        term = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        made["spec"]["affinity"] = {"podAntiAffinity": rule}
        return made

    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [alone("mine")],
        ["2 of 2 nodes are refused by its pod anti-affinity (kubernetes.io/hostname)"],
        [[alone("a"), alone("b")]],
    )


@situation
def spread_by_a_label_that_no_node_has() -> Situation:
    spread = {
        "maxSkew": 1,
        "topologyKey": "example.com/rack",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    made = pod("mine", 1, topologySpreadConstraints=[spread])
    made["metadata"]["labels"] = {"app": "web"}
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [made],
        [
            "2 of 2 nodes have no label example.com/rack, which its topology spread requires",
        ],
    )


def _near(name: str, key: str, app: str) -> Object:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return pod(name, 1, affinity={"podAffinity": rule})


@situation
def affinity_to_pods_of_which_none_runs() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [_near("mine", "kubernetes.io/hostname", "cache")],
        ["no running pod has app=cache in namespace team"],
        [[pod("old", 1)]],
    )


@situation
def affinity_to_a_pod_on_a_full_node() -> Situation:
    cache = pod("cache", 4, "high")
    cache["metadata"]["labels"] = {"app": "cache"}
    return Situation(
        (*_THERE, node("gpu-0")),
        [_near("mine", "kubernetes.io/hostname", "cache")],
        ["it lacks 1 nvidia.com/gpu"],
        [[cache, pod("old", 4, "high")]],
        plan_expects=["WAITS"],
    )


@situation
def affinity_by_a_label_that_no_node_has() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [_near("mine", "example.com/rack", "cache")],
        ["2 of 2 nodes have no label example.com/rack, which its pod affinity requires"],
    )


@situation
def preemption_policy_never() -> Situation:
    never = {**priority("polite", 2000), "preemptionPolicy": "Never"}
    return Situation(
        (*_THERE, never, node("gpu-0")),
        [pod("mine", 8, "polite", preemptionPolicy="Never")],
        ["preemptionPolicy: Never", "it lacks 8 nvidia.com/gpu"],
        [[pod("old", 8, "low")]],
    )


@situation
def scheduling_gate() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0")),
        [pod("mine", 1, schedulingGates=[{"name": "example.com/approval"}])],
        ["scheduling gate example.com/approval"],
    )


@situation
def job_whose_pods_no_node_takes() -> Situation:
    return Situation(
        (*_THERE, of_amd("gpu-0")),
        [job("mine", 2, 4)],
        ["no node has nvidia.com/gpu (this cluster has amd.com/gpu)"],
    )


@situation
def cluster_without_gpus() -> Situation:
    made = node("cpu-0")
    for part in ("allocatable", "capacity"):
        made["status"][part].pop(GPU, None)
    return Situation(
        (*_THERE, made),
        [pod("mine", 1)],
        ["no node has nvidia.com/gpu (no node of this cluster has GPUs)"],
    )


@situation
def nodes_that_are_not_ready() -> Situation:
    made = node("gpu-0")
    made["spec"]["taints"] = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    return Situation(
        (*_THERE, made),
        [pod("mine", 1)],
        ["1 of 1 node is not ready: gpu-0", "kubectl describe node gpu-0"],
    )


@situation
def work_that_did_not_opt_in() -> Situation:
    held = asking("old", {"cpu": "1", AMD: "8"}, priority="low")
    return Situation(
        (*_THERE, of_amd("gpu-0")),
        [asking("mine", {"cpu": "1", AMD: "8"}, priority="low")],
        ["it lacks 8 amd.com/gpu", "It has not opted in itself"],
        [[held]],
        "idle,scheduling",
        explain_expects=[
            "kubectl -n team annotate pod mine kaiwo.silogen.ai/gpu-preemption.enabled=true"
        ],
        plan_expects=['annotate it with kaiwo.silogen.ai/gpu-preemption.enabled: "true"'],
    )


@situation
def job_of_more_pods_than_its_nodes_hold() -> Situation:
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [job("mine", 3, 8)],
        ["ts own pods use the nodes that it accepts", "it lacks 8 nvidia.com/gpu"],
        plan_expects=["2 of 3 pods placed", "Submit 2 pods at most, request less, or add nodes"],
        explain_expects=["Submit fewer pods, request less, or add nodes"],
        never=["lower priority", "higher priority"],
    )


@situation
def job_of_more_pods_than_others_leave_it() -> Situation:
    """One pod of another stands beside its own: its end would do."""
    return Situation(
        (*_THERE, node("gpu-0"), node("gpu-1")),
        [job("mine", 2, 8)],
        ["nodes that it accepts are full, and no work on them is of lower priority"],
        [[pod("old", 8)]],
        never=["Its own pods"],
    )


@situation
def job_that_is_suspended_in_no_queue() -> Situation:
    mine = job("mine", 2, 4)
    mine["spec"]["suspend"] = True
    return Situation(
        (*_THERE, node("gpu-0")),
        [mine],
        ["it is suspended (spec.suspend: true)"],
        explain_expects=["kubectl -n team patch job mine --type merge"],
    )


@situation
def spread_over_zones() -> Situation:
    def spread(name: str) -> Object:
        made = asking(name, {"cpu": "1"})
        made["metadata"]["labels"] = {"app": "web"}
        rule = {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        made["spec"]["topologySpreadConstraints"] = [rule]
        return made

    full = [spread("a"), asking("b", {"cpu": "64"}, nodeSelector={"zone": "b"})]
    return Situation(
        (*_THERE, node("a-0", zone="a"), node("b-0", zone="b")),
        [spread("mine")],
        ["1 of 2 nodes is refused by its topology spread (zone, maxSkew 1)"],
        [[full[1]], [full[0]]],
    )
