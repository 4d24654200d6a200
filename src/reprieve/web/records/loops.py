"""Who displaces whom in turn, as the operator's guard finds it in the records.

The guard reads its history; here it is folded from the records, by its default settings: an
operator with other settings finds other loops. Source: specification of disruptions, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import ObjectRef, Preemption
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Displacement
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.records.displacements import displacements_of

__all__ = ["HeldLoop", "loops_of"]


@dataclass(frozen=True, slots=True)
class HeldLoop:
    """A loop of lineages; each is shown by its object that was part of it last.

    `held`: who does not displace whom before `until`.
    """

    members: tuple[ObjectRef, ...]
    lineages: tuple[str, ...]
    held: tuple[tuple[ObjectRef, ObjectRef], ...]
    displacements: int
    lost_device_seconds: int
    began: Nanos
    until: Nanos


def loops_of(records: Iterable[Preemption], at: Nanos) -> list[HeldLoop]:
    """Return the loops in which a lineage is held at this instant; dry runs displaced nothing."""
    governor = Governor()
    called: dict[str, ObjectRef] = {}
    found: list[Displacement] = []
    for record in sorted(records, key=lambda each: (each.spec.decided_at, each.metadata.name)):
        preemptor = record.spec.preemptor
        if preemptor is None or record.spec.dry_run:
            continue
        participants = _participants(record)
        rows = list(displacements_of(record, lambda ref, known=participants: known.get(ref.uid)))  # type: ignore[misc]
        found += rows
        subjects = {each.subject.uid: each.subject for each in record.spec.victims}
        for row in rows:
            called[row.victim.lineage] = subjects[row.uid]
            if row.preemptor is not None:
                called[row.preemptor.lineage] = preemptor
    # At once: each fold begins with all that is known.
    governor.fold(found)
    return [
        HeldLoop(
            tuple(called[each] for each in loop.members),
            tuple(loop.members),
            tuple((called[one], called[other]) for one, other in loop.held),
            loop.displacements,
            loop.lost_device_seconds,
            loop.began,
            loop.until,
        )
        for loop in governor.loops(at)
        if all(each in called for each in loop.members)
    ]


def _participants(record: Preemption) -> dict[str, Participant]:
    """Return the lineages that a record names, by the uids of their objects."""
    spec = record.spec
    found = {
        each.subject.uid: Participant(Lineage(each.lineage), each.subject.namespace)
        for each in spec.victims
        if each.lineage
    }
    if spec.preemptor is not None and spec.preemptor_lineage:
        participant = Participant(Lineage(spec.preemptor_lineage), spec.preemptor.namespace)
        found[spec.preemptor.uid] = participant
    return found
