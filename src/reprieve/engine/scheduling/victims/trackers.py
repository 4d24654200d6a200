"""What members with fixed nodes state to a reprieved pod: one tracker per kind of constraint.

The placement does not change while units are reprieved, so that each filter of each member comes
down to a few numbers: capacity on the members' nodes, pairs that exclude each other, counts per
domain. A tracker names the pods that concern it; all others are reprieved without a test. Filters
whose answer cannot be derived from such numbers (required affinity, volume limits, simulated
claims) are run as they are, by `Rerun`. Source: specification 7.7 and 16; the design's "Slack
reprieve".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, I64, Mask
from reprieve.engine.cluster.rows import PodClass
from reprieve.engine.cluster.snapshot import Flag, Pending
from reprieve.engine.placement.filtering import Filter, Placed, Reach
from reprieve.engine.placement.filters.resources import ResourcesFilter
from reprieve.engine.placement.filters.selection import selection_of
from reprieve.engine.placement.filters.spread import SpreadFilter
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.victims.skew import Skew

__all__ = ["Members", "Rerun", "Room", "excluded", "skews_of"]

Members = Sequence[tuple[Pending, int]]  # pending pod and index of its node, in placement order

_AMPLE: Final = 1 << 60  # more than any node has
_GUARD: Final = 62  # the bit of a lane that stays set as long as the lane is not below zero
_LANE: Final = 64
_PAIRWISE: Final = (FilterName.NODE_PORTS, FilterName.VOLUME_RESTRICTIONS)


class Room:
    """What is left on the members' nodes, in the resources that members there request.

    All resources of a node are lanes of one integer, each with a guard bit, so that a pod is
    counted with one subtraction: a lane below zero borrows its guard and nothing else.
    """

    def __init__(self, simulation: Simulation, members: Members) -> None:
        """The simulation has all potential victims out and no member placed."""
        snapshot = simulation.snapshot
        nodes = np.array([node for _, node in members], np.int64)
        asked = np.stack([simulation.requests_of(pending.pod_class) for pending, _ in members])
        self._columns = _checked(simulation, members)
        self.nodes, place = np.unique(nodes, return_inverse=True)
        need = np.zeros((len(self.nodes), len(snapshot.resources)), np.int64)
        np.add.at(need, place, asked)
        left = snapshot.allocatable[self.nodes] - simulation.used[self.nodes] - need
        for index, node in enumerate(self.nodes.tolist()):
            for pod in simulation.nominated.get(node, ()):
                left[index] -= simulation.requests_of(pod.pod_class)
        # Members passed here, so a lack means that something else provides the resource (21.4).
        left[(need == 0) | (left < 0) | (left > _AMPLE)] = _AMPLE
        lanes = _lanes(left[:, self._columns] + (1 << _GUARD))
        self._left = dict(zip(self.nodes.tolist(), lanes, strict=True))
        self._guards = sum(1 << (_LANE * n + _GUARD) for n in range(len(self._columns)))
        self._requests = snapshot.pod_requests
        self._class = snapshot.pod_class  # of which all pods request the same
        self._node = snapshot.pod_node

    def rows(self, slots: I64) -> list[tuple[int, int]]:
        """Return (node, requests) of pods, as `place` wants them."""
        _, first, kind = np.unique(self._class[slots], return_index=True, return_inverse=True)
        amounts = np.minimum(self._requests[slots[first]][:, self._columns], _AMPLE)
        lanes = _lanes(amounts)
        return [
            (node, lanes[k])
            for node, k in zip(self._node[slots].tolist(), kind.tolist(), strict=True)
        ]

    def reprieve_each(self, wanted: Iterable[tuple[int, Sequence[tuple[int, int]]]]) -> list[int]:
        """Reprieve what fits, one unit after the other; return the units that do not, in order."""
        guards, room = self._guards, self._left
        refused: list[int] = []
        for unit, rows in wanted:
            if len(rows) > 1:
                if not self.place(rows):
                    refused.append(unit)
                continue
            for node, amounts in rows:
                left = room[node] - amounts
                if left & guards == guards:
                    room[node] = left
                else:
                    refused.append(unit)
        return refused

    def place(self, rows: Sequence[tuple[int, int]]) -> bool:
        """Place pods on members' nodes; return whether they fit, and change nothing if not."""
        guards, room = self._guards, self._left
        for done, (node, amounts) in enumerate(rows):
            left = room[node] - amounts
            if left & guards != guards:
                self.give(rows[:done])
                return False
            room[node] = left
        return True

    def give(self, rows: Sequence[tuple[int, int]]) -> None:
        """Undo `place`."""
        for node, amounts in rows:
            self._left[node] += amounts


