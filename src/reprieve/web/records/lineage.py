"""A lineage: a unit with all that stood in its place before, whatever its uid.

1. What is there now: the unit's pods, its Workload, its GpuWorkload, and the uids of their owners.
2. What bears a name that these had, or that their controllers give to pods.
3. What a record or a Disruption states to be of the same lineage as one of these.

Source: specification of disruptions, section 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from reprieve.answers.kinds import asked_of
from reprieve.answers.preemptions.displacements import made_by, stands_for
from reprieve.api.reprieve import ObjectRef
from reprieve.units.errors import UsageError
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.reported import DisruptionRecord, PreemptionRecord
from reprieve.web.records.victims import VictimUnit

__all__ = ["SeenLineage", "lineage_of"]

#: Whose names state nothing about the names of pods.
_NO_MAKERS: Final = ("pod", "podgroup", "workload", "gpuworkload")


@dataclass(frozen=True, slots=True)
class SeenLineage:
    """One lineage.

    Attributes:
        unit: the id by which it was requested.
        kind: as objects carry it. namespace, name: of the unit.
        present: something of it is there.
        uids, names: of what is there, names with their kinds.
        displaced: the Disruptions of the lineage. victims: its units in records, with these.
        preempted: records in which it is the preemptor.
    """

    unit: str
    kind: str
    namespace: str
    name: str
    present: bool
    uids: frozenset[str]
    names: frozenset[tuple[str, str]]
    displaced: tuple[DisruptionRecord, ...] = ()
    victims: tuple[tuple[PreemptionRecord, VictimUnit], ...] = ()
    preempted: tuple[PreemptionRecord, ...] = ()

    def has(self, ref: ObjectRef) -> bool:
        """Return whether an object is of the lineage, as far as its uid and name state."""
        if ref.namespace != self.namespace:
            return False
        if ref.uid in self.uids or (ref.kind, ref.name) in self.names:
            return True
        if self.unit.partition("/")[0] in _NO_MAKERS:
            return False
        if ref.kind == "Pod":
            return made_by(self.name, ref.name)
        return stands_for(ref, self.kind, self.name)


def lineage_of(mirror: Mirror, unit: str) -> SeenLineage | None:
    """Return the lineage of a unit, None where none is known."""
    kind, namespace, name = unit.split("/")
    pods = mirror.pods.by("unit", unit)
    workloads = mirror.workloads_of(unit)
    idle = mirror.idle.by("unit", unit)
    called = _kind_of(kind, name)
    names = {(called, name)}
    names |= {("Pod", each.name) for each in pods}
    names |= {("Workload", each.name) for each in workloads}
    names |= {("GpuWorkload", each.name) for each in idle}
    uids = {each.uid for each in pods} | {each.uid for each in workloads}
    uids |= (
        {each.uid for each in idle}
        | {each.controller for each in pods}
        | {each.owner for each in workloads}
    )
    bare = SeenLineage(
        unit,
        called,
        namespace,
        name,
        bool(pods or workloads or idle),
        frozenset(uids - {""}),
        frozenset(names),
    )
    found = _followed(mirror, bare)
    return found if found.present or found.displaced or found.victims or found.preempted else None


def _followed(mirror: Mirror, bare: SeenLineage) -> SeenLineage:
    """Return the lineage with all records and Disruptions of its lineages."""
    reported = [each for each in mirror.disruptions if each.namespace == bare.namespace]
    victims = list(_victims_in(mirror, bare.namespace))
    lineages = {f"{what}/{uid}" for uid in bare.uids for what in ("owner", "object")}
    lineages |= {each.lineage for each in reported if bare.has(each.disruption.spec.subject)}
    lineages |= {unit.lineage for _, unit in victims if _is_of(bare, unit)}
    lineages.discard("")
    return SeenLineage(
        bare.unit,
        bare.kind,
        bare.namespace,
        bare.name,
        bare.present,
        bare.uids,
        bare.names,
        tuple(
            each
            for each in reported
            if each.lineage in lineages or bare.has(each.disruption.spec.subject)
        ),
        tuple(
            (record, unit)
            for record, unit in victims
            if unit.lineage in lineages or _is_of(bare, unit)
        ),
        tuple(_preempted(mirror, bare)),
    )


def _victims_in(mirror: Mirror, namespace: str) -> Iterator[tuple[PreemptionRecord, VictimUnit]]:
    for record in mirror.preemptions:
        if any(where == namespace for _, where in record.roots):
            for unit in record.units:
                if unit.namespace == namespace:
                    yield record, unit


def _is_of(lineage: SeenLineage, unit: VictimUnit) -> bool:
    return unit.unit == lineage.unit or lineage.has(unit.root) or lineage.has(unit.subject)


def _preempted(mirror: Mirror, lineage: SeenLineage) -> Iterator[PreemptionRecord]:
    for record in mirror.preemptions:
        preemptor = record.record.spec.preemptor
        if preemptor is not None and lineage.has(preemptor):
            yield record


def _kind_of(kind: str, name: str) -> str:
    try:
        return asked_of(f"{kind}/{name}").kind
    except UsageError:
        return kind
