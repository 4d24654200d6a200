"""What each filter says about each node, against the oracle, from API objects on.

Random clusters of up to 7 nodes and 14 pods with much variety in what filters read: operators,
matchFields, taints, inclusion policies, minDomains, namespaces and their labels, terminating pods.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.wording.rejections import reason_text
from tests.engine.api_objects import cluster_of, policy_of
from tests.oracle.scheduling import filters
from tests.oracle.scheduling.objects import Cluster, Object

KEYS = ("zone", "rack", "kubernetes.io/hostname")
NAMESPACES = ("default", "other")


def _labels(random: Random) -> dict[str, str]:
    return {
        key: random.choice(values)
        for key, values in {"app": "ab", "tier": "xy", "size": ("1", "12", "x")}.items()
        if random.random() < 0.7
    }


def _expression(random: Random, keys: dict[str, Any], operators: tuple[str, ...]) -> Object:
    key, operator = random.choice(list(keys)), random.choice(operators)
    found: Object = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        found["values"] = random.sample(list(keys[key]), random.randint(1, 2))
    elif operator in ("Gt", "Lt"):
        found["values"] = [random.choice(("0", "5", "12"))]
    return found


def _selector(random: Random) -> Object | None:
    keys = {"app": "ab", "tier": "xy"}
    match random.randint(0, 5):
        case 0:
            return None
        case 1:
            return {}
        case 2:
            operators = ("In", "NotIn", "Exists", "DoesNotExist")
            return {"matchExpressions": [_expression(random, keys, operators)]}
    return {"matchLabels": {"app": random.choice("ab")}}


def _term(random: Random) -> Object:
    found: Object = {"topologyKey": random.choice(KEYS), "labelSelector": _selector(random)}
    if found["labelSelector"] is None:
        del found["labelSelector"]
    if random.random() < 0.3:
        found["namespaces"] = random.sample(NAMESPACES, random.randint(1, 2))
    if random.random() < 0.3:
        found["namespaceSelector"] = random.choice(({}, {"matchLabels": {"team": "red"}}))
    return found


def _constraint(random: Random) -> Object:
    found: Object = {
        "topologyKey": random.choice(KEYS),
        "maxSkew": random.randint(1, 2),
        "whenUnsatisfiable": random.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": _selector(random),
        "nodeAffinityPolicy": random.choice(("Honor", "Ignore")),
        "nodeTaintsPolicy": random.choice(("Honor", "Ignore")),
    }
    if found["labelSelector"] is None:
        del found["labelSelector"]
    elif random.random() < 0.3:
        found["matchLabelKeys"] = ["tier"]
    if found["whenUnsatisfiable"] == "DoNotSchedule" and random.random() < 0.3:
        found["minDomains"] = random.randint(1, 4)
    return found


def _node_term(random: Random) -> Object:
    keys = {"zone": "abc", "rack": "12", "size": ("1", "12")}
    operators = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
    term: Object = {}
    if random.random() < 0.7:
        term["matchExpressions"] = [
            _expression(random, keys, operators) for _ in range(random.randint(1, 2))
        ]
    if random.random() < 0.4:
        term["matchFields"] = [
            {
                "key": "metadata.name",
                "operator": random.choice(("In", "In", "NotIn")),
                "values": [f"n{random.randint(0, 3)}"],
            }
        ]
    return term


def _affinity(random: Random) -> Object:
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    found: Object = {}
    if random.random() < 0.2:
        terms = [_node_term(random) for _ in range(random.randint(1, 2))]
        found["nodeAffinity"] = {rule: {"nodeSelectorTerms": terms}}
    for kind in ("podAffinity", "podAntiAffinity"):
        if random.random() < 0.3:
            found[kind] = {rule: [_term(random) for _ in range(random.randint(1, 2))]}
    return found


def _pod(random: Random, name: str, node: str | None = None) -> Object:
    memory = "7Gi" if node is None and random.random() < 0.2 else "1Gi"
    spec: Object = {
        "containers": [
            {
                "name": "main",
                "resources": {"requests": {"cpu": str(random.randint(0, 3)), "memory": memory}},
                "ports": [{"containerPort": 1, "hostPort": 80}] if random.random() < 0.2 else [],
            }
        ],
        "affinity": _affinity(random),
        "tolerations": [],
    }
    if node is not None:
        spec["nodeName"] = node
    elif random.random() < 0.5:
        spec["topologySpreadConstraints"] = [
            _constraint(random) for _ in range(random.randint(1, 2))
        ]
    if random.random() < 0.4:
        operator = random.choice(("Exists", "Equal"))
        toleration = {"key": random.choice(("k", "l", "")), "operator": operator}
        spec["tolerations"] = [toleration | ({"value": "v"} if operator == "Equal" else {})]
        if not toleration["key"]:
            spec["tolerations"] = [{"operator": "Exists", "effect": "NoSchedule"}]
    if random.random() < 0.2:
        spec["nodeSelector"] = {"zone": random.choice("ab")}
    metadata: Object = {
        "name": name,
        "namespace": random.choice(NAMESPACES),
        "labels": _labels(random),
        "uid": name,
    }
    if node is not None and random.random() < 0.15:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Running" if node else "Pending"},
    }


def _node(random: Random, name: str) -> Object:
    labels = {"kubernetes.io/hostname": name}
    for key, values in {"zone": "abc", "rack": "12", "size": ("1", "12", "x")}.items():
        if random.random() < 0.85:
            labels[key] = random.choice(values)
    taints = [
        {"key": random.choice("kl"), "value": "v", "effect": effect}
        for effect in ("NoSchedule", "NoExecute", "PreferNoSchedule")
        if random.random() < 0.12
    ]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": random.random() < 0.1},
        "status": {"allocatable": {"cpu": "8", "memory": "6Gi", "pods": random.choice("359")}},
    }


def _cluster(seed: int) -> Object:
    random = Random(seed)
    nodes = [_node(random, f"n{number}") for number in range(random.randint(1, 7))]
    names = [node["metadata"]["name"] for node in nodes]
    pods = [_pod(random, f"old{i}", random.choice(names)) for i in range(random.randint(0, 14))]
    pending = [_pod(random, f"new{i}") for i in range(2)]
    if seed % 3 == 0:  # the earlier filters pass, so that the later ones are asked
        for node in nodes:
            node["spec"] = {}
            node["status"]["allocatable"] |= {"cpu": "99", "memory": "99Gi", "pods": "99"}
        for pod in (*pods, *pending):
            pod["spec"].pop("nodeSelector", None)
            pod["spec"]["affinity"].pop("nodeAffinity", None)
    return {
        "features": {},
        "namespaces": [
            {"metadata": {"name": "default", "labels": {"team": "red"}}},
            {"metadata": {"name": "other", "labels": {"team": "blue"}}},
        ],
        "nodes": nodes,
        "pods": pods,
        "pending": pending,
    }


def _engine_says(case: Object) -> dict[tuple[str, str], tuple[str, tuple[str, ...]]]:
    snapshot = cluster_of(case).snapshot()
    policy = policy_of(case)
    simulation = Simulation(snapshot, policy, policy.profiles[0])
    letters = {Code.UNSCHEDULABLE: "U", Code.UNRESOLVABLE: "X"}
    found = {}
    for pending in snapshot.pending.values():
        for index, node in enumerate(snapshot.nodes):
            status = simulation.status_at(pending, index)
            if status.code is not Code.SUCCESS:
                texts = tuple(reason_text(each) for each in status.reasons)
                found[pending.row.name, node.name] = letters[status.code], texts
            assert bool(simulation.codes(pending)[index]) == (status.code is not Code.SUCCESS)
    return found


@pytest.mark.parametrize("cases", [400, pytest.param(1_500, marks=pytest.mark.slow)])
def test_every_node_says_what_the_oracle_says(cases: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(cases):
        case = _cluster(seed)
        there = Cluster.of(case)
        expected = {}
        for pod in case["pending"]:
            for node in case["nodes"]:
                refusal = filters.refusal(pod, node, there)
                seen[f"{refusal.plugin} {refusal.code}" if refusal else "fits"] += 1
                if refusal is not None:
                    expected[pod["metadata"]["name"], node["metadata"]["name"]] = (
                        refusal.code,
                        tuple(refusal.texts),
                    )
        assert _engine_says(case) == expected, seed
    assert len(seen) == 11, seen
    assert min(seen.values()) > cases // 20, seen
