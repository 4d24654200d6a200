"""Random clusters for comparing the engine with the oracle: plain dicts, the same for a seed.

At most 12 nodes and 60 pods. Names sort as UIDs and as the order of the lists do, so that ties by
name, by UID and by position are the same tie.
"""

from __future__ import annotations

from random import Random

from tests.oracle.scheduling.objects import Object, name_of
from tests.oracle.scheduling.situations import (
    APPLY,
    APPS,
    HOSTNAME,
    PREEMPTOR_PRIORITY,
    ZONE,
    pod,
)

LOWER = (0, 10, 10, 10, 20, 50, 90)
PRIORITIES = (*LOWER, *LOWER, *LOWER, 100, 200)
MOST_NODES, MOST_PODS = 12, 60


def random_cluster(seed: int) -> Object:
    """A cluster with `pending` and `preemptor`, ready for `group.cycle`."""
    random = Random(seed)
    situations = random.sample(tuple(APPLY), random.choice((0, 1, 1, 2, 2, 3)))
    preemptor = random.choice(("gang", "gang", "gang", "basic", "pod", "pod"))
    gate = preemptor != "pod" or random.random() < 0.8
    cluster: Object = {
        "seed": seed,
        "situations": situations,
        "features": {
            "GenericWorkload": gate,
            "PodGroupPreemptionPolicy": gate and random.random() < 0.15,
            "TopologyAwareWorkloadScheduling": gate and random.random() < 0.25,
            "CompositePodGroup": False,
        },
        "namespaces": [{"metadata": {"name": "default", "labels": {"team": "red"}}}],
        "nodes": _nodes(random, situations),
        "podGroups": [],
        "pods": [],
        "pending": [],
        "nominated": [],
        "pdbs": [_budget(random, i) for i in range(random.choice((0, 1, 1, 2, 3)))],
    }
    _victim_groups(random, cluster)
    _victims(random, cluster)
    _preemptor(random, cluster, preemptor)
    for situation in situations:
        APPLY[situation](random, cluster)
    return cluster


def _nodes(random: Random, situations: list[str]) -> list[Object]:
    zones = random.choice((1, 2, 3, 3))
    nodes = []
    for number in range(random.randint(2, MOST_NODES)):
        name = f"node-{number:02}"
        labels = {HOSTNAME: name, "pool": random.choice("ab")}
        if random.random() < 0.95:
            labels[ZONE] = f"z{number % zones}"
        allocatable = {
            "cpu": random.choice(("2", "2", "3", "4", "4")),
            "memory": random.choice(("8Gi", "16Gi")),
            "pods": random.choice(("4", "6", "110", "110")),
        }
        if random.random() < 0.4:
            allocatable["example.com/gpu"] = random.choice(("1", "2", "4"))
        status = {"capacity": allocatable, "allocatable": dict(allocatable)}
        metadata = {"name": name, "labels": labels}
        nodes.append({"metadata": metadata, "spec": {}, "status": status})
    return nodes


def _budget(random: Random, number: int) -> Object:
    selector: Object | None = {"matchLabels": {"app": random.choice(APPS)}}
    if random.random() < 0.1:
        selector = random.choice(({}, None))
    status: Object = {"disruptionsAllowed": random.choice((0, 0, 1, 1, 2, 3))}
    if random.random() < 0.2:
        status["disruptedPods"] = {f"v-{random.randrange(40):03}": "2023-11-14T22:00:00Z"}
    metadata = {"name": f"budget-{number}", "namespace": "default"}
    return {"metadata": metadata, "spec": {"selector": selector}, "status": status}


