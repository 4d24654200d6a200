"""By what nodes refuse a waiting pod: taints, labels, sizes and volumes by name and figure.

First what no node of the cluster could change by its other properties, each by itself:

1. a volume claim that cannot be used
2. a resource that no node has
3. a label, or terms of an affinity, that no node has
4. more of a resource than the largest node has

Where there is none of it, each node counts once, by the first filter that refuses it, in the order
of kube-scheduler. Refusals that no pod can change are before others: a node that does not reach a
volume is of no use when it has capacity. Source: specification of the scheduling plane, sections 16
and 21.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, U8, Mask
from reprieve.engine.cluster.rows import Kind, NodeRow, NodeTerm, PodClass, Taint
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.cluster.storage import VolumeRow, claim_name
from reprieve.engine.diagnosis.refusals import NodeRefusal, Refused
from reprieve.engine.diagnosis.scheduling import STATIC, TOGETHER
from reprieve.engine.diagnosis.together import together_refusal
from reprieve.engine.placement.filters.dynamic.device_extended import extended_requests
from reprieve.engine.placement.filters.selection import NODE_NAME, selection_of
from reprieve.engine.placement.filters.taints import KEEPS_AWAY
from reprieve.engine.placement.reasons import Reason, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.selectors import covers, requirement_text

__all__ = ["lasting_codes", "node_refusals"]

_MOST_NAMES: Final = 3
_LASTING: Final = np.array([*STATIC], np.uint8)
#: Of as many nodes that comes first against which most can be done.
_ORDER: Final = (Refused.TAINT, *(each for each in Refused if each is not Refused.TAINT))
_READINESS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_COUNTED: Final = STATIC | TOGETHER | {Rejection.PORTS}


def lasting_codes(simulation: Simulation, pending: Pending) -> U8:
    """Return a `Rejection` of each node, 0 where it passes: (nodes,); those of `STATIC` first."""
    codes = simulation.codes(pending).copy()
    if simulation.refusal(pending) is None:
        for each in reversed(simulation.filters(pending)):
            own = each.codes()
            np.copyto(codes, own, where=np.isin(own, _LASTING))
    return codes


def node_refusals(simulation: Simulation, pending: Pending) -> tuple[NodeRefusal, ...]:
    """Return what keeps a pending pod from nodes, that of the whole cluster first."""
    entry = simulation.snapshot.classes[pending.pod_class]
    if entry is None or not simulation.snapshot.nodes:
        return ()
    refusing = _Refusing(simulation, pending, entry)
    return tuple(refusing.of_cluster()) or tuple(refusing.of_nodes())


class _Refusing:
    """The nodes of a snapshot, as one pod sees them."""

    def __init__(self, simulation: Simulation, pending: Pending, entry: PodClass) -> None:
        self._simulation, self._pending, self._entry = simulation, pending, entry
        self._nodes: Sequence[NodeRow] = simulation.snapshot.nodes
        self._all = len(self._nodes)

    def of_cluster(self) -> Iterator[NodeRefusal]:
        """Yield what holds for the whole cluster."""
        refusal = self._simulation.refusal(self._pending)
        if refusal is not None:
            kind = Refused.CLAIM if "CLAIM" in refusal.reason.rejection.name else Refused.OTHER
            subject = f"{self._pending.row.namespace}/{refusal.reason.subject}"
            yield self._everywhere(kind, subject=subject)
            return
        absent = [name for name, _ in self._amounts() if not self._most(name)[0]]
        devices = tuple(sorted({name for node in self._nodes for name in _devices(node)}))
        for name in absent:
            there = devices[:_MOST_NAMES] if "/" in name else ()
            yield self._everywhere(Refused.RESOURCE, subject=name, there=there)
        yield from self._labels()
        for name, amount in self._amounts():
            most, largest = self._most(name)
            if name not in absent and most < amount:
                yield self._everywhere(
                    Refused.SIZE, subject=name, asks=amount, most=most, largest=largest
                )

    def _labels(self) -> Iterator[NodeRefusal]:
        """Yield labels and terms of the affinity that no node has."""
        for key, value in self._entry.node_selector:
            if not any(node.labels.get(key) == value for node in self._nodes):
                there = self._values(key)
                yield self._everywhere(Refused.LABEL, subject=f"{key}={value}", there=there)
        terms = self._entry.node_affinity
        if not terms:
            return
        selection = selection_of(self._simulation)
        if selection.nodes_of_terms(terms).any():
            return
        named = [name for term in terms for name in _named(term)]
        if named:
            known = {node.name for node in self._nodes}
            gone = tuple(name for name in named if name not in known)
            yield self._everywhere(Refused.NODE_NAME, subject=", ".join(gone or named))
            return
        keys = dict.fromkeys(each.key for term in terms for each in term.expressions)
        there = tuple(value for key in keys for value in self._values(key))[:_MOST_NAMES]
        yield self._everywhere(Refused.AFFINITY, subject=_terms_text(terms), there=there)

    def of_nodes(self) -> Iterator[NodeRefusal]:
        """Yield what keeps the pod from some of the nodes, each node once, the most first."""
        codes = lasting_codes(self._simulation, self._pending)
        free = self._has_room()
        found: dict[tuple[Refused, str], list[int]] = {}
        for index in np.flatnonzero(codes).tolist():
            rejection = Rejection(int(codes[index]))
            if rejection in _COUNTED:
                found.setdefault(self._refused(rejection, self._nodes[index]), []).append(index)
        for (kind, subject), places in sorted(
            found.items(), key=lambda item: (-len(item[1]), _ORDER.index(item[0][0]), item[0])
        ):
            names = tuple(self._nodes[place].name for place in places[:_MOST_NAMES])
            room = int(free[places].sum())
            if kind is Refused.SIZE:
                yield self._too_small(places, names)
                continue
            reason = None
            if kind is Refused.OTHER:
                reason = self._reason(Rejection(int(codes[places[0]])), places[0])
            there = self._values(subject.partition("=")[0]) if kind is Refused.LABEL else ()
            yield NodeRefusal(
                kind, len(places), self._all, names, subject, there, room=room, reason=reason
            )

    def _reason(self, rejection: Rejection, place: int) -> Reason:
        for each in self._simulation.filters(self._pending):
            if each.code_at(place) == rejection:
                return next(iter(each.reasons_at(place)), Reason(rejection))
        return Reason(rejection)

    def _refused(self, rejection: Rejection, node: NodeRow) -> tuple[Refused, str]:
        """Return by what a node refuses the pod, and its subject."""
        entry = self._entry
        match rejection:
            case Rejection.TAINT:
                taint = next(each for each in node.taints if _keeps_away(entry, each))
                if taint.key in _READINESS:
                    return Refused.NOT_READY, taint.key.rpartition("/")[2]
                return Refused.TAINT, _taint_text(taint)
            case Rejection.UNSCHEDULABLE:
                return Refused.CORDONED, ""
            case Rejection.NODE_AFFINITY:
                for key, value in entry.node_selector:
                    if node.labels.get(key) != value:
                        return Refused.LABEL, f"{key}={value}"
                return Refused.AFFINITY, _terms_text(entry.node_affinity or ())
            case Rejection.LEFT_OUT | Rejection.NODE_NAME:
                named = [name for term in entry.node_affinity or () for name in _named(term)]
                return Refused.NODE_NAME, entry.node_name or ", ".join(named)
            case Rejection.RESOURCES_EXCEED_NODE:
                return Refused.SIZE, ""
            case Rejection.PORTS:
                return Refused.PORT, ", ".join(str(each.port) for each in entry.host_ports)
            case Rejection.VOLUME_AFFINITY if volume := self._volume(node):
                return Refused.VOLUME, volume
            case _ if rejection in TOGETHER:
                return together_refusal(self._simulation, self._pending, rejection, node)
            case _:
                return Refused.OTHER, rejection.name

    def _volume(self, node: NodeRow) -> str:
        """Return the volume of the pod that a node does not reach, with its terms."""
        tables, row = self._simulation.snapshot.tables, self._pending.row
        claims, volumes = tables.get(Kind.CLAIM, {}), tables.get(Kind.VOLUME, {})
        selection = selection_of(self._simulation)
        place = self._simulation.snapshot.node_index[node.name]
        for use in self._entry.volumes:
            claim = claims.get((row.namespace, claim_name(use, row.name)))
            volume: VolumeRow | None = None if claim is None else volumes.get(("", claim.volume))
            terms = () if volume is None else volume.node_affinity or ()
            if volume is not None and terms and not selection.nodes_of_terms(terms)[place]:
                return f"{volume.name} ({_terms_text(terms)})"
        return ""

    def _too_small(self, places: Sequence[int], names: tuple[str, ...]) -> NodeRefusal:
        """Return what these nodes are too small for: the resource that most of them lack."""
        nodes = [self._nodes[place] for place in places]
        lacking = [
            (sum(node.allocatable.get(name, 0) < amount for node in nodes), "/" in name, name)
            for name, amount in self._amounts()
        ]
        _, _, name = max(lacking)
        amount = dict(self._amounts())[name]
        most, largest = _largest(nodes, name)
        return NodeRefusal(
            Refused.SIZE,
            len(places),
            self._all,
            names,
            name,
            asks=amount,
            most=most,
            largest=largest,
        )

    def _everywhere(
        self,
        kind: Refused,
        *,
        subject: str,
        there: tuple[str, ...] = (),
        asks: int = 0,
        most: int = 0,
        largest: str = "",
    ) -> NodeRefusal:
        names = tuple(node.name for node in self._nodes[:_MOST_NAMES])
        refusal = self._simulation.refusal(self._pending)
        reason = None if refusal is None else refusal.reason
        return NodeRefusal(
            kind, self._all, self._all, names, subject, there, asks, most, largest, reason=reason
        )

    def _amounts(self) -> list[tuple[str, int]]:
        """Return what the pod requests of each resource that no DeviceClass stands for."""
        snapshot = self._simulation.snapshot
        claimed = {each.resource for each in extended_requests(snapshot, self._entry)}
        return [
            (name, amount)
            for name, amount in self._entry.requests
            if amount > 0 and name not in claimed
        ]

    def _most(self, resource: str) -> tuple[int, str]:
        return _largest(self._nodes, resource)

    def _values(self, key: str) -> tuple[str, ...]:
        """Return which values of a label nodes have."""
        values = sorted({node.labels[key] for node in self._nodes if key in node.labels})
        return tuple(f"{key}={value}" for value in values[:_MOST_NAMES])

    def _has_room(self) -> Mask:
        """Return on which nodes the pod fits beside those that are there: (nodes,)."""
        snapshot = self._simulation.snapshot
        need: I64 = self._simulation.requests_of(self._pending.pod_class)
        free = snapshot.allocatable - self._simulation.used
        fits: Mask = np.all((free >= need)[:, need > 0], axis=1)
        return fits


def _largest(nodes: Iterable[NodeRow], resource: str) -> tuple[int, str]:
    """Return the largest amount that a node has, and the first node by name that has it."""
    amounts = [(node.allocatable.get(resource, 0), node.name) for node in nodes]
    most = max(amount for amount, _ in amounts)
    return most, min(name for amount, name in amounts if amount == most)


def _devices(node: NodeRow) -> Iterator[str]:
    return (name for name, amount in node.allocatable.items() if "/" in name and amount > 0)


def _named(term: NodeTerm) -> Iterator[str]:
    return (value for each in term.fields if each.key == NODE_NAME for value in each.values)


def _keeps_away(entry: PodClass, taint: Taint) -> bool:
    return taint.effect in KEEPS_AWAY and not any(covers(each, taint) for each in entry.tolerations)


def _taint_text(taint: Taint) -> str:
    """Return a taint as kubectl writes it: `key=value:effect`, or `key:effect`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _terms_text(terms: Iterable[NodeTerm]) -> str:
    """Return terms as people write them: `gpu in h100, h200 and zone exists`."""
    return " or ".join(
        " and ".join(
            requirement_text(each.key, each.operator, each.values)
            for each in (*term.expressions, *term.fields)
        )
        for term in terms
    )
