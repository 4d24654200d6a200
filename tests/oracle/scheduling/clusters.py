"""Random clusters for comparing the engine with the oracle: plain dicts, the same for a seed.

At most 12 nodes and 60 pods. Names sort as UIDs and as the order of the lists do, so that ties by
name, by UID and by position are the same tie.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.oracle.scheduling.filters import ports_of
from tests.oracle.scheduling.objects import Object, name_of

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
PREEMPTOR_PRIORITY = 100
LOWER = (0, 10, 10, 10, 20, 50, 90)
PRIORITIES = (*LOWER, *LOWER, *LOWER, 100, 200)
APPS = ("a", "b", "c", "d")
SITUATIONS = (
    "ports",
    "own anti-affinity",
    "anti-affinity of victims",
    "anti-affinity in the group",
    "affinity",
    "spread",
    "taints",
    "selector",
    "claim of one pod",
    "zonal volume",
    "volume limit",
    "nominated",
    "terminating",
    "preferences",
)
MOST_NODES, MOST_PODS = 12, 60


def random_cluster(seed: int) -> Object:
    """A cluster with `pending` and `preemptor`, ready for `group.cycle`."""
    random = Random(seed)
    situations = random.sample(SITUATIONS, random.choice((0, 1, 1, 2, 2, 3)))
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


def pod(name: str, priority: int, requests: dict[str, str], labels: dict[str, str]) -> Object:
    container = {"name": "c", "image": "image", "resources": {"requests": requests}}
    spec = {
        "containers": [container],
        "schedulerName": "default-scheduler",
        "priority": priority,
    }
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {}}


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


def _affinity(each: Object, kind: str, key: str, labels: dict[str, str]) -> None:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    part = each["spec"].setdefault("affinity", {}).setdefault(kind, {})
    part.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(term)


def _ports(random: Random, cluster: Object) -> None:
    port = {"hostPort": 8080, "containerPort": 80}
    for each in cluster["pods"]:
        used = [
            p
            for other in cluster["pods"]
            if other["spec"]["nodeName"] == each["spec"]["nodeName"]
            for p in ports_of(other)
        ]
        if not used and random.random() < 0.4:
            each["spec"]["containers"][0]["ports"] = [port]
    for member in cluster["pending"]:
        member["spec"]["containers"][0]["ports"] = [port]


def _own_anti_affinity(random: Random, cluster: Object) -> None:
    labels, key = {"app": random.choice(APPS)}, random.choice((HOSTNAME, HOSTNAME, ZONE))
    for member in cluster["pending"]:
        _affinity(member, "podAntiAffinity", key, labels)


def _anti_affinity_of_victims(random: Random, cluster: Object) -> None:
    app = cluster["pending"][0]["metadata"]["labels"]["app"]
    key = random.choice((HOSTNAME, HOSTNAME, ZONE))
    for each in cluster["pods"]:
        if random.random() < 0.15:
            _affinity(each, "podAntiAffinity", key, {"app": app})


def _anti_affinity_in_group(random: Random, cluster: Object) -> None:
    key = random.choice((HOSTNAME, HOSTNAME, ZONE))
    for member in cluster["pending"]:
        _affinity(member, "podAntiAffinity", key, {"job": "preemptor"})


def _pod_affinity(random: Random, cluster: Object) -> None:
    labels = random.choice(({"job": "preemptor"}, {"app": random.choice(APPS)}))
    for member in cluster["pending"]:
        _affinity(member, "podAffinity", ZONE, labels)


def _spread(random: Random, cluster: Object) -> None:
    constraint: Object = {
        "topologyKey": random.choice((ZONE, ZONE, HOSTNAME)),
        "maxSkew": random.choice((1, 1, 2, 3)),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {
            "matchLabels": random.choice(
                (
                    {"job": "preemptor"},
                    {"app": cluster["pending"][0]["metadata"]["labels"]["app"]},
                    {"app": random.choice(APPS)},
                )
            )
        },
    }
    if random.random() < 0.2:
        constraint["minDomains"] = random.choice((2, 4))
    if random.random() < 0.2:
        constraint["nodeTaintsPolicy"] = "Honor"
    for member in cluster["pending"]:
        member["spec"]["topologySpreadConstraints"] = [constraint]


def _taints(random: Random, cluster: Object) -> None:
    for node in cluster["nodes"]:
        if random.random() < 0.25:
            effect = random.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
            node["spec"]["taints"] = [{"key": "dedicated", "value": "x", "effect": effect}]
        if random.random() < 0.1:
            node["spec"]["unschedulable"] = True
    if random.random() < 0.4:
        toleration = {"key": "dedicated", "operator": "Equal", "value": "x"}
        for member in cluster["pending"]:
            member["spec"]["tolerations"] = [toleration]


def _selector(random: Random, cluster: Object) -> None:
    for member in cluster["pending"]:
        member["spec"]["nodeSelector"] = {"pool": "a"}


def _claim(cluster: Object, name: str, mode: str, volume: Object) -> None:
    claim = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"accessModes": [mode], "volumeName": name, "storageClassName": "disk"},
        "status": {"phase": "Bound"},
    }
    cluster.setdefault("persistentVolumeClaims", []).append(claim)
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": [mode], **volume["spec"]}
    metadata = {"name": name, "labels": volume.get("labels", {})}
    cluster.setdefault("persistentVolumes", []).append({"metadata": metadata, "spec": spec})


def _mount(each: Object, claim: str) -> None:
    volumes = each["spec"].setdefault("volumes", [])
    volumes.append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})


def _claim_of_one_pod(random: Random, cluster: Object) -> None:
    _claim(cluster, "exclusive", "ReadWriteOncePod", {"spec": {}})
    _mount(cluster["pending"][0], "exclusive")
    if cluster["pods"] and random.random() < 0.8:
        _mount(random.choice(cluster["pods"]), "exclusive")


def _zonal_volume(random: Random, cluster: Object) -> None:
    zone = random.choice(("z0", "z1"))
    volume: Object = {"spec": {}, "labels": {ZONE: zone}}
    if random.random() < 0.5:
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        terms = [{"matchExpressions": [expression]}]
        volume = {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
    _claim(cluster, "zonal", "ReadWriteMany", volume)
    for member in cluster["pending"]:
        _mount(member, "zonal")


def _volume_limit(random: Random, cluster: Object) -> None:
    limits = [{"name": "disk.csi", "allocatable": {"count": random.choice((1, 2, 2, 3))}}]
    cluster["csiNodes"] = [
        {"metadata": {"name": name_of(n)}, "spec": {"drivers": limits}} for n in cluster["nodes"]
    ]
    for each in [*cluster["pods"], *cluster["pending"]]:
        if each in cluster["pending"] or random.random() < 0.4:
            name = f"disk-{name_of(each)}"
            csi = {"driver": "disk.csi", "volumeHandle": name}
            _claim(cluster, name, "ReadWriteMany", {"spec": {"csi": csi}})
            _mount(each, name)


def _nominated(random: Random, cluster: Object) -> None:
    for number in range(random.choice((1, 1, 2))):
        priority = random.choice((50, PREEMPTOR_PRIORITY, 200))
        requests = {"cpu": random.choice(("500m", "1")), "memory": "256Mi"}
        other = pod(f"n-{number}", priority, requests, {"app": random.choice(APPS)})
        other["status"]["nominatedNodeName"] = name_of(random.choice(cluster["nodes"]))
        cluster["nominated"].append(other)


def _terminating(random: Random, cluster: Object) -> None:
    nodes = set()
    for each in cluster["pods"]:
        if each["spec"].get("schedulingGroup", {}).get("podGroupName") == "preemptor":
            continue
        if random.random() < 0.12:
            each["metadata"]["deletionTimestamp"] = "2023-11-14T23:30:00Z"
            reason = random.choice(("PreemptionByScheduler", "PreemptionByScheduler", "Other"))
            condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
            if random.random() < 0.5:
                each["status"]["conditions"] = [condition]
            nodes.add(each["spec"]["nodeName"])
    if nodes and random.random() < 0.4:
        chosen = random.choice(cluster["pending"])
        chosen["status"]["nominatedNodeName"] = random.choice(sorted(nodes))


def _preferences(random: Random, cluster: Object) -> None:
    """Terms that only scores look at, and plain differences between nodes."""
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    key = random.choice((HOSTNAME, ZONE))
    term = {"labelSelector": {"matchLabels": {"app": random.choice(APPS)}}, "topologyKey": key}
    pool = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["b"]}]}
    anyway = {
        "topologyKey": random.choice((HOSTNAME, ZONE)),
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"job": "preemptor"}},
    }
    choice = random.choice(("node", "pods", "spread", "taint", "images"))
    for member in cluster["pending"]:
        spec: dict[str, Any] = member["spec"]
        if choice == "node":
            part = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
            part[kind] = [{"weight": 7, "preference": pool}]
        elif choice == "pods":
            side = random.choice(("podAffinity", "podAntiAffinity"))
            part = spec.setdefault("affinity", {}).setdefault(side, {})
            part[kind] = [{"weight": random.choice((1, 50, 100)), "podAffinityTerm": term}]
        elif choice == "spread":
            spec.setdefault("topologySpreadConstraints", []).append(anyway)
        elif choice == "images":
            spec["containers"][0]["image"] = "registry.example/big:1"
    for node in cluster["nodes"]:
        if choice == "taint" and random.random() < 0.4:
            taint = {"key": "spot", "effect": "PreferNoSchedule"}
            node["spec"]["taints"] = [*node["spec"].get("taints", ()), taint]
        if choice == "images" and random.random() < 0.5:
            image = {"names": ["registry.example/big:1"], "sizeBytes": 700 * 1024 * 1024}
            node["status"]["images"] = [image]


APPLY: dict[str, Callable[[Random, Object], None]] = {
    "ports": _ports,
    "own anti-affinity": _own_anti_affinity,
    "anti-affinity of victims": _anti_affinity_of_victims,
    "anti-affinity in the group": _anti_affinity_in_group,
    "affinity": _pod_affinity,
    "spread": _spread,
    "taints": _taints,
    "selector": _selector,
    "claim of one pod": _claim_of_one_pod,
    "zonal volume": _zonal_volume,
    "volume limit": _volume_limit,
    "nominated": _nominated,
    "terminating": _terminating,
    "preferences": _preferences,
}
