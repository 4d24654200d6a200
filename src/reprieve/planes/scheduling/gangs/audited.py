"""What is noted of a gang's cycle in its audit records, in Koordinator's words, as effects.

Source: specification of gang jobs, section 9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.scheduling.gangs.job import JobReason
from reprieve.engine.scheduling.outcome import Attempt, GangCycle
from reprieve.planes.scheduling.gangs.audit import Happened
from reprieve.units.counts import counted
from reprieve.units.ids import Uid
from reprieve.wording.attempts import GangTexts

__all__ = ["Audited", "Diagnose", "Note", "NoteVictims", "audited"]


@dataclass(frozen=True, slots=True)
class Note:
    """Keep a record of what has happened to the group."""

    key: str
    what: Happened
    message: str = ""


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Keep the diagnosis of the group's last attempt at preemption."""

    key: str
    diagnosis: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NoteVictims:
    """Remember whose end is a record of its own."""

    key: str
    uids: Collection[Uid]


Audited: TypeAlias = Note | Diagnose | NoteVictims


def audited(
    attempt: Attempt,
    cycle: GangCycle,
    rows: Mapping[Uid, PodRow],
    snapshot: Snapshot,
    placement: str,
    texts: GangTexts,
) -> Iterator[Audited]:
    """Yield what is noted of a cycle. `rows`: pods of the unit that are still there."""
    key, job = cycle.key, cycle.job
    if any(member.bind for member in attempt.members):
        yield Note(key, Happened.SATISFIED)
        yield Note(key, Happened.SCHEDULED)
        return
    if attempt.unit.group:
        yield Note(key, Happened.ALL_ATTEMPTED)
    if job is None:
        yield Note(key, Happened.NOT_SCHEDULED)
        return
    message = texts.job
    yield Diagnose(key, _diagnosis(cycle, texts, rows, snapshot, placement))
    if job.reason is JobReason.SUCCESS:
        yield Note(key, Happened.DELETING, counted(len(job.slots), "victim"))
        yield Note(key, Happened.NOMINATED, message)
        yield NoteVictims(key, {snapshot.pod_uids[slot] for slot in job.slots})
    else:
        yield Note(key, Happened.FAILED, message)


def _diagnosis(
    cycle: GangCycle,
    texts: GangTexts,
    rows: Mapping[Uid, PodRow],
    snapshot: Snapshot,
    placement: str,
) -> dict[str, Any]:
    job = cycle.job
    trigger = rows.get(cycle.trigger) if cycle.trigger is not None else None
    assert job is not None, "there is a job to diagnose"
    names = {uid: f"{row.namespace}/{row.name}" for uid, row in rows.items()}
    return {
        "TriggerPodKey": f"{trigger.namespace}/{trigger.name}" if trigger else "",
        "preemptorKey": cycle.key,
        "reason": texts.reason,
        "message": texts.job,
        "terminatingPodOnNominatedNode": dict(job.terminating),
        "podToNominatedNode": {names.get(uid, str(uid)): node for uid, node in job.nominated},
        "unschedulablePodsNumber": len(job.unplaced),
        "victims": [
            {
                "nodeName": node,
                "possibleVictims": [_victim(snapshot, slot) for slot in slots],
            }
            for node, slots in job.victims
        ],
        "SchedulingMode": placement,
    }


def _victim(snapshot: Snapshot, slot: int) -> dict[str, str]:
    namespace, _, name = snapshot.pod_keys[slot].partition("/")
    return {"namespace": namespace, "name": name, "uid": str(snapshot.pod_uids[slot])}
