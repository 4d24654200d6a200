"""Clusters as strangers have them, drawn at random: nodes, queues, and how the operator is set.

Each thing that a ClusterQueue, a flavor or a namespace can say is drawn with a probability of its
own, so that it comes alone and together with others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from reprieve.jobs.table import job_kinds
from reprieve.scenarios.model import NodeSpec
from tests.quota_plane.site import cluster_queue, flavor, local_queue
from tests.quota_plane.site import priority_class as workload_class
from tests.scheduling.site import NAMESPACE, node, priority_class
from tests.whatif.playing import Object
from tests.whatif.proof import GPU, PRIORITIES

__all__ = ["QUEUES", "TAINT", "base", "config", "nodes"]

TAINT = {"key": "team", "value": "other", "effect": "NoSchedule"}
QUEUES = 3
_DISKS = ("fast", "slow")
_API = "kueue.x-k8s.io/v1beta2"


def nodes(random: Random, planes: str) -> Sequence[NodeSpec]:
    """Return two to four nodes of two kinds, some with GPUs, some with a taint."""
    return [_node(random, number, planes) for number in range(random.randint(2, 4))]


def _node(random: Random, number: int, planes: str) -> NodeSpec:
    labels = {"disk": _DISKS[number % 2], "zone": random.choice("ab")}
    if random.random() < 0.25:
        labels["devices"] = str(random.randint(1, 3))
    found = node(f"node-{number}", random.choice((4, 6, 8)), **labels)
    has_gpus = "idle" in planes or random.random() < 0.3
    amounts = found.allocatable | ({GPU: "4"} if has_gpus else {})
    taints = [TAINT] if number > 1 and random.random() < 0.4 else []
    return msgspec.structs.replace(found, allocatable=amounts, taints=taints)


def base(random: Random, planes: str) -> Iterator[Object]:
    """Yield what administrators have set up."""
    for name, value in PRIORITIES.items():
        never = random.random() < 0.1
        yield priority_class(name, value, "Never" if never else "PreemptLowerPriority")
    if random.random() < 0.2:
        yield _limit_range(random)
    if random.random() < 0.2:
        yield _budget(random)
    yield from _devices(random)
    if "quota" in planes:
        yield from _quotas(random, planes)


def config(random: Random, planes: str) -> Object:
    """Return what the operator is told: all kinds are queued, and what else is drawn."""
    if "quota" not in planes:
        return {}
    said: Object = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": sorted({kind.framework for kind in job_kinds()})},
    }
    if random.random() < 0.25:
        said["fairSharing"] = {
            "preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
        }
    if random.random() < 0.15:
        block = {"blockAdmission": random.random() < 0.5}
        said["waitForPodsReady"] = {"timeout": "2h", "recoveryTimeout": "2h", **block}
    return {"quota": {"webhooks": {"url": "https://127.0.0.1:0"}, "configuration": said}}


def _devices(random: Random) -> Iterator[Object]:
    """Yield a class of devices, a template of claims, and a claim that pods share."""
    device: Object = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    if random.random() < 0.3:
        device["exactly"]["count"] = 2
    spec = {"devices": {"requests": [device]}}
    driver = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [driver]},
    }
    for kind, body in (("ResourceClaimTemplate", {"spec": spec}), ("ResourceClaim", spec)):
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "gpus", "namespace": NAMESPACE},
            "spec": body,
        }


def _limit_range(random: Random) -> Object:
    limits = {"type": "Container", "defaultRequest": {"cpu": random.choice(("250m", "1"))}}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": NAMESPACE},
        "spec": {"limits": [limits]},
    }


def _budget(random: Random) -> Object:
    """Return a budget for pods with the label `tier: guarded`."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": NAMESPACE},
        "spec": {
            "maxUnavailable": random.randint(0, 1),
            "selector": {"matchLabels": {"tier": "guarded"}},
        },
    }


