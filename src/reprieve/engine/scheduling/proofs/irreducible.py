"""Whether a victim of a plan could stay: promise "Irreducible", checked before each plan runs.

A victim could stay when, with it back on its node and all others removed, every member still passes
all filters on its own node, in the order of placement, beside the members before it and the pods
for which the node is kept (specification 7.7, 8.4 and 8.7). What is evicted as one comes back as
one. Nothing of the search is used; budgets and the order of importance state which victim is tried
first, and no pod that passes here may be a victim, whatever the order was.

Only filters that can do nothing but refuse more when a pod comes are certain to refuse at the end
each pod that they refused on the way. Two others may accept later a pod that they refused at its
turn, since another one has come back: spread over domains, and required affinity. Where victims are
not tried again (a plain pod; `secondReprievePass` off, as in the reference) those that count for
such a constraint of a member are not checked. With `simulateClaims` neither are pods with claims or
volumes, where members have some: which devices a member uses depends on which pods are there.

Arithmetic comes first, on all victims at once: capacity, pods that keep apart, and counts per
domain. Each victim that passes that is tried with all filters; without a fault hardly any does, so
that the time grows with the victims and the members, not with their product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Flag, Pending
from reprieve.engine.placement.filtering import Filter, Reach
from reprieve.engine.placement.filters.interpod import InterPodFilter
from reprieve.engine.placement.filters.ports import PortsFilter
from reprieve.engine.placement.filters.resources import ResourcesFilter
from reprieve.engine.placement.filters.spread import SpreadConstraintCounts, SpreadFilter
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.simulation import Simulation

__all__ = ["Going", "could_stay"]

_MOST: Final = 20  # units that are named
_NONE: Final = 2**31
_NOTHING_ASKED: Final = np.iinfo(np.int64).max
_WITH_COMPANY: Final = frozenset({FilterName.POD_TOPOLOGY_SPREAD, FilterName.INTER_POD_AFFINITY})
_ONLY_REFUSING: Final = frozenset(FilterName) - _WITH_COMPANY

_Members: TypeAlias = Sequence[tuple[Pending, int]]  # with the index of the node, as placed


@dataclass(slots=True)
class Going:
    """The victims, and which of them are still in question.

    `slots`: (victims,) of the snapshot. `unit`: (victims,) the place in `slots` of one pod of the
    unit, the same for all of its pods. `open`: (victims,) True until something refuses the unit.
    """

    slots: I64
    unit: I64
    open: Mask = field(init=False)

    def __post_init__(self) -> None:
        """Everybody is in question."""
        self.open = np.ones(len(self.slots), np.bool_)

    def places(self) -> I64:
        """Return the places of the pods in question."""
        return np.flatnonzero(self.open)

    def settle(self, places: I64) -> None:
        """The units of these pods are no longer in question."""
        if len(places):
            settled = np.zeros(len(self.slots), np.bool_)
            settled[self.unit[places]] = True
            self.open &= ~settled[self.unit]

    def units(self) -> list[I64]:
        """Return the slots of each unit in question."""
        places = self.places()
        order = places[np.argsort(self.unit[places], kind="stable")]
        heads = np.flatnonzero(np.diff(self.unit[order], prepend=-1))
        return np.split(self.slots[order], heads[1:]) if len(order) else []


def could_stay(
    simulation: Simulation, members: _Members, going: Going, *, tried_again: bool
) -> list[I64]:
    """Return the slots of units that could stay, each alone; the first ones if there are many.

    `simulation`: all victims are removed, and the members on their nodes. `members`: in the order
    in which they were placed. `tried_again`: victims were, after others had come back.
    """
    for refuse in (_without_room, _apart):
        if going.open.any():
            refuse(simulation, members, going)
    if going.open.any():
        _uneven(simulation, members, going, tried_again=tried_again)
    if not tried_again and going.open.any():
        _company(simulation, members, going)
    if simulation.policy.simulate_claims and going.open.any():
        _with_claims(simulation, members, going)
    if not going.open.any():
        return []
    for pod in reversed(simulation.simulated[:]):
        simulation.unplace(pod)
    on_node: dict[int, list[Pending]] = {}
    for pending, node in members:
        on_node.setdefault(node, []).append(pending)
    found: list[I64] = []
    for slots in going.units():
        if _stays(simulation, members, on_node, slots):
            found.append(slots)
            if len(found) == _MOST:
                break
    return found


def _filters(simulation: Simulation, members: _Members) -> Iterator[tuple[Filter, I64]]:
    """Yield each filter of the members once, with the nodes of those whose it is."""
    nodes: dict[int, list[int]] = {}
    filters: dict[int, tuple[Filter, ...]] = {}
    for pending, node in members:
        own = simulation.filters(pending)
        filters[id(own)] = own
        nodes.setdefault(id(own), []).append(node)
    for key, own in filters.items():
        for each in own:
            yield each, np.array(nodes[key], np.int64)


def _without_room(simulation: Simulation, members: _Members, going: Going) -> None:
    """Refuse pods that request more than is left where members are, of what they request.

    The last member of a node that requests a resource finds all of it in use that is in use here.
    """
    snapshot = simulation.snapshot
    nodes = np.unique(np.array([node for _, node in members]))
    checked = np.zeros((len(nodes), len(snapshot.resources)), np.bool_)
    for each, own in _filters(simulation, members):
        if isinstance(each, ResourcesFilter):
            checked[np.searchsorted(nodes, own)[:, None], np.array([0, *each.columns])] = True
    left = snapshot.allocatable[nodes] - simulation.used[nodes]
    for row, node in enumerate(nodes.tolist() if simulation.nominated else ()):
        for pod in simulation.nominated.get(node, ()):
            left[row] -= simulation.requests_of(pod.pod_class)
    # A resource that the node has not is provided by something else (21.4).
    left[~checked | (left < 0)] = _NOTHING_ASKED
    row_of = np.full(len(snapshot.nodes), -1, np.int64)
    row_of[nodes] = np.arange(len(nodes))
    rows = row_of[snapshot.pod_node[going.slots]]
    here = np.flatnonzero(rows >= 0)
    lacks = snapshot.pod_requests.take(going.slots[here], axis=0) > left[rows[here]]
    going.settle(here[lacks.any(axis=1)])
    here = here[going.open[here]]
    if not len(here):
        return
    # What several pods of one unit request of the same node.
    pairs, pair = np.unique(going.unit[here] * len(nodes) + rows[here], return_inverse=True)
    sums = np.zeros((len(pairs), len(snapshot.resources)), np.int64)
    np.add.at(sums, pair, snapshot.pod_requests[going.slots[here]])
    going.settle(here[(sums > left[pairs % len(nodes)]).any(axis=1)[pair]])


def _apart(simulation: Simulation, members: _Members, going: Going) -> None:
    """Refuse pods that cannot be with a member: host ports, required anti-affinity either way."""
    snapshot = simulation.snapshot
    for each, nodes in _filters(simulation, members):
        if isinstance(each, PortsFilter):
            places = going.places()
            slots = going.slots[places]
            clash = np.isin(snapshot.pod_class[slots], list(each.classes))
            going.settle(places[clash & np.isin(snapshot.pod_node[slots], nodes)])
        if not isinstance(each, InterPodFilter):
            continue
        for counts in (*each.anti, *each.existing):
            chosen = np.zeros(len(counts.counts) + 1, np.bool_)
            chosen[counts.domain_of_node[nodes]] = True
            chosen[-1] = False  # nodes without the key read the last entry
            slots = going.slots[(places := going.places())]
            number = (snapshot.pod_class if counts.by_class else snapshot.pod_labels)[slots]
            met = chosen[counts.domain_of_node[snapshot.pod_node[slots]]]
            going.settle(places[met & (counts.weights[number] > 0)])


def _uneven(simulation: Simulation, members: _Members, going: Going, *, tried_again: bool) -> None:
    """Refuse pods that make a domain of a member too full; leave out all that count, on request."""
    snapshot = simulation.snapshot
    for each, _ in _filters(simulation, members):
        if not isinstance(each, SpreadFilter):
            continue
        for constraint in each.constraints:
            places = going.places()
            slots = going.slots[places]
            nodes = snapshot.pod_node[slots]
            counted = constraint.matching[snapshot.pod_labels[slots]] & constraint.eligible[nodes]
            counted &= (snapshot.pod_flags[slots] & Flag.DELETING) == 0
            places, nodes = places[counted], nodes[counted]
            if not len(places):
                continue
            if not tried_again:
                going.settle(places)
                continue
            domains = constraint.domain_of_node[nodes].astype(np.int64)
            unit = going.unit[places]
            evenness = _Evenness(simulation, members, each, constraint)
            alone = np.bincount(unit, minlength=len(going.slots))[unit] == 1
            going.settle(places[alone & evenness.full()[domains]])
            several: dict[int, list[int]] = {}
            rows = zip(unit[~alone].tolist(), domains[~alone].tolist(), strict=True)
            for number, domain in rows:
                several.setdefault(number, []).append(domain)
            settled = [number for number, more in several.items() if evenness.too_full(more)]
            going.settle(np.array(settled, np.int64))


class _Evenness:
    """What members meet of one spread constraint, each beside those before it (21.6)."""

    def __init__(
        self,
        simulation: Simulation,
        members: _Members,
        own: SpreadFilter,
        constraint: SpreadConstraintCounts,
    ) -> None:
        """The members are in the simulation, and counted."""
        at = [int(constraint.domain_of_node[node]) for _, node in members]
        self._steps = [
            (
                domain,
                any(each is own for each in simulation.filters(pending)),
                bool(constraint.matching[pending.labels] and constraint.eligible[node]),
            )
            for (pending, node), domain in zip(members, at, strict=True)
        ]
        self._base = constraint.counts.copy()
        for domain, _, counts in self._steps:
            self._base[domain] -= counts
        self._existing = constraint.existing
        self._few = constraint.existing < constraint.constraint.min_domains
        self._limit = constraint.constraint.max_skew - constraint.own
        self._levels = Counter(self._base[: self._existing].tolist())
        self._known: dict[tuple[int, ...], bool] = {}
        self._bounds: dict[int, I64] = {}

    def full(self) -> Mask:
        """Return which domains fit no pod more before some member: (domains,)."""
        found: Mask = self._fullest(0) + 1 > self._limit
        return found

    def too_full(self, more: Sequence[int]) -> bool:
        """Return whether pods in these domains, all of them, leave no capacity for some member."""
        key = tuple(sorted(more))
        if key not in self._known:
            known = self._surely_too_full(Counter(key))
            self._known[key] = known or bool((self._fullest(0, key) > self._limit).any())
        return self._known[key]

    def _surely_too_full(self, more: Counter[int]) -> bool:
        """So many domains more are fuller at most, and the next one is as empty as it was."""
        if len(more) not in self._bounds:
            self._bounds[len(more)] = self._fullest(len(more))
        bound = self._bounds[len(more)]
        return any(bound.item(domain) + count > self._limit for domain, count in more.items())

    def _fullest(self, raised: int, more: Iterable[int] = ()) -> I64:
        """Return by how much each domain is fuller than others when a member comes, at most.

        With one pod more in each of `more`: (domains,). Others are the emptiest of the other
        domains, or with `raised` the emptiest one after so many. A domain that no member comes into
        is as empty as can be.
        """
        worst = np.full(len(self._base), -_NONE, np.int64)
        counts, levels = self._base.copy(), self._levels.copy()
        for domain in more:
            self._count(counts, levels, domain)
        for domain, asks, counts_itself in self._steps:
            if asks and domain >= 0:
                own = counts.item(domain)
                if self._few:
                    least = 0
                elif raised:
                    least = _after(levels, raised)
                else:
                    least = _least(levels, without=own if domain < self._existing else None)
                worst[domain] = max(worst.item(domain), own - least)
            if counts_itself:
                self._count(counts, levels, domain)
        return worst

    def _count(self, counts: I64, levels: Counter[int], domain: int) -> None:
        before = counts.item(domain)
        counts[domain] += 1
        if domain < self._existing:
            levels[before + 1] += 1
            levels[before] -= 1
            if not levels[before]:
                del levels[before]


def _least(levels: Counter[int], *, without: int | None) -> int:
    """Return the lowest of these numbers, one of which may be left out; of none a very high one."""
    least = min(levels, default=_NONE)
    if without == least and levels[least] == 1:
        return min((level for level in levels if level != least), default=_NONE)
    return least


def _after(levels: Counter[int], passed: int) -> int:
    """Return the lowest of these numbers once so many have been passed; of none a very high one."""
    for level in sorted(levels):
        passed -= levels[level]
        if passed < 0:
            return level
    return _NONE


def _company(simulation: Simulation, members: _Members, going: Going) -> None:
    """Leave out pods that match a required affinity term of a member."""
    snapshot = simulation.snapshot
    for each, _ in _filters(simulation, members):
        if isinstance(each, InterPodFilter):
            for counts in each.affinity:
                places = going.places()
                labels = snapshot.pod_labels[going.slots[places]]
                going.settle(places[counts.weights[labels] > 0])


def _with_claims(simulation: Simulation, members: _Members, going: Going) -> None:
    """Leave out pods whose devices a member may choose from."""
    for each, _ in _filters(simulation, members):
        if each.name is not FilterName.DYNAMIC_RESOURCES:
            continue
        holding = []
        for place in going.places().tolist():
            pod = simulation.placed_at(int(going.slots[place]))
            if each.add(pod) is not Reach.NOTHING:
                holding.append(place)
            each.remove(pod)
        going.settle(np.array(holding, np.int64))


def _stays(
    simulation: Simulation,
    members: _Members,
    on_node: Mapping[int, Sequence[Pending]],
    slots: I64,
) -> bool:
    """Return whether all members pass, one after the other, with these pods back."""
    simulation.restore(slots)
    # Where a filter refuses a member without the others, it does so with them: most end here.
    refused = any(
        simulation.refusing(pending, node, _ONLY_REFUSING)
        for node in set(simulation.snapshot.pod_node[slots].tolist())
        for pending in on_node.get(node, ())
    )
    placed = []
    for pending, node in () if refused else members:
        if simulation.code_at(pending, node):
            refused = True
            break
        placed.append(simulation.place(pending, node))
    for pod in reversed(placed):
        simulation.unplace(pod)
    simulation.remove(slots)
    return not refused
