"""What a workload lacks of its quota, by pod set: pod sets get their flavors one after the other.

A flavor is an alternative, so the shortage is reported for each flavor that the pods of a set
accept and that could ever have enough, the nearest first. The usage of earlier sets is counted:
each uses the first flavor with capacity for all of it, else the nearest. Source: specification of
the quota plane, sections 3 and 5.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reprieve.engine.quota.assigning.flavors import mismatch
from reprieve.engine.quota.assigning.requests import pod_set_requests
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import available
from reprieve.engine.quota.model import (
    ClusterQueue,
    FlavorResource,
    PodSet,
    ResourceGroup,
    Workload,
)

__all__ = ["Asking", "Shortage", "accepted_flavors", "askings", "shortages"]


@dataclass(frozen=True, slots=True)
class Asking:
    """Pod sets that get their flavors together, and what they request in base units."""

    pod_sets: tuple[PodSet, ...]
    amounts: Mapping[str, int]

    @property
    def names(self) -> str:
        """Return the names of the pod sets."""
        return ", ".join(each.name for each in self.pod_sets)


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing of one flavor, by resource in base units; `share` of what is requested.

    `asked`: what the pod sets request.
    """

    pod_sets: tuple[str, ...]
    flavor: str
    missing: Mapping[str, int]
    share: float
    asked: Mapping[str, int]


def askings(snapshot: Snapshot, workload: Workload, queue: ClusterQueue) -> list[Asking]:
    """Return what a workload requests, by pod sets that get their flavors together."""
    counted = queue.group_of("pods") is not None
    asked: dict[str, tuple[list[PodSet], Counter[str]]] = {}
    for position, each in enumerate(pod_set_requests(workload, snapshot.settings)):
        group = each.pod_set.group
        key = f"group/{group}" if group else f"single/{position}"
        pod_sets, amounts = asked.setdefault(key, ([], Counter()))
        pod_sets.append(each.pod_set)
        amounts.update(each.amounts)
        if counted:
            amounts["pods"] += each.count
    return [
        Asking(tuple(pod_sets), {name: n for name, n in sorted(amounts.items()) if n})
        for pod_sets, amounts in asked.values()
    ]


def accepted_flavors(snapshot: Snapshot, asking: Asking, group: ResourceGroup) -> Iterator[str]:
    """Yield the flavors of a group that all of the pods accept."""
    for each in group.flavors:
        flavor = snapshot.configuration.flavors.get(each.flavor)
        if flavor is not None and not any(mismatch(flavor, p) for p in asking.pod_sets):
            yield each.flavor


def shortages(snapshot: Snapshot, workload: Workload, queue: int) -> tuple[Shortage, ...]:
    """Return what is missing, by pod sets and group, of each flavor, the nearest first.

    Pod sets for which one flavor of a group has capacity lack nothing of it.
    """
    config = snapshot.configuration.cluster_queues[snapshot.tree.names[queue]]
    chosen: Counter[FlavorResource] = Counter()
    found: list[Shortage] = []
    for asking in askings(snapshot, workload, config):
        for group in config.groups:
            wanted = {name: n for name, n in asking.amounts.items() if name in group.covered}
            ranked = _ranked(snapshot, queue, asking, group, wanted, chosen)
            if not ranked:
                continue
            if ranked[0].missing:
                found += ranked
            for name, amount in wanted.items():
                chosen[FlavorResource(ranked[0].flavor, name)] += amount
    return tuple(found)


def _ranked(
    snapshot: Snapshot,
    queue: int,
    asking: Asking,
    group: ResourceGroup,
    wanted: Mapping[str, int],
    chosen: Mapping[FlavorResource, int],
) -> list[Shortage]:
    flavors = list(accepted_flavors(snapshot, asking, group))
    possible = [each for each in flavors if _could(snapshot, queue, each, wanted, chosen)]
    ranked = [
        _shortage(snapshot, queue, asking, flavor, wanted, chosen) for flavor in possible or flavors
    ]
    return sorted(ranked, key=lambda each: each.share)


def _could(
    snapshot: Snapshot,
    queue: int,
    flavor: str,
    wanted: Mapping[str, int],
    chosen: Mapping[FlavorResource, int],
) -> bool:
    """Return whether a flavor could have enough, if no other held any of it."""
    tree = snapshot.tree
    pairs = {FlavorResource(flavor, name): amount for name, amount in wanted.items()}
    return all(
        chosen.get(pair, 0) + amount <= tree.potential[tree.column(pair)][queue]
        for pair, amount in pairs.items()
    )


def _shortage(
    snapshot: Snapshot,
    queue: int,
    asking: Asking,
    flavor: str,
    wanted: Mapping[str, int],
    chosen: Mapping[FlavorResource, int],
) -> Shortage:
    tree, missing, share = snapshot.tree, dict[str, int](), 0.0
    for resource, amount in wanted.items():
        pair = FlavorResource(flavor, resource)
        column = tree.column(pair)
        snapshot.add_usage(queue, ((column, 0),))
        left = max(0, available(tree, column, snapshot.usage[column], tree.path[queue]))
        lacking = chosen.get(pair, 0) + amount - left
        if lacking > 0:
            missing[resource] = lacking
            share += lacking / amount
    return Shortage(tuple(each.name for each in asking.pod_sets), flavor, missing, share, wanted)
