"""What may be special about a random cluster: constraints, claims, nominations, preferences.

Each function changes a finished cluster in place; `APPLY` has them by name.
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
APPS = ("a", "b", "c", "d")


def pod(name: str, priority: int, requests: dict[str, str], labels: dict[str, str]) -> Object:
    container = {"name": "c", "image": "image", "resources": {"requests": requests}}
    spec = {
        "containers": [container],
        "schedulerName": "default-scheduler",
        "priority": priority,
    }
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {}}


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


def _device_claim(cluster: Object, each: Object, count: int) -> Object:
    selector = {"cel": {"expression": 'device.attributes["gpu.example.com"].memory >= 40'}}
    exactly: Object = {"deviceClassName": "gpu", "count": count}
    if each in cluster["pending"]:
        exactly["selectors"] = [selector]
    claim = {
        "metadata": {"name": f"claim-{name_of(each)}", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {},
    }
    each["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name_of(claim)}]
    cluster.setdefault("resourceClaims", []).append(claim)
    return claim


def _devices(random: Random, cluster: Object) -> None:
    """A few devices per node, some of them held by placed pods, claims of the pending pods."""
    driver = "gpu.example.com"
    expression = {"cel": {"expression": f'device.driver == "{driver}"'}}
    cluster["deviceClasses"] = [{"metadata": {"name": "gpu"}, "spec": {"selectors": [expression]}}]
    cluster["resourceSlices"] = []
    for node in cluster["nodes"]:
        name = name_of(node)
        found = [
            {"name": f"gpu-{i}", "attributes": {"memory": {"int": random.choice((16, 40, 80))}}}
            for i in range(random.choice((0, 1, 2, 3)))
        ]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "pool": pool, "nodeName": name, "devices": found}
        cluster["resourceSlices"].append({"metadata": {"name": f"slice-{name}"}, "spec": spec})
        for each in cluster["pods"]:
            here = each["spec"]["nodeName"] == name
            mine = each["spec"].get("schedulingGroup", {}).get("podGroupName") == "preemptor"
            if not found or not here or mine or random.random() > 0.3:
                continue
            device = found[-1]["name"]
            result = {"request": "gpu", "driver": driver, "pool": name, "device": device}
            claim = _device_claim(cluster, each, 1)
            claim["status"] = {
                "allocation": {"devices": {"results": [result]}},
                "reservedFor": [{"resource": "pods", "name": name_of(each)}],
            }
            break
    for member in cluster["pending"]:
        _device_claim(cluster, member, random.choice((1, 1, 2)))


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
    "devices": _devices,
    "preferences": _preferences,
}
