"""Filters of volumes and devices against the naive oracle, on random clusters of API objects."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from reprieve.engine.placement.profile import FilterName, Policy, Profile
from reprieve.engine.placement.reasons import PLUGIN, RESOLVABLE, Reason, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.wording.rejections import reason_text
from tests.engine.api_objects import Json, cluster_of
from tests.engine.builders import pending_of
from tests.oracle.scheduling import devices, volumes
from tests.oracle.scheduling.filters import Filter
from tests.oracle.scheduling.objects import Cluster

CASES = 400
ZONE = "topology.kubernetes.io/zone"
SELECTED = "volume.kubernetes.io/selected-node"
DRIVER = "gpu.example.com"
FILTERS: dict[FilterName, Filter] = {
    FilterName.VOLUME_RESTRICTIONS: volumes.volume_restrictions,
    FilterName.NODE_VOLUME_LIMITS: volumes.node_volume_limits,
    FilterName.VOLUME_BINDING: volumes.volume_binding,
    FilterName.VOLUME_ZONE: volumes.volume_zone,
    FilterName.DYNAMIC_RESOURCES: devices.dynamic_resources,
}


def _cluster(numbers: random.Random) -> Json:
    case: Json = {kind: [] for kind in ("persistentVolumeClaims", "persistentVolumes", "pods")}
    nodes = [f"n{n}" for n in range(3)]
    zones = {name: numbers.choice("ab") for name in nodes}
    case["nodes"] = [
        {
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name}
                | ({ZONE: zones[name]} if numbers.random() < 0.8 else {}),
            },
            "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "20"}},
        }
        for name in nodes
    ]
    case["storageClasses"] = [
        _class("static", "kubernetes.io/no-provisioner"),
        _class("made", "csi.example.com", **_topologies(numbers)),
        {**_class("now", "csi.example.com"), "volumeBindingMode": "Immediate"},
    ]
    case["csiDrivers"] = [
        {
            "metadata": {"name": "csi.example.com"},
            "spec": {
                "storageCapacity": numbers.random() < 0.5,
                "preventPodSchedulingIfMissing": numbers.random() < 0.3,
            },
        }
    ]
    case["csiStorageCapacities"] = [
        {
            "metadata": {"name": f"s{n}", "namespace": "default"},
            "storageClassName": "made",
            "nodeTopology": {"matchLabels": {ZONE: numbers.choice("ab")}},
            "capacity": f"{numbers.randint(1, 9)}Gi",
        }
        for n in range(numbers.randint(0, 2))
    ]
    case["csiNodes"] = [
        {
            "metadata": {"name": name},
            "spec": {
                "drivers": [{"name": "csi.example.com", "allocatable": {"count": 2}}][
                    : numbers.randint(0, 4)
                ]
            },
        }
        for name in nodes
    ]
    for number in range(5):
        _volume(numbers, case, number, nodes)
    case["volumeAttachments"] = [
        {
            "metadata": {"name": f"va{n}"},
            "spec": {
                "attacher": "csi.example.com",
                "nodeName": numbers.choice(nodes),
                "source": {"persistentVolumeName": f"v{numbers.randrange(5)}"},
            },
        }
        for n in range(numbers.randint(0, 2))
    ]
    _devices(numbers, case, nodes)
    used = [f"c{n}" for n in range(6)]
    for number in range(4):
        case["pods"].append(_pod(numbers, f"b{number}", used, node=numbers.choice(nodes)))
    # Of several reasons, kube-scheduler looks at selected nodes before it looks at any size.
    tied = [c for c in case["persistentVolumeClaims"] if SELECTED in c["metadata"]["annotations"]]
    case["pending"] = [_pod(numbers, "p", used[:-1], most=1 if tied else 2)]
    # The oracle names an allocated claim first, kube-scheduler a shortage of the others.
    several = "status" not in case["resourceClaims"][0]
    wanted = numbers.sample(["r0", "r1", "r2"], numbers.choice((0, 1, 1, 2 if several else 1)))
    case["pending"][0]["spec"]["resourceClaims"] = [
        {"name": name, "resourceClaimName": name} for name in wanted
    ]
    return case


def _class(name: str, provisioner: str, **more: Any) -> Json:
    wait = {"volumeBindingMode": "WaitForFirstConsumer"}
    return {"metadata": {"name": name}, "provisioner": provisioner, **wait, **more}


def _topologies(numbers: random.Random) -> Json:
    if numbers.random() < 0.6:
        return {}
    expression = {"key": ZONE, "values": [numbers.choice("ab")]}
    return {"allowedTopologies": [{"matchLabelExpressions": [expression]}]}


def _volume(numbers: random.Random, case: Json, number: int, nodes: list[str]) -> None:
    bound = numbers.random() < 0.6
    mode = numbers.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    if not bound and numbers.random() < 0.1:
        annotations = {SELECTED: numbers.choice(nodes)}
    spec: Json = {
        "accessModes": [mode],
        "storageClassName": numbers.choice(("static", "made", "made", "now"))
        if numbers.random() < 0.3 or bound
        else numbers.choice(("static", "made")),
        "resources": {"requests": {"storage": f"{numbers.randint(1, 5)}Gi"}},
    }
    if bound:
        spec["volumeName"] = f"v{number}"
    claim: Json = {
        "metadata": {"name": f"c{number}", "namespace": "default", "annotations": annotations},
        "spec": spec,
    }
    if numbers.random() < 0.03:
        claim["status"] = {"phase": "Lost"}
    if numbers.random() < 0.95:
        case["persistentVolumeClaims"].append(claim)
    volume: Json = {
        "metadata": {"name": f"v{number}"},
        "spec": {
            "storageClassName": numbers.choice(("static", "static", "made")),
            "capacity": {"storage": f"{numbers.randint(1, 6)}Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"][: numbers.randint(1, 2)],
        },
        "status": {"phase": "Bound" if bound else "Available"},
    }
    if bound:
        volume["spec"]["claimRef"] = {"namespace": "default", "name": f"c{number}"}
    if numbers.random() < 0.6:
        volume["spec"]["csi"] = {"driver": "csi.example.com", "volumeHandle": f"h{number % 4}"}
    if numbers.random() < 0.5:
        names = numbers.sample(nodes, numbers.randint(1, 2))
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": names}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        volume["spec"]["nodeAffinity"] = {"required": terms}
    if numbers.random() < 0.3:
        volume["metadata"]["labels"] = {ZONE: numbers.choice(("a", "b", "a__b"))}
    if numbers.random() < 0.95:
        case["persistentVolumes"].append(volume)


def _devices(numbers: random.Random, case: Json, nodes: list[str]) -> None:
    case["deviceClasses"] = [
        {
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
        }
    ]
    case["resourceSlices"] = [
        {
            "metadata": {"name": f"s-{name}"},
            "spec": {
                "driver": DRIVER,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "nodeName": name,
                "devices": [
                    {"name": f"g{n}", "attributes": {"numa": {"int": numbers.randrange(2)}}}
                    for n in range(numbers.randint(0, 3))
                ],
            },
        }
        for name in nodes
    ]
    case["resourceClaims"] = []
    for number in range(3):
        name = f"r{number}"
        requests: list[Json] = [
            {
                "name": "a",
                "exactly": {
                    "deviceClassName": "gpu",
                    "allocationMode": "ExactCount",
                    "count": numbers.randint(1, 2),
                },
            }
        ]
        spec: Json = {"devices": {"requests": requests}}
        if numbers.random() < 0.4:
            kind = numbers.choice(("matchAttribute", "distinctAttribute"))
            spec["devices"]["constraints"] = [{kind: f"{DRIVER}/numa"}]
        claim: Json = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        case["resourceClaims"].append(claim)
    for number in range(2):
        at = numbers.choice(nodes)
        field = {"key": "metadata.name", "operator": "In", "values": [at]}
        result = {"request": "a", "driver": DRIVER, "pool": at, "device": f"g{number}"}
        case["resourceClaims"].append(
            {
                "metadata": {"name": f"held{number}", "namespace": "default"},
                "spec": {"devices": {"requests": []}},
                "status": {
                    "allocation": {
                        "devices": {"results": [result]},
                        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
                    }
                },
            }
        )
    if numbers.random() < 0.3:
        held = case["resourceClaims"][-1]
        case["resourceClaims"][0]["status"] = held["status"]
        case["resourceClaims"].pop()


def _pod(
    numbers: random.Random, name: str, claims: list[str], node: str = "", most: int = 2
) -> Json:
    chosen = numbers.sample(claims, numbers.choice((0, 1, 1, most)))
    volumes_used = [
        {"name": f"m{n}", "persistentVolumeClaim": {"claimName": claim}}
        for n, claim in enumerate(chosen)
    ]
    spec: Json = {"containers": [{"name": "main"}], "volumes": volumes_used}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _said(simulation: Simulation, name: FilterName) -> list[tuple[str, tuple[str, ...]] | None]:
    pending = pending_of(simulation.snapshot, "p")
    found: list[tuple[str, tuple[str, ...]] | None] = []
    for index in range(len(simulation.snapshot.nodes)):
        reasons: tuple[Reason, ...] = simulation.status_at(pending, index).reasons
        if not reasons:
            found.append(None)
            continue
        assert {PLUGIN.get(each.rejection, name) for each in reasons} == {name}
        resolvable = Rejection(simulation.code_at(pending, index)) in RESOLVABLE
        found.append(("U" if resolvable else "X", tuple(map(reason_text, reasons))))
    return found


def test_filters_of_claims_agree_with_the_oracle() -> None:
    numbers = random.Random(3)
    refused: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for _ in range(CASES):
        case = _cluster(numbers)
        snapshot = cluster_of(case).snapshot()
        (pod,) = case["pending"]
        naive = Cluster.of(case)
        for name, oracle in FILTERS.items():
            simulation = Simulation(snapshot, Policy(), Profile(filters=(name,)))
            expected = [oracle(pod, node, naive) for node in case["nodes"]]
            found = _said(simulation, name)
            assert found == [each and (each.code, each.texts) for each in expected], (name, case)
            for each in expected:
                passed[name] += each is None
                for text in each.texts if each else ():
                    refused[text] += 1
    assert all(count > CASES for count in passed.values()), passed
    # The four texts of VolumeBinding on a node, two of limits, and one of each other filter.
    assert sum(count >= 10 for count in refused.values()) >= 9, refused
