"""Scores equal those of the naive oracle, on random clusters and under random profiles.

Profiles go through the reader of KubeSchedulerConfiguration, so that arguments are compared too.
Claims and volumes are not drawn here.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np

from reprieve.engine.placement.profile import Policy, ScoreName
from reprieve.engine.placement.scores import compile_scores
from reprieve.engine.placement.simulation import Simulation
from reprieve.settings.scheduler_configuration import scheduler_configuration
from tests.engine.api_objects import rows_of
from tests.engine.builders import pending_of, service, snapshot_of
from tests.oracle.scheduling import scores as oracle
from tests.oracle.scheduling.clusters import random_cluster
from tests.oracle.scheduling.objects import Cluster

Json = dict[str, Any]

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APPS = ("a", "b", "c", "d")
SECTIONS = {
    "NodeResourcesFit": "fitArgs",
    "NodeResourcesBalancedAllocation": "balancedArgs",
    "InterPodAffinity": "affinityArgs",
    "PodTopologySpread": "spreadArgs",
}


def decorate(random: Random, cluster: Json) -> None:
    """Give nodes and pods what scores look at."""
    for node in cluster["nodes"]:
        node["status"]["images"] = [
            {"names": [name], "sizeBytes": random.randint(1, 1500) * 2**20}
            for name in random.sample(("image:latest", "x:1", "y:2"), random.randint(0, 3))
        ]
        taints = node["spec"].setdefault("taints", [])
        for key in random.sample(("p", "q", "r"), random.randint(0, 3)):
            taints.append({"key": key, "value": "v", "effect": "PreferNoSchedule"})
    for each in (*cluster["pods"], *cluster["pending"]):
        affinity = each["spec"].setdefault("affinity", {})
        for kind in ("podAffinity", "podAntiAffinity"):
            if random.random() < 0.2:
                key = "preferredDuringSchedulingIgnoredDuringExecution"
                affinity.setdefault(kind, {})[key] = [
                    {"weight": random.randint(1, 100), "podAffinityTerm": pod_term(random)}
                ]
        if random.random() < 0.1:
            key = "requiredDuringSchedulingIgnoredDuringExecution"
            affinity.setdefault("podAffinity", {})[key] = [pod_term(random)]
    for each in cluster["pending"]:
        if random.random() < 0.5:
            each["spec"]["affinity"].setdefault("nodeAffinity", {})[
                "preferredDuringSchedulingIgnoredDuringExecution"
            ] = [
                {
                    "weight": random.randint(1, 100),
                    "preference": {
                        "matchExpressions": [
                            {"key": "pool", "operator": random.choice(("In", "NotIn")),
                             "values": ["a"]}
                        ]
                    },
                }
                for _ in range(random.randint(1, 2))
            ]  # fmt: skip
        if random.random() < 0.5:
            each["spec"]["topologySpreadConstraints"] = [
                {
                    "topologyKey": key,
                    "maxSkew": random.randint(1, 3),
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": random.choice(APPS)}},
                }
                for key in random.sample((ZONE, HOST, "pool"), random.randint(1, 2))
            ]
        if random.random() < 0.3:
            each["spec"]["tolerations"] = [{"key": "p", "operator": "Exists"}]
        names = random.sample(("image", "x:1", "y:2", "z:3"), random.randint(1, 3))
        requests = each["spec"]["containers"][0]["resources"]
        each["spec"]["containers"] = [
            {"name": f"c{i}", "image": name, "resources": requests if i == 0 else {}}
            for i, name in enumerate(names)
        ]


def pod_term(random: Random) -> Json:
    return {
        "topologyKey": random.choice((ZONE, HOST, "pool")),
        "labelSelector": {"matchLabels": {"app": random.choice(APPS)}},
    }


def random_arguments(random: Random) -> dict[str, Json]:
    """`pluginConfig` by plugin."""
    names = random.sample(("cpu", "memory", "example.com/gpu"), random.randint(1, 3))
    weighted = [{"name": name, "weight": random.randint(1, 5)} for name in names]
    strategy: Json = {
        "type": random.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")),
        "resources": weighted,
    }
    if strategy["type"] == "RequestedToCapacityRatio":
        strategy["requestedToCapacityRatio"] = {
            "shape": [
                {"utilization": at, "score": random.randint(0, 10)}
                for at in sorted(random.sample(range(101), random.randint(1, 4)))
            ]
        }
    spread: Json = {"defaultingType": random.choice(("System", "List"))}
    if spread["defaultingType"] == "List":
        spread["defaultConstraints"] = [
            {"topologyKey": ZONE, "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
        ]
    return {
        "NodeResourcesFit": {"scoringStrategy": strategy},
        "NodeResourcesBalancedAllocation": {"resources": [{"name": name} for name in names]},
        "InterPodAffinity": {"hardPodAffinityWeight": random.choice((0, 1, 50))},
        "PodTopologySpread": spread,
    }


def test_scores_equal_the_oracles() -> None:
    compared: Counter[str] = Counter()
    telling: Counter[str] = Counter()
    for seed in range(300):
        random = Random(seed)
        cluster = random_cluster(seed)
        decorate(random, cluster)
        arguments = random_arguments(random) if seed % 2 else {}
        for plugin, args in arguments.items():
            cluster[SECTIONS[plugin]] = args
        cluster["services"] = [
            {"metadata": {"name": app}, "spec": {"selector": {"app": app}}}
            for app in random.sample(APPS, 2)
        ]
        services = [service(each["metadata"]["name"], each["spec"]["selector"])
                    for each in cluster["services"]]  # fmt: skip
        configuration = scheduler_configuration(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [
                    {"pluginConfig": [{"name": n, "args": a} for n, a in arguments.items()]}
                ],
            },
            "",
        )
        snapshot = snapshot_of(rows_of(cluster), services)
        simulation = Simulation(snapshot, Policy(), configuration.profiles[0])
        state = Cluster.of(cluster)
        names = [node["metadata"]["name"] for node in cluster["nodes"]]
        some = sorted(random.sample(names, random.randint(1, len(names))))
        nodes = [node for node in cluster["nodes"] if node["metadata"]["name"] in some]
        indices = np.array([snapshot.node_index[name] for name in some], np.int64)
        for given in cluster["pending"][:3]:
            expected = oracle.by_plugin(given, nodes, state)
            pending = pending_of(snapshot, given["metadata"]["name"])
            found = {
                score.name: dict(zip(some, score.values(indices).tolist(), strict=True))
                for score, _ in compile_scores(simulation, pending)
            }
            for plugin in ScoreName:
                theirs = expected.get(plugin) or dict.fromkeys(some, 0)
                ours = found.get(plugin) or dict.fromkeys(some, theirs[some[0]])
                assert ours == theirs, (seed, plugin, given["metadata"]["name"])
                compared[plugin] += 1
                telling[plugin] += len(set(ours.values())) > 1
    assert min(compared.values()) >= 500
    left_out = {ScoreName.VOLUME_BINDING, ScoreName.DYNAMIC_RESOURCES}
    assert {name for name in ScoreName if telling[name] >= 50} == set(ScoreName) - left_out