def _lanes(amounts: I64) -> list[int]:
    """Return each row, of amounts from 0, as one integer with a lane for each column."""
    width = amounts.shape[1] * amounts.itemsize
    data = np.ascontiguousarray(amounts, "<i8").tobytes()
    if not width:
        return [0] * len(amounts)
    starts = range(0, len(data), width)
    return [int.from_bytes(data[at : at + width], "little") for at in starts]


def _checked(simulation: Simulation, members: Members) -> I64:
    columns: set[int] = set()
    for filters in {id(f): f for f in (simulation.filters(p) for p, _ in members)}.values():
        for each in filters:
            if isinstance(each, ResourcesFilter):
                columns.update((0, *each.columns))
    return np.array(sorted(columns), np.int64)


def excluded(simulation: Simulation, members: Members, slots: I64) -> dict[FilterName, Mask]:
    """Return which of these pods can never stand beside the members, by filter: (slots given,).

    Host ports, exclusive disks, ReadWriteOncePod claims, and both directions of required
    anti-affinity depend on the pair alone, so one test holds whatever else is reprieved.
    """
    found = _pairwise(simulation, members, slots)
    if FilterName.INTER_POD_AFFINITY in simulation.profile.filters:
        found[FilterName.INTER_POD_AFFINITY] = _apart(simulation, members, slots)
    return {name: mask for name, mask in found.items() if mask.any()}


def _entry(simulation: Simulation, number: int) -> PodClass:
    entry = simulation.snapshot.classes[number]
    assert entry is not None, "a pod's class is never free"
    return entry


def _with(simulation: Simulation, slots: I64, wanted: Callable[[PodClass], object]) -> list[int]:
    """Return the positions in `slots` of pods whose class has something."""
    numbers = _classes_with(simulation, wanted)
    if not numbers:
        return []
    return np.flatnonzero(np.isin(simulation.snapshot.pod_class[slots], numbers)).tolist()


def _classes_with(simulation: Simulation, wanted: Callable[[PodClass], object]) -> list[int]:
    classes = enumerate(simulation.snapshot.classes)
    return [number for number, entry in classes if entry is not None and wanted(entry)]


def _pairwise(simulation: Simulation, members: Members, slots: I64) -> dict[FilterName, Mask]:
    filters: dict[int, tuple[Filter, set[int]]] = {}
    for pending, node in members:
        for each in simulation.filters(pending):
            if each.name in _PAIRWISE:
                filters.setdefault(id(each), (each, set()))[1].add(node)
    found = {each.name: np.zeros(len(slots), np.bool_) for each, _ in filters.values()}
    if not filters:
        return found
    carrying = _with(simulation, slots, lambda e: e.host_ports or e.disks or e.volumes)
    for position in carrying:
        pod = simulation.placed_at(int(slots[position]))
        for each, nodes in filters.values():
            reach = each.add(pod)
            if reach is Reach.NODE:
                clash = pod.node in nodes and each.code_at(pod.node) != 0
            else:
                clash = reach is Reach.DOMAINS and any(each.code_at(node) for node in nodes)
            each.remove(pod)
            found[each.name][position] |= clash
    return found


def _apart(simulation: Simulation, members: Members, slots: I64) -> Mask:
    snapshot, selection = simulation.snapshot, selection_of(simulation)
    barred = np.zeros(len(slots), np.bool_)
    nodes, labels = snapshot.pod_node[slots], snapshot.pod_labels[slots]
    by_class: dict[int, set[int]] = {}
    by_labels: dict[int, set[int]] = {}
    for pending, node in members:
        by_class.setdefault(pending.pod_class, set()).add(node)
        by_labels.setdefault(pending.labels, set()).add(node)
    for number, places in by_class.items():
        for term in _entry(simulation, number).anti_affinity:
            domains = selection.domains(term.topology_key).numbers
            chosen = _domains_of(domains, places)
            barred |= selection.pods_of_term(term)[labels] & np.isin(domains[nodes], chosen)
    classes = snapshot.pod_class[slots]
    apart = _classes_with(simulation, lambda entry: entry.anti_affinity)
    for number in np.intersect1d(classes, apart).tolist() if apart else ():
        for term in _entry(simulation, number).anti_affinity:
            matched = selection.pods_of_term(term)
            places = {n for own, at in by_labels.items() if matched[own] for n in at}
            if places:
                domains = selection.domains(term.topology_key).numbers
                chosen = _domains_of(domains, places)
                barred |= (classes == number) & np.isin(domains[nodes], chosen)
    return barred


