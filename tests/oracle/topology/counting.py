"""What fits each domain, counted from the leaves up, and the orders in which domains are taken.

Written from the specification alone; imports nothing of the engine.

Source: specification of topology-aware scheduling, sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.oracle.topology.domains import (
    HOSTNAME,
    Domain,
    Json,
    countable,
    keeps_out,
    tree,
    weight,
)
from tests.oracle.topology.requests import Ask

__all__ = [
    "Cluster",
    "Rules",
    "Share",
    "best_of",
    "cluster",
    "count",
    "in_leader_order",
    "in_order",
    "leader_first",
    "recount",
    "rules_of",
    "units",
]

Usage = dict[tuple[str, ...], Counter[str]]


@dataclass
class Cluster:
    """A case's tree, gates and usage: that of others, and that of pod sets placed before."""

    name: str
    levels: list[str]
    root: Domain
    gates: Json
    tolerations: Sequence[Json]
    used: Usage
    assumed: Usage = field(default_factory=dict)

    @property
    def by_host(self) -> bool:
        """Whether the leaves are hosts."""
        return self.levels[-1] == HOSTNAME

    def assume(self, values: tuple[str, ...], pods: int, requests: Json) -> None:
        """Let pods use a leaf."""
        row = self.assumed.setdefault(values, Counter())
        for resource, amount in requests.items():
            row[resource] += amount * pods
        row["pods"] += pods


@dataclass(frozen=True)
class Rules:
    """How domains compare: smallest first or best fit, and whether affinity comes first."""

    least_free: bool
    affinity: bool


@dataclass(frozen=True)
class Share:
    """Pods and leaders of one domain."""

    domain: Domain
    pods: int
    leaders: int


def cluster(case: Json) -> Cluster:
    """Return a case's cluster."""
    used: Usage = {}
    if not case.get("simulateEmpty"):
        for key, amounts in (case.get("usage") or {}).items():
            used[tuple(key.split(","))] = Counter(amounts)
    return Cluster(
        case["topologyName"],
        case["levels"],
        tree(case),
        case.get("featureGates") or {},
        case.get("flavorTolerations") or (),
        used,
    )


def rules_of(on: Cluster, asked: Ask) -> Rules:
    """Return how domains compare for a request."""
    mixed = bool(on.gates.get("TASProfileMixed", True))
    affinity = bool(on.gates.get("TASRespectNodeAffinityPreferred"))
    return Rules(asked.unconstrained and mixed, affinity)


# Phase 1: what fits.


def count(
    on: Cluster,
    workers: Json,
    leader: Json | None,
    asked: Ask,
    inside: Callable[[Domain], bool] | None,
) -> Counter[str]:
    """Count what fits each domain, and return how many leaves are kept out by what."""
    excluded: Counter[str] = Counter()
    for leaf in on.root.leaves():
        _count_leaf(on, leaf, workers, leader, asked, inside, excluded)
    roll_up(on.root, asked, leader is not None)
    return excluded


def _count_leaf(
    on: Cluster,
    at: Domain,
    workers: Json,
    leader: Json | None,
    asked: Ask,
    inside: Callable[[Domain], bool] | None,
    excluded: Counter[str],
) -> None:
    at.pods = at.pods_beside = at.slices = at.slices_beside = at.leader = at.affinity = 0
    assert at.leaf is not None
    why = keeps_out(at.leaf, workers, on.tolerations) if on.by_host else ""
    if not why and inside is not None and not inside(at):
        why = "topologyDomain"
    if why:
        excluded[why] += 1
        return
    room = Counter(at.leaf.free)
    for usage in (on.used, on.assumed):
        room.subtract(usage.get(at.leaf.key, {}))
    one = {**workers.get("requests", {}), "pods": 1}
    at.pods, limiting = countable(one, room)
    if not at.pods:
        excluded[f'resource "{limiting}"'] += 1
    beside = Counter(room)
    if leader is not None:
        lead = {**leader.get("requests", {}), "pods": 1}
        if countable(lead, room)[0] > 0:
            at.leader = 1
            beside.subtract(lead)
    at.pods_beside = countable(one, beside)[0]
    if len(at.path) - 1 == asked.slice_level:
        at.slices, at.slices_beside = at.pods // asked.size, at.pods_beside // asked.size
    if on.by_host and on.gates.get("TASRespectNodeAffinityPreferred"):
        at.affinity = weight(workers, at.leaf.labels)