def _group(name: str, priority: int, gang: int | None, mode: str | None) -> Object:
    policy: Object = {"gang": {"minCount": gang}} if gang else {"basic": {}}
    spec: Object = {"schedulingPolicy": policy, "priority": priority}
    if mode:
        spec["disruptionMode"] = {mode: {}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": spec}


def _victim_groups(random: Random, cluster: Object) -> None:
    for number in range(random.choice((0, 1, 2, 3, 4))):
        gang = random.choice((None, 1, 2, 3))
        mode = random.choice(("all", "all", "single", None))
        name, priority = f"group-{number}", random.choice(PRIORITIES)
        cluster["podGroups"].append(_group(name, priority, gang, mode))


def _victims(random: Random, cluster: Object) -> None:
    """Fills the nodes up, so that seldom much is left."""
    number, most = 0, random.choice((20, 35, MOST_PODS - 8))
    full = random.choice((0.8, 1.0, 1.0, 1.0))
    rounds = max(1, most // len(cluster["nodes"]))
    for node in cluster["nodes"]:
        room = int(int(node["status"]["allocatable"]["cpu"]) * 1000 * full)
        places = min(int(node["status"]["allocatable"]["pods"]), rounds)
        gpus = int(node["status"]["allocatable"].get("example.com/gpu", "0"))
        for _ in range(places):
            cpu = random.choice((250, 500, 500, 1000, 1500))
            if cpu > room or number >= most:
                break
            room -= cpu
            requests = {"cpu": f"{cpu}m", "memory": random.choice(("256Mi", "512Mi", "1Gi"))}
            if gpus and random.random() < 0.4:
                gpus -= 1
                requests["example.com/gpu"] = "1"
            labels = {"app": random.choice(APPS)} if random.random() < 0.8 else {}
            victim = pod(f"v-{number:03}", random.choice(PRIORITIES), requests, labels)
            victim["spec"]["nodeName"] = name_of(node)
            if random.random() < 0.9:
                minute = random.choice((10, 10, 20, random.randrange(60)))
                victim["status"]["startTime"] = f"2023-11-14T22:{minute:02}:00Z"
            _join(random, victim, cluster)
            cluster["pods"].append(victim)
            number += 1


def _join(random: Random, victim: Object, cluster: Object) -> None:
    if not cluster["podGroups"] or random.random() > 0.5:
        return
    group = random.choice(cluster["podGroups"])
    name = "gone" if random.random() < 0.03 else name_of(group)
    victim["spec"]["schedulingGroup"] = {"podGroupName": name}
    if random.random() < 0.85:
        victim["spec"]["priority"] = group["spec"]["priority"]


def _preemptor(random: Random, cluster: Object, kind: str) -> None:
    size = 1 if kind == "pod" else random.randint(1, 6)
    requests = {
        "cpu": random.choice(("500m", "1", "1", "1500m", "1500m", "2")),
        "memory": random.choice(("256Mi", "1Gi")),
    }
    if random.random() < 0.2:
        requests["example.com/gpu"] = "1"
    app = random.choice(APPS)
    for number in range(size):
        own = dict(requests)
        if random.random() < 0.25:
            own["cpu"] = random.choice(("250m", "1", "2500m"))
        member = pod(f"p-{number}", PREEMPTOR_PRIORITY, own, {"app": app, "job": "preemptor"})
        cluster["pending"].append(member)
    if kind == "pod":
        cluster["preemptor"] = {"pod": "p-0"}
        if random.random() < 0.05:
            cluster["pending"][0]["spec"]["preemptionPolicy"] = "Never"
        return
    gang = random.choice((1, max(1, size - 1), size, size)) if kind == "gang" else None
    group = _group("preemptor", PREEMPTOR_PRIORITY, gang, random.choice(("all", "single", None)))
    if cluster["features"]["TopologyAwareWorkloadScheduling"] and random.random() < 0.7:
        group["spec"]["schedulingConstraints"] = {"topology": [{"key": ZONE}]}
    if cluster["features"]["PodGroupPreemptionPolicy"] and random.random() < 0.2:
        group["spec"]["preemptionPolicy"] = "Never"
    cluster["podGroups"].append(group)
    cluster["preemptor"] = {"podGroup": "preemptor"}
    for member in cluster["pending"]:
        member["spec"]["schedulingGroup"] = {"podGroupName": "preemptor"}
        if "preemptionPolicy" in group["spec"]:
            member["spec"]["preemptionPolicy"] = group["spec"]["preemptionPolicy"]
    if random.random() < 0.02:
        cluster["pending"][-1]["spec"]["priority"] = PREEMPTOR_PRIORITY - 1
    if size > 1 and random.random() < 0.2:
        # One member runs already.
        first = cluster["pending"].pop(0)
        first["spec"]["nodeName"] = name_of(random.choice(cluster["nodes"]))
        first["status"]["startTime"] = "2023-11-14T23:00:00Z"
        cluster["pods"].append(first)