def skews_of(simulation: Simulation, members: Members, slots: I64) -> Iterator[tuple[Skew, I64]]:
    """Yield each spread constraint of the members, and the domain that each pod counts in.

    The latter is (slots given,), -1 for pods that do not count.
    """
    snapshot = simulation.snapshot
    nodes, labels = snapshot.pod_node[slots], snapshot.pod_labels[slots]
    staying = (snapshot.pod_flags[slots] & Flag.DELETING) == 0
    own = [simulation.filters(pending) for pending, _ in members]
    for filters in {id(each): each for each in own}.values():
        for each in filters:
            if not isinstance(each, SpreadFilter):
                continue
            for counts in each.constraints:
                skew = Skew(
                    counts.counts,
                    [int(counts.domain_of_node[node]) for _, node in members],
                    [
                        bool(counts.matching[member.labels] and counts.eligible[node])
                        for member, node in members
                    ],
                    [each is filters for each in own],
                    [
                        sum(
                            bool(counts.matching[pod.labels] and counts.eligible[node])
                            for pod in simulation.nominated.get(node, ())
                        )
                        for _, node in members
                    ],
                    existing=counts.existing,
                    own=counts.own,
                    max_skew=counts.constraint.max_skew,
                    min_domains=counts.constraint.min_domains,
                )
                counted = counts.matching[labels] & counts.eligible[nodes] & staying
                yield skew, np.where(counted, counts.domain_of_node[nodes], -1).astype(np.int64)


def _domains_of(domains: I32, nodes: Iterable[int]) -> list[int]:
    return [domain for domain in {int(domains[node]) for node in nodes} if domain >= 0]


class Rerun:
    """Runs filters of members as they are, for units that only they can judge.

    `concerned`: (slots given,) pods whose unit has to be tested here.
    """

    def __init__(self, simulation: Simulation, members: Members, slots: I64) -> None:
        self._simulation = simulation
        self._members = members
        self.concerned: Mask = np.zeros(len(slots), np.bool_)
        self._judged: dict[tuple[int, int], frozenset[FilterName]] = {}
        for pending, _ in members:
            key = (pending.pod_class, pending.labels)
            if key not in self._judged:
                self._judged[key] = frozenset(
                    each.name
                    for each in simulation.filters(pending)
                    if self._concerns(each, pending, slots)
                )

    def _concerns(self, each: Filter, pending: Pending, slots: I64) -> bool:
        simulation = self._simulation
        entry = _entry(simulation, pending.pod_class)
        if each.name is FilterName.INTER_POD_AFFINITY and entry.affinity:
            selection = selection_of(simulation)
            labels = simulation.snapshot.pod_labels[slots]
            for term in entry.affinity:
                self.concerned |= selection.pods_of_term(term)[labels]
            return True
        if each.name is FilterName.NODE_VOLUME_LIMITS:
            at = np.zeros(len(simulation.snapshot.nodes), np.bool_)
            at[[node for _, node in self._members]] = True
            here = at[simulation.snapshot.pod_node[slots]]
            positions = _with(simulation, slots, lambda entry: entry.volumes or entry.disks)
            self.concerned[positions] |= here[positions]
            return True
        claims = each.name in (FilterName.DYNAMIC_RESOURCES, FilterName.VOLUME_BINDING)
        if claims and simulation.policy.simulate_claims:
            self.concerned[:] = True
            return True
        return False

    def restore(self, pods: I64) -> FilterName | None:
        """Restore a unit; return the filter that refuses, in which case nothing has changed."""
        self._simulation.restore(pods)
        refused = self._refusing()
        if refused is not None:
            self._simulation.remove(pods)
        return refused

    def holds(self) -> bool:
        """Return whether all members pass as things are."""
        return not any(self._judged.values()) or self._refusing() is None

    def _refusing(self) -> FilterName | None:
        simulation = self._simulation
        placed: list[Placed] = []
        refused: FilterName | None = None
        for pending, node in self._members:
            judged = self._judged[(pending.pod_class, pending.labels)]
            refused = simulation.refusing(pending, node, judged)
            if refused is not None:
                break
            placed.append(simulation.place(pending, node))
        for pod in reversed(placed):
            simulation.unplace(pod)
        return refused

    def remove(self, pods: I64) -> None:
        """Undo `restore`."""
        self._simulation.remove(pods)
