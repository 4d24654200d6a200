"""The least that has to be evicted for one demand, by trying every set, under the rules of all.

A small cluster as plain numbers: GPUs by node, quota by team in one cohort without limits, one
flavor. A unit has its pods on one node. Each of the rules permits a part of a unit:

| rule | what goes | what it frees |
| --- | --- | --- |
| idle: the unit is idle, it and the demand opted in | all, of `single` any pods | pods, quota |
| quota, same team: lower priority, the demand is within its quota | the unit | pods and quota |
| quota, another team: it borrows, the demand stays within its own | the whole unit | the same |
| priority: pods of lower priority, of a gang of mode `all` all of them | some pods | pods alone |

The rules of quota permit nothing to a demand whose quota is free as it is.

Imports nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import combinations

__all__ = [
    "Cluster",
    "Demand",
    "Part",
    "Rule",
    "Unit",
    "has_spare",
    "is_scattered",
    "least",
    "permitted",
    "suffices",
]


class Rule(Enum):
    """Why a part may go."""

    IDLE = auto()
    OWN_QUEUE = auto()
    RECLAIM = auto()
    PRIORITY = auto()


@dataclass(frozen=True)
class Unit:
    """Pods of one owner on one node.

    `idle`: for long enough, and opted in. `whole`: a gang of mode `all`; `apart`: of mode `single`,
    whose pods are idle each by itself.
    """

    name: str
    team: str
    node: str
    pods: int
    gpus: int
    priority: int
    queued: bool = False
    idle: bool = False
    whole: bool = False
    apart: bool = False

    @property
    def devices(self) -> int:
        return self.pods * self.gpus


@dataclass(frozen=True)
class Demand:
    """What is pending. `queued`: its quota is not reserved yet."""

    team: str
    pods: int
    gpus: int
    priority: int
    queued: bool
    opted: bool

    @property
    def devices(self) -> int:
        return self.pods * self.gpus


@dataclass(frozen=True)
class Cluster:
    """Nodes with their GPUs, teams with their quota, and who runs."""

    nodes: Mapping[str, int]
    quotas: Mapping[str, int]
    units: Sequence[Unit]

    def used(self, team: str) -> int:
        return sum(each.devices for each in self.units if each.queued and each.team == team)


@dataclass(frozen=True)
class Part:
    """So many pods of a unit, by a rule."""

    unit: Unit
    pods: int
    rule: Rule

    @property
    def devices(self) -> int:
        return self.pods * self.unit.gpus


def permitted(cluster: Cluster, unit: Unit, demand: Demand) -> Iterator[Part]:
    """Yield the parts of a unit that one rule or another permits, the smallest first."""
    if unit.priority < demand.priority:
        for pods in range(unit.pods if unit.whole else 1, unit.pods + 1):
            yield Part(unit, pods, Rule.PRIORITY)
    if unit.idle and demand.opted:
        for pods in range(1 if unit.apart else unit.pods, unit.pods + 1):
            yield Part(unit, pods, Rule.IDLE)
    if unit.queued and demand.queued and not _has_quota(cluster, demand, ()):
        own = unit.team == demand.team and unit.priority < demand.priority
        if own and demand.devices <= cluster.quotas[demand.team]:
            yield Part(unit, unit.pods, Rule.OWN_QUEUE)
        if unit.team != demand.team:
            yield Part(unit, unit.pods, Rule.RECLAIM)


def suffices(cluster: Cluster, demand: Demand, gone: Sequence[Part]) -> bool:
    """Whether the demand has its quota and a node for every pod with exactly these gone."""
    free = dict(cluster.nodes)
    for unit in cluster.units:
        free[unit.node] -= unit.devices
    for part in gone:
        free[part.unit.node] += part.devices
    if sum(max(0, left) // demand.gpus for left in free.values()) < demand.pods:
        return False
    return not demand.queued or _has_quota(cluster, demand, gone)


def _has_quota(cluster: Cluster, demand: Demand, gone: Sequence[Part]) -> bool:
    used = {team: cluster.used(team) for team in cluster.quotas}
    for part in gone:
        if part.unit.queued and part.rule is not Rule.PRIORITY:
            used[part.unit.team] -= part.devices
    if sum(used.values()) + demand.devices > sum(cluster.quotas.values()):
        return False
    reclaimed = [part for part in gone if part.rule is Rule.RECLAIM]
    if reclaimed and used[demand.team] + demand.devices > cluster.quotas[demand.team]:
        return False
    for team in {part.unit.team for part in reclaimed}:
        devices = [part.devices for part in reclaimed if part.unit.team == team]
        # The last one of them is taken from a team that still borrows.
        if cluster.used(team) - sum(devices) + max(devices) <= cluster.quotas[team]:
            return False
    return True


def is_scattered(cluster: Cluster, demand: Demand) -> bool:
    """Whether some idle work holds enough devices in sum, and on no nodes that help, but more does.

    Who adds devices up evicts for nothing here.
    """
    parts = _idle_parts(cluster, demand)
    free = sum(cluster.nodes.values()) - sum(each.devices for each in cluster.units)
    return suffices(cluster, demand, parts) and any(
        free + sum(each.devices for each in some) >= demand.devices
        and not suffices(cluster, demand, some)
        for number in range(1, len(parts))
        for some in combinations(parts, number)
    )


def has_spare(cluster: Cluster, demand: Demand) -> bool:
    """Whether the idle work that is taken unit by unit until it suffices has one that can stay.

    In the order in which it stands in the cluster, or in the reverse of it.
    """
    parts = _idle_parts(cluster, demand)
    if not suffices(cluster, demand, parts):
        return False
    for ordered in (parts, parts[::-1]):
        enough = next(n for n in range(len(ordered) + 1) if suffices(cluster, demand, ordered[:n]))
        taken = ordered[:enough]
        for one in taken:
            if suffices(cluster, demand, [each for each in taken if each is not one]):
                return True
    return False


def _idle_parts(cluster: Cluster, demand: Demand) -> list[Part]:
    idle = [each for each in cluster.units if each.idle and demand.opted]
    return [Part(each, each.pods, Rule.IDLE) for each in idle]


def least(cluster: Cluster, demand: Demand, rules: Collection[Rule] = tuple(Rule)) -> int | None:
    """Return the fewest devices of a set that suffices; None: not even all that may go does."""
    choices = [
        [part for part in permitted(cluster, unit, demand) if part.rule in rules]
        for unit in cluster.units
    ]
    best: list[int | None] = [None]

    def tried(number: int, gone: list[Part], devices: int) -> None:
        if best[0] is not None and devices >= best[0]:
            return
        if suffices(cluster, demand, gone):
            best[0] = devices
            return
        for later in range(number, len(choices)):
            for part in choices[later]:
                tried(later + 1, [*gone, part], devices + part.devices)

    tried(0, [], 0)
    return best[0]