def roll_up(at: Domain, asked: Ask, led: bool) -> None:
    """Count inner domains from their children."""
    if at.leaf is not None:
        return
    for child in at.children:
        roll_up(child, asked, led)
    recount(at, asked, led)


def recount(at: Domain, asked: Ask, led: bool) -> None:
    """Count one domain from its children."""
    level = len(at.path) - 1
    size = asked.inner.get(level + 1, 1)
    rows = [
        (c.pods // size * size, c.pods_beside // size * size, c.slices, c.slices_beside)
        for c in at.children
    ]
    at.pods = sum(row[0] for row in rows)
    at.slices = sum(row[2] for row in rows)
    at.leader = max((c.leader for c in at.children), default=0)
    at.affinity = sum(c.affinity for c in at.children)
    eligible = [row for row, c in zip(rows, at.children, strict=True) if not led or c.leader > 0]
    at.pods_beside = at.pods - min(row[0] - row[1] for row in eligible) if eligible else 0
    at.slices_beside = at.slices - min(row[2] - row[3] for row in eligible) if eligible else 0
    if level == asked.slice_level:
        at.slices, at.slices_beside = at.pods // asked.size, at.pods_beside // asked.size


# Orders.


def in_order(domains: Sequence[Domain], rules: Rules) -> list[Domain]:
    """Return domains as they are taken without a leader."""
    sign = 1 if rules.least_free else -1
    return sorted(
        domains,
        key=lambda d: (-d.affinity if rules.affinity else 0, sign * d.slices, d.pods, d.path),
    )


def in_leader_order(domains: Sequence[Domain], rules: Rules) -> list[Domain]:
    """Return domains as they are taken with a leader."""
    sign = 1 if rules.least_free else -1
    return sorted(
        domains,
        key=lambda d: (
            -d.leader,
            -d.affinity if rules.affinity else 0,
            sign * d.slices_beside,
            d.pods_beside,
            d.path,
        ),
    )


def units(domain: Domain, leaders: int, by_slices: bool = True) -> int:
    """Return the slices or pods that fit, beside a leader where one is still to be placed."""
    if by_slices:
        return domain.slices_beside if leaders else domain.slices
    return domain.pods_beside if leaders else domain.pods


def best_of(
    entries: Sequence[Domain], need: int, leaders: int, rules: Rules, by_slices: bool = True
) -> Domain:
    """Return the first with the fewest units that suffice, else the first."""
    alike = list(entries)
    if rules.affinity:
        end = next((i for i, d in enumerate(alike) if d.affinity != alike[0].affinity), len(alike))
        alike = alike[:end]
    fits = [d for d in alike if units(d, leaders, by_slices) >= need and d.leader >= leaders]
    return min(fits, key=lambda d: units(d, leaders, by_slices)) if fits else alike[0]


def leader_first(
    entries: Sequence[Domain], need: int, leaders: int, by_slices: bool = True
) -> list[Domain]:
    """Move the first entry to the front that can have the leader without harm to the rest."""
    rest = list(entries)
    if not leaders or len(rest) < 2:
        return rest
    total = sum(units(d, 0, by_slices) for d in rest)
    for d in rest:
        loss = units(d, 0, by_slices) - units(d, 1, by_slices)
        if d.leader >= leaders and total - loss >= need:
            return [d, *(each for each in rest if each is not d)]
    return rest
