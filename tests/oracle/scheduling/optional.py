"""Random clusters for the options beyond the KEP: what annotations and other planes say there.

Made from the random clusters without, the same for a seed. All facts are there whether or not their
option is on, so that a case can be decided with an option and without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count
from random import Random

from tests.oracle.scheduling.clusters import random_cluster
from tests.oracle.scheduling.forests import random_forest
from tests.oracle.scheduling.objects import Object, name_of
from tests.oracle.scheduling.situations import APPLY, PREEMPTOR_PRIORITY, ZONE

NOW = 1_700_004_600  # 2023-11-14T23:30:00Z; pods started between 22:00 and 23:00
ZONAL = frozenset({"maxPlacements", "topologyPreemption", "cascadeAware"})
OF_GROUPS = ZONAL | {"binarySearchPriority", "compositePriority"}

#: The values of each option that is on.
VALUES: dict[str, Callable[[Random], object]] = {
    "nonUniformGroups": lambda random: True,
    "preemptionPriority": lambda random: {
        "cap": random.choice((60, 150, 10**9)),
        "namespaces": random.choice(({}, {}, {"default": 90}, {"elsewhere": 0})),
    },
    "binarySearchPriority": lambda random: True,
    "harmOrder": lambda random: True,
    "maxLostWork": lambda random: random.choice((600, 1_800, 7_200)),
    "maxPlacements": lambda random: random.choice((2, 2, 3, 4, 8)),
    "topologyPreemption": lambda random: True,
    "cascadeAware": lambda random: True,
    "simulateClaims": lambda random: True,
    "compositePriority": lambda random: "Nearest",
    "maxMinRuntime": lambda random: random.choice((900, 900, 3_300, 36_000)),
}
OPTIONS = tuple(VALUES)
_EXISTS = {"operator": "Exists"}


def random_optional(seed: int, options: Collection[str]) -> Object:
    """A cluster with these options on, ready for `group.cycle`."""
    random = Random(f"optional {seed}")
    trees = "compositePriority" in options or random.random() < 0.15
    made = random_forest if trees else random_cluster
    for number in count(seed * 1_000):
        case = made(number)
        # Where the nearest priority is asked for, groups of one tree have several.
        several = bool(case.get("compositePriority")) or "compositePriority" not in options
        grouped = "podGroup" in case["preemptor"] or not OF_GROUPS & set(options)
        if several and grouped:
            break
    case.pop("compositePriority", None)
    case["seed"], case["now"] = seed, NOW
    if "simulateClaims" in options:
        _claims(random, case)
    if ZONAL & set(options):
        _within_zones(random, case)
    if "cascadeAware" in options:
        _elsewhere(random, case)
    _equals(random, case, 1.0 if "cascadeAware" in options else 0.5)
    _priority_classes(random, case)
    if "nonUniformGroups" in options and "terminating" not in case["situations"]:
        APPLY["terminating"](random, case)
        case["situations"].append("terminating")
    if "nonUniformGroups" in options:
        _larger_groups(random, case)
    _disruption(random, case, many="nonUniformGroups" in options)
    if "maxMinRuntime" in options:
        _just_started(random, case)
    _work(random, case)
    return {**case, **{name: VALUES[name](random) for name in OPTIONS if name in options}}


def without(case: Object, option: str) -> Object:
    """The same case with an option off."""
    return {key: value for key, value in case.items() if key != option}


def _say(each: Object, name: str, value: str) -> None:
    each["metadata"].setdefault("annotations", {})[f"reprieve.dev/{name}"] = value


def _groups(case: Object) -> list[Object]:
    return [each for each in case["podGroups"] if "preemptor" not in name_of(each)]


def _claims(random: Random, case: Object) -> None:
    """Devices or attachments that only victims use."""
    if random.random() < 0.6 and "devices" not in case["situations"]:
        APPLY["devices"](random, case)
        case["situations"].append("devices")
    elif "volume limit" not in case["situations"]:
        APPLY["volume limit"](random, case)
        case["situations"].append("volume limit")
    for claim in case.get("resourceClaims") or ():
        for user in claim["status"].get("reservedFor") or ():
            user["uid"] = user["name"]
    case["volumeAttachments"] = [
        {
            "metadata": {"name": f"attached-{name_of(each)}"},
            "spec": {
                "attacher": "disk.csi",
                "nodeName": each["spec"]["nodeName"],
                "source": {"persistentVolumeName": f"disk-{name_of(each)}"},
            },
        }
        for each in case["pods"]
        if any(v["name"] == f"disk-{name_of(each)}" for v in each["spec"].get("volumes") or ())
        and random.random() < 0.7
    ]


def _within_zones(random: Random, case: Object) -> None:
    trees = case["features"]["CompositePodGroup"]  # which need constraints
    case["features"]["TopologyAwareWorkloadScheduling"] = trees or random.random() < 0.95
    for each in (*case["podGroups"], *case.get("compositePodGroups", ())):
        top = "parentCompositePodGroupName" not in each["spec"]
        if name_of(each) in ("preemptor", "root") and top and random.random() < 0.9:
            each["spec"]["schedulingConstraints"] = {"topology": [{"key": ZONE}]}


def _elsewhere(random: Random, case: Object) -> None:
    """Full nodes of victims of one size, and a free one that only some of these tolerate."""
    for number, node in enumerate(case["nodes"]):
        node["metadata"]["labels"][ZONE] = f"z{number % 4}"
        here = sum(each["spec"]["nodeName"] == name_of(node) for each in case["pods"])
        node["status"]["allocatable"]["cpu"] = f"{max(2, here) * 500}m"
    taint = {"key": "spare", "effect": "NoSchedule"}
    amounts = {"cpu": "2", "memory": "16Gi", "pods": "110", "example.com/gpu": "8"}
    status = {"capacity": amounts, "allocatable": dict(amounts)}
    metadata = {"name": "spare", "labels": {"kubernetes.io/hostname": "spare"}}
    case["nodes"].append({"metadata": metadata, "spec": {"taints": [taint]}, "status": status})
    for group in _groups(case):
        group["spec"].pop("disruptionMode", None)
    for each in case["pods"]:
        if random.random() < 0.5:
            each["spec"].setdefault("tolerations", []).append({"key": "spare", **_EXISTS})
        each["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500m"
    for each in case["pending"]:
        each["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    case["pdbs"] = []


def _equals(random: Random, case: Object, share: float) -> None:
    """In a share of the cases all that is lower is equally low, or nobody says when it started."""
    if random.random() < share:
        for each in (*case["pods"], *case["podGroups"], *case.get("compositePodGroups", ())):
            if 0 <= each["spec"]["priority"] < PREEMPTOR_PRIORITY:
                each["spec"]["priority"] = 10
    if random.random() < share:
        for each in case["pods"]:
            each["status"].pop("startTime", None)


def _priority_classes(random: Random, case: Object) -> None:
    case["priorityClasses"] = [
        {"metadata": {"name": f"class-{number}"}, "value": value}
        for number, value in enumerate((-5, 15, 55, 120, 300))
    ]
    for each in (*_groups(case), *case["pods"]):
        if random.random() < 0.3:
            _say(each, "preemption-priority-class", f"class-{random.randrange(6)}")


def _disruption(random: Random, case: Object, *, many: bool) -> None:
    for each in _groups(case):
        if many:
            for pod in case["pods"]:
                mine = pod["spec"].get("schedulingGroup", {}).get("podGroupName") == name_of(each)
                if mine and random.random() < 0.3:
                    pod["metadata"]["deletionTimestamp"] = "2023-11-14T23:30:00Z"
        if random.random() < 0.6:
            text = random.choice(("1", "2", "3", "4", "4", "0", "-1", "all"))
            _say(each, "disruption-floor", text)
        for pod in case["pods"]:
            mine = pod["spec"].get("schedulingGroup", {}).get("podGroupName") == name_of(each)
            if mine and random.random() < 0.15:
                _say(pod, "disruption", random.choice(("with-group", "with-group", "alone")))


def _larger_groups(random: Random, case: Object) -> None:
    """Most groups of victims have no mode, one priority, and more pods."""
    for each in _groups(case):
        if random.random() < 0.7:
            each["spec"].pop("disruptionMode", None)
            each["spec"]["priority"] = random.choice((10, 10, 20))
            for pod in case["pods"]:
                if "schedulingGroup" not in pod["spec"] and random.random() < 0.25:
                    pod["spec"]["schedulingGroup"] = {"podGroupName": name_of(each)}


def _just_started(random: Random, case: Object) -> None:
    for each in case["pods"]:
        if random.random() < 0.5:
            each["status"]["startTime"] = f"2023-11-14T23:{random.randrange(30):02}:00Z"
    for each in _groups(case):
        if random.random() < 0.4:
            _say(each, "preempt-min-runtime", random.choice(("20m", "50m", "1h")))


def _work(random: Random, case: Object) -> None:
    """Devices, of which nobody lacks any; checkpoints, some in the future; what is idle."""
    for node in case["nodes"]:
        for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
            amounts["example.com/tile"] = "1000"
    for each in case["pods"]:
        requests = each["spec"]["containers"][0]["resources"]["requests"]
        requests["example.com/tile"] = random.choice(("1", "1", "2", "8"))
    for each in (*_groups(case), *case["pods"], *case["priorityClasses"], *case["namespaces"]):
        if random.random() < 0.3:
            _say(each, "preempt-min-runtime", random.choice(("10m", "50m", "1h", "80m", "long")))
    for each in case["pods"]:
        if random.random() < 0.2:
            each["spec"]["priorityClassName"] = f"class-{random.randrange(5)}"
    for each in (*_groups(case), *case["pods"]):
        if random.random() < 0.35:
            minute = random.randrange(0, 45)
            text = random.choice((f"2023-11-14T23:{minute:02}:00Z",) * 9 + ("yesterday",))
            _say(each, "last-checkpoint", text)
    names = [name_of(each) for each in case["pods"]]
    case["gpuWorkloads"] = [
        {
            "metadata": {"name": f"work-{number}", "uid": f"uid-work-{number}"},
            "spec": {"workloadRef": {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}},
            "status": {
                "phase": random.choice(("Idle", "Idle", "Idle", "Active")),
                "trackedPods": [
                    {"podName": name}
                    for name in random.sample(names, min(len(names), random.randrange(1, 6)))
                ],
                "lastMetricsUpdate": random.choice(
                    ("2023-11-14T23:29:00Z",) * 3 + ("2023-11-14T23:20:00Z",)
                ),
            },
        }
        for number in range(random.randrange(3))
    ]
    for work in case["gpuWorkloads"]:
        work["spec"]["gpuResources"] = {"example.com/tile": 1}
