"""Clusters for the scheduling benchmarks: recorded scenarios, and generated ones of any size.

Recorded files hold one JSON object with nodes, bound pods, groups, budgets, the pods of a gang and
what the peer answered; they are read through `intake` like objects of an API server. Generated
clusters follow the same recipe: nodes nearly full of pods of priorities 0 to 50, 2 % of them with
1000, a quarter of the pods in groups that go as a whole, ten budgets over a quarter of the pods.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from reprieve.api.pod_groups import PodGroup
from reprieve.api.scheduling import NodeObject, PodDisruptionBudget, PodObject
from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import (
    BudgetRow,
    Change,
    Gone,
    GroupRow,
    Kind,
    NodeRow,
    Operator,
    PodClass,
    PodRow,
    Requirement,
)
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.simulation import Simulation
from reprieve.intake.cluster.groups import group_row
from reprieve.intake.cluster.nodes import node_row
from reprieve.intake.cluster.pod_classes import PodClasses
from reprieve.intake.cluster.pods import pod_row
from reprieve.intake.cluster.policies import budget_row
from reprieve.units.ids import Uid

__all__ = [
    "Scenario",
    "Unrest",
    "bound_in_groups",
    "generated",
    "most_free_cpu",
    "recorded",
    "with_devices",
]

GIB = 2**30
_DEVICE = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster with something that waits. `group` is empty for a plain pod."""

    name: str
    rows: tuple[Change, ...]
    waiting: tuple[PodRow, ...]
    group: str
    expect: Mapping[str, Any]

    def cluster(self) -> Cluster:
        """Return the state with all of it applied."""
        cluster = Cluster()
        cluster.apply([*self.rows, *self.waiting])
        return cluster


def recorded(file: Path) -> tuple[Scenario, Scenario]:
    """Return the gang's scenario and the single pod's."""
    data = json.loads(gzip.decompress(file.read_bytes()))
    classes = PodClasses()

    def pods(objects: Iterable[Any]) -> tuple[PodRow, ...]:
        return tuple(
            replace(pod_row(msgspec.convert(each, PodObject), classes), version=1)
            for each in objects
        )

    rows: list[Change] = []
    rows += [_first(node_row(msgspec.convert(each, NodeObject))) for each in data["nodes"]]
    rows += [_first(group_row(msgspec.convert(each, PodGroup))) for each in data["podGroups"]]
    rows += [
        _first(budget_row(msgspec.convert(each, PodDisruptionBudget))) for each in data["pdbs"]
    ]
    rows += pods(data["pods"])
    name = file.name.split(".")[0]
    group = f"default/{data['preemptor']['podGroup']}"
    gang = {
        "placement": {key.partition("/")[2]: node for key, node in data["placement"].items()},
        "victims": set(data["expect"]["victims"]),
    }
    single = data["singlePod"]
    return (
        Scenario(name, tuple(rows), pods(data["pending"]), group, gang),
        Scenario(f"{name}-pod", tuple(rows), pods(single["pending"]), "", single["expect"]),
    )


def _first(row: Any) -> Any:
    # The files name neither versions nor the uids of cluster-wide objects.
    return replace(row, version=1, uid=row.uid or Uid(f"{type(row).__name__}-{row.name}"))


def most_free_cpu(simulation: Simulation, pending: Pending, nodes: I64) -> int:
    """The recorded placement rule: most free cpu, the first name among equals."""
    column = simulation.snapshot.resources.index("cpu")
    free = simulation.snapshot.allocatable[:, column] - simulation.used[:, column]
    return int(nodes[np.argmax(free[nodes])])


def with_devices(scenario: Scenario, now: int) -> Scenario:
    """Return the same cluster with work to lose: each pod has a device, and half write checkpoints.

    Nobody lacks devices.
    """
    chance = random.Random(1)
    known: dict[int, PodClass] = {}
    rows: list[Change] = []
    for row in scenario.rows:
        if isinstance(row, NodeRow):
            rows.append(replace(row, allocatable={**row.allocatable, _DEVICE: 1_000}))
        elif isinstance(row, PodRow):
            own = row.pod_class
            if id(own) not in known:
                known[id(own)] = replace(own, requests=(*own.requests, (_DEVICE, 1)))
            start = now - chance.randrange(8 * 3_600)
            said = now - chance.randrange(3_600) if chance.random() < 0.5 else 0
            rows.append(replace(row, pod_class=known[id(own)], start=start, checkpoint=said))
        else:
            rows.append(row)
    return replace(scenario, name=f"{scenario.name}-devices", rows=tuple(rows))


