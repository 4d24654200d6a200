"""What was reported of work: idle GPUs, why it waits, plans and their victims."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from kubeworld.units.instants import Nanos, instant_or_none
from kubeworld.units.untrusted import cut
from reprieve.api.core import ObjectMeta
from reprieve.api.disruption import Disruption
from reprieve.api.kaiwo import GpuWorkload
from reprieve.api.preemption_notice import PreemptionNotice
from reprieve.api.reprieve import ObjectRef, Preemption
from reprieve.kube.objects import version_number
from reprieve.records.displacements import kept
from reprieve.records.units import lost_of_unit, units_of
from reprieve.web.mirror.pods import NEVER
from reprieve.web.mirror.units import unit_id
from reprieve.web.records.victims import VictimUnit, victim_units

__all__ = [
    "DisruptionRecord",
    "IdleRecord",
    "NoticeRecord",
    "PreemptionRecord",
    "WaitingEvent",
    "WaitingRecord",
    "disruption_record",
    "idle_record",
    "notice_record",
    "preemption_record",
    "unit_of",
    "waiting_record",
]

_IDLE: Final = "Idle"
_LONGEST_NOTE: Final = 1_000


@dataclass(frozen=True, slots=True)
class IdleRecord:
    """A GpuWorkload; `pods` are the names of its pods, `since` is when it became idle."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    unit: str
    phase: str
    idle: bool
    since: Nanos | None
    utilization: float | None
    polled: Nanos | None
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """An event about work that waits; `unit`: whose object the event is about."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    unit: str
    reason: str
    message: str
    at: Nanos


@dataclass(frozen=True, slots=True)
class PreemptionRecord:
    """The head of a record of a plan.

    Attributes:
        preemptor: the unit that preempts, empty where the plan names none.
        victims: in all, parts included.
        roots: of the victims that stand in the head: unit, namespace.
        amounts: what they free, by resource; of a plan in parts the proof's.
        rules: number of victims in the head, by rule.
        lost_device_seconds: of the victims in the head.
        units: of the victims in the head, what is preempted as one.
        record: all of it but what was decided on.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    plane: str
    phase: str
    plan_id: str
    preemptor: str
    victims: int
    roots: tuple[tuple[str, str], ...]
    amounts: tuple[tuple[str, int], ...]
    rules: tuple[tuple[str, int], ...]
    lost_device_seconds: int
    reprieved: int
    decided: Nanos
    finished: Nanos | None
    dry_run: bool
    units: tuple[VictimUnit, ...]
    record: Preemption


@dataclass(frozen=True, slots=True)
class DisruptionRecord:
    """What became of one displaced unit."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    unit: str
    lineage: str
    plan_id: str
    plane: str
    ended: Nanos
    lost_device_seconds: int
    disruption: Disruption


@dataclass(frozen=True, slots=True)
class NoticeRecord:
    """Work that got notice of its eviction, and what it answered."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    unit: str
    plan_id: str
    plane: str
    rule: str
    preemptor: str
    state: str
    due: Nanos
    speakers: int
    answered: int
    message: str


class _Involved(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class WaitingEvent(msgspec.Struct, frozen=True, rename="camel"):
    """An event, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: _Involved = _Involved()
    action: str | None = None
    message: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None


def idle_record(workload: GpuWorkload) -> IdleRecord:
    """Return what is kept of a GpuWorkload."""
    metadata, status, ref = workload.metadata, workload.status, workload.spec.workload_ref
    return IdleRecord(
        metadata.uid,
        sys.intern(metadata.namespace),
        metadata.name,
        version_number(metadata.resource_version),
        unit_id(ref.kind, metadata.namespace, ref.name),
        sys.intern(status.phase),
        status.phase == _IDLE,
        instant_or_none(status.idle_since),
        status.aggregated_utilization,
        instant_or_none(status.last_metrics_update),
        tuple(each.pod_name for each in status.tracked_pods or ()),
    )


def waiting_record(event: WaitingEvent) -> WaitingRecord:
    """Return what is kept of an event about work that waits."""
    about = event.involved_object
    note = cut(event.message or "", _LONGEST_NOTE)
    reason = event.action or ""
    at = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    return WaitingRecord(
        event.metadata.uid,
        sys.intern(event.metadata.namespace),
        event.metadata.name,
        version_number(event.metadata.resource_version),
        unit_id(about.kind, about.namespace, about.name),
        sys.intern(reason),
        note.removeprefix(f"{reason}: ") if reason else note,
        instant_or_none(at) or NEVER,
    )


def preemption_record(preemption: Preemption) -> PreemptionRecord:
    """Return what is kept of a Preemption."""
    metadata, spec, status = preemption.metadata, preemption.spec, preemption.status
    freed: Counter[str] = Counter()
    for each in spec.victims:
        freed.update(each.amounts)
    return PreemptionRecord(
        metadata.uid,
        sys.intern(metadata.namespace),
        metadata.name,
        version_number(metadata.resource_version),
        sys.intern(spec.plane),
        status.phase.value,
        spec.plan_id,
        "" if spec.preemptor is None else unit_of(spec.preemptor),
        spec.victim_count or len(spec.victims),
        tuple(dict.fromkeys((unit_of(each.root), each.root.namespace) for each in spec.victims)),
        tuple((freed if spec.victims else spec.proof.freed).items()),
        tuple(Counter(each.rule for each in spec.victims).items()),
        sum(lost_of_unit(each, status.lost_after_save) for each in units_of(spec.victims).values()),
        sum(spec.reprieved.values()),
        instant_or_none(spec.decided_at) or NEVER,
        instant_or_none(status.finished_at),
        spec.dry_run,
        tuple(victim_units(preemption)),
        replace(preemption, spec=replace(spec, input=kept(spec.input))),
    )


def disruption_record(disruption: Disruption) -> DisruptionRecord:
    """Return what is kept of a Disruption: all of it, as there is little."""
    metadata, spec = disruption.metadata, disruption.spec
    return DisruptionRecord(
        metadata.uid,
        sys.intern(metadata.namespace),
        metadata.name,
        version_number(metadata.resource_version),
        unit_of(spec.subject),
        spec.lineage,
        spec.plan_id,
        sys.intern(spec.plane),
        instant_or_none(spec.ended_at) or NEVER,
        spec.lost_device_seconds,
        disruption,
    )


def notice_record(notice: PreemptionNotice) -> NoticeRecord:
    """Return what is kept of a PreemptionNotice."""
    metadata, spec, status = notice.metadata, notice.spec, notice.status
    return NoticeRecord(
        metadata.uid,
        sys.intern(metadata.namespace),
        metadata.name,
        version_number(metadata.resource_version),
        unit_of(spec.subject),
        spec.plan_id,
        sys.intern(spec.plane),
        spec.rule,
        spec.preemptor,
        sys.intern(status.state),
        instant_or_none(status.due) or instant_or_none(spec.deadline) or NEVER,
        status.speakers,
        status.answered,
        cut(status.message, _LONGEST_NOTE),
    )


def unit_of(ref: ObjectRef) -> str:
    """Return the unit that a record names."""
    return unit_id(ref.kind, ref.namespace, ref.name)