def _quotas(random: Random, planes: str) -> Iterator[Object]:
    yield flavor()
    for disk in _DISKS:
        taints = [TAINT] if disk == "slow" and random.random() < 0.3 else []
        tolerations = [{"key": "team", "operator": "Exists"}] if random.random() < 0.2 else []
        yield flavor(disk, nodeLabels={"disk": disk}, nodeTaints=taints, tolerations=tolerations)
    if random.random() < 0.3:
        yield _cohort(random, "root", "")
        yield _cohort(random, "cohort", "root")
    check = random.random() < 0.15
    if check:
        yield _object("AdmissionCheck", "asks", {"controllerName": "example.org/nobody"})
    for number in range(QUEUES):
        yield _cluster_queue(random, number, planes, check=check)
        yield local_queue(f"q-{number}", f"cq-{number}")
        if random.random() < 0.05:
            held = local_queue(f"held-{number}", f"cq-{number}")
            held["spec"]["stopPolicy"] = "Hold"
            yield held
    yield local_queue("lost", "nowhere")
    for name, value in PRIORITIES.items():
        yield workload_class(f"w-{name}", value)


def _cohort(random: Random, name: str, parent: str) -> Object:
    spec: Object = {}
    if parent:
        spec["parentName"] = parent
    if random.random() < 0.5:
        amount = {"name": "cpu", "nominalQuota": str(random.randint(1, 3))}
        flavors = [{"name": "default-flavor", "resources": [amount]}]
        spec["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": flavors}]
    return _object("Cohort", name, spec)


def _cluster_queue(random: Random, number: int, planes: str, *, check: bool) -> Object:
    cohort = random.choice(("cohort", "cohort", "cohort", "root", ""))
    found = cluster_queue(f"cq-{number}", 1, cohort, preemption=_preemption(random))
    spec = found["spec"]
    spec["resourceGroups"] = list(_groups(random, planes, borrows=bool(cohort)))
    if random.random() < 0.3:
        spec["queueingStrategy"] = "StrictFIFO"
    if random.random() < 0.3:
        spec["flavorFungibility"] = {
            "whenCanBorrow": random.choice(("MayStopSearch", "TryNextFlavor")),
            "whenCanPreempt": random.choice(("MayStopSearch", "TryNextFlavor")),
        }
    if random.random() < 0.2:
        spec["fairSharing"] = {"weight": random.choice(("500m", "2"))}
    if random.random() < 0.07:
        spec["stopPolicy"] = random.choice(("Hold", "HoldAndDrain"))
    if random.random() < 0.07:
        spec["namespaceSelector"] = {"matchLabels": {"team": "b"}}
    if check and random.random() < 0.4:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": "asks"}]}
    return found


def _preemption(random: Random) -> Object:
    within = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
    found: Object = {
        "withinClusterQueue": random.choice(within),
        "reclaimWithinCohort": random.choice(("Never", "LowerPriority", "Any")),
    }
    if found["reclaimWithinCohort"] != "Never" and random.random() < 0.3:
        found["borrowWithinCohort"] = {"policy": "LowerPriority"}
        if random.random() < 0.5:
            found["borrowWithinCohort"]["maxPriorityThreshold"] = PRIORITIES["middle"]
    return found


def _groups(random: Random, planes: str, *, borrows: bool) -> Iterator[Object]:
    """Yield groups of resources: GPUs with the rest, or with flavors of their own."""
    covered = ["cpu", *(["memory"] if random.random() < 0.3 else [])]
    with_gpus = "idle" in planes or random.random() < 0.5
    apart = with_gpus and random.random() < 0.3
    if with_gpus and not apart:
        covered.append(GPU)
    names = random.choice((["default-flavor"], ["default-flavor"], list(_DISKS), ["slow", "fast"]))
    yield _group(random, covered, names, borrows=borrows)
    if apart:
        left = [name for name in ("default-flavor", *_DISKS) if name not in names]
        yield _group(random, [GPU], left[:1], borrows=borrows)


def _group(random: Random, covered: list[str], names: list[str], *, borrows: bool) -> Object:
    def resource(name: str) -> Object:
        least, most = {"memory": (4, 24), GPU: (2, 8)}.get(name, (1, 6))
        unit = "Gi" if name == "memory" else ""
        found: Object = {"name": name, "nominalQuota": f"{random.randint(least, most)}{unit}"}
        if borrows and random.random() < 0.25:
            found["borrowingLimit"] = f"{random.randint(0, 2)}{unit}"
        if borrows and random.random() < 0.2:
            found["lendingLimit"] = f"{random.randint(0, 1)}{unit}"
        return found

    flavors = [{"name": name, "resources": [resource(each) for each in covered]} for name in names]
    return {"coveredResources": covered, "flavors": flavors}


def _object(kind: str, name: str, spec: Any) -> Object:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}