def generated(nodes: int, size: int, seed: int = 1, *, whole: bool = True) -> Scenario:
    """Return a cluster of so many nodes with a waiting gang of so many pods.

    `whole`: a quarter of the pods is in groups that go as a whole; else nobody is in a group.
    """
    chance = random.Random(seed)
    rows: list[Change] = [
        NodeRow(
            Uid(f"node-{index}"),
            f"node-{index:05}",
            1,
            {"cpu": 32_000, "memory": 128 * GIB, "pods": 110},
            {"kubernetes.io/hostname": f"node-{index:05}"},
        )
        for index in range(nodes)
    ]
    rows += [
        BudgetRow(Uid(f"pdb-{n}"), "default", f"pdb-{n}", 1, _asks("app", f"app-{n}"), n % 7)
        for n in range(10)
    ]
    pods = _bound_pods(chance, nodes)
    if whole:
        rows += _grouped(chance, pods)
    rows += pods
    own = PodClass((("cpu", 8_000), ("memory", 16 * GIB)), 8_000, 16 * GIB)
    group = GroupRow(Uid("group"), "default", "preemptor", 1, min_count=size, priority=100)
    waiting = tuple(
        PodRow(
            Uid(f"preemptor-{n:04}"),
            "default",
            f"preemptor-{n:04}",
            1,
            own,
            priority=100,
            group="preemptor",
        )
        for n in range(size)
    )
    return Scenario(f"generated_{nodes}_{size}", (*rows, group), waiting, "default/preemptor", {})


def _asks(key: str, value: str) -> tuple[Requirement, ...]:
    return (Requirement(key, Operator.IN, (value,)),)


def _bound_pods(chance: random.Random, nodes: int) -> list[PodRow]:
    pods: list[PodRow] = []
    for node in range(nodes):
        count = chance.randint(8, 30)
        cpu, memory = 31_500 // count, 126 * GIB // count
        own = PodClass((("cpu", cpu), ("memory", memory)), cpu, memory)
        for _ in range(count):
            number = len(pods)
            pods.append(
                PodRow(
                    Uid(f"p-{number:06}"),
                    "default",
                    f"p-{number:06}",
                    1,
                    own,
                    labels=(("app", f"app-{chance.randrange(40)}"),),
                    node=f"node-{node:05}",
                    priority=1000 if chance.random() < 0.02 else chance.randint(0, 50),
                    start=1_700_000_000 + number,
                )
            )
    return pods


def bound_in_groups(rows: Iterable[Change]) -> tuple[Change, ...]:
    """Return the rows with every bound pod in a group that goes as a whole, and the groups."""
    known = tuple(rows)
    pods = [row for row in known if isinstance(row, PodRow)]
    groups = _grouped(random.Random(1), pods, share=1)
    return (*(row for row in known if not isinstance(row, PodRow)), *groups, *pods)


def _grouped(chance: random.Random, pods: list[PodRow], share: int = 4) -> list[Change]:
    """Put one pod of `share` into groups that go as a whole; returns the groups."""
    rows: list[Change] = []
    chosen = chance.sample(range(len(pods)), len(pods) // share)
    taken = 0
    while taken < len(chosen):
        size = min(chance.randint(8, 64), len(chosen) - taken)
        members = chosen[taken : taken + size]
        taken += size
        name, priority = f"g-{len(rows):05}", chance.randint(0, 50)
        rows.append(
            GroupRow(
                Uid(f"uid-{name}"), "default", name, 1, 1, all_or_nothing=True, priority=priority
            )
        )
        for index in members:
            pods[index] = replace(pods[index], group=name, priority=priority)
    return rows


class Unrest:
    """Changes the state between runs and changes it back, so that nothing can be remembered."""

    def __init__(self, scenario: Scenario, seed: int = 7) -> None:
        self._chance = random.Random(seed)
        self._pods = [row for row in scenario.rows if isinstance(row, PodRow)]
        self._nodes = [row for row in scenario.rows if isinstance(row, NodeRow)]
        self._version = 1

    def stir(self, cluster: Cluster, changes: int = 100) -> None:
        """Delete and make again, resize and restore, send heartbeats: so many pods."""
        for row in self._chance.sample(self._pods, min(changes, len(self._pods))):
            match self._chance.randrange(3):
                case 0:
                    cluster.apply([Gone(Kind.POD, row.uid, row.namespace, row.name)])
                    cluster.apply([self._next(row)])
                case 1:
                    smaller = tuple((name, amount // 2) for name, amount in row.pod_class.requests)
                    resized = replace(row, pod_class=replace(row.pod_class, requests=smaller))
                    cluster.apply([self._next(resized)])
                    cluster.apply([self._next(row)])
                case _:
                    cluster.apply([self._next(row)])
        for node in self._chance.sample(self._nodes, min(10, len(self._nodes))):
            cluster.apply([self._next(node)])

    def _next(self, row: Any) -> Any:
        self._version += 1
        return replace(row, version=self._version)
