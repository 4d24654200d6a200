"""Writes Disruptions: one object for each displaced unit, in the namespace of the work.

1. When all victims of a plan are out of the way and its preemptor is served, or ten seconds later,
   and before its record is closed, what became of its units is written, each by one call. The name
   follows from the plan and the unit, so a second write finds the first object.
2. No eviction and no closing waits for that. What cannot be written is owed: the record states it
   (`disruptions_pending`), it is tried again with a growing pause, and by the next process too. A
   metric counts each failure.
3. Nothing is written if the namespace is deleted or being deleted.
4. Work of other namespaces has a number instead of a name (`foreign_names`).
5. Repeated displacement of a lineage is reported: in the status, in an event, and a metric counts
   such lineages. Nothing protects them.
6. When the work runs again, its Disruption states since when (`returns`).
7. They stay for 168 hours, and 200 in a namespace; the oldest are deleted first
   (`old_disruptions`).

What was displaced when is folded from the records at each start (`recover`), for all planes alike.
Source: specification of disruptions, section 6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND, format_duration
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.disruption import (
    Disruption,
    DisruptionDemand,
    DisruptionSpec,
    DisruptionStatus,
)
from reprieve.api.reprieve import Metadata, Preemption, VictimStatus
from reprieve.engine.disruptions.counts import DisplacementCounts
from reprieve.engine.disruptions.ledger import KEPT, Displacement
from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.execution.accounts.displaced_units import (
    DisplacedUnit,
    displaced_units,
    displacement_of,
)
from reprieve.execution.accounts.foreign_names import ForeignNames
from reprieve.execution.accounts.old_disruptions import OldDisruptions
from reprieve.execution.accounts.returns import Returns, Unit
from reprieve.execution.fence import Deposed, Fence
from reprieve.execution.records.intents import IntentLog
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound
from reprieve.kube.recording.events import EventRecorder
from reprieve.kube.resource import DISRUPTIONS, NAMESPACES, PREEMPTIONS
from reprieve.kube.writes import Priority
from reprieve.records.victim_states import victim_states
from reprieve.telemetry.metrics import Metrics, Remembered
from reprieve.wording.displacements import (
    REPEATED,
    repeated_text,
    rule_text,
    spared_by,
    withheld_text,
)

__all__ = ["Disruptions"]

log: Final = logging.getLogger("reprieve.execution")

_CONTROLLER: Final = "reprieve"
_WITH_THE_PLAN: Final = 64  # units that are written before the record of their plan is closed
_AT_ONCE: Final = 8
_FIRST_PAUSE: Final = SECOND
_LONGEST_PAUSE: Final = 5 * MINUTE
_MOST_OWED: Final = 1_000  # plans; what is dropped here the next process finds in the records


class _Head(msgspec.Struct, frozen=True):
    """A Disruption without its content."""

    metadata: Metadata


class _Space(msgspec.Struct, frozen=True, rename="camel"):
    """When the deletion of a namespace began, if it did."""

    deletion_timestamp: str = ""


class _Namespace(msgspec.Struct, frozen=True):
    """As much of a namespace as states whether it is being deleted."""

    metadata: _Space


@dataclass(slots=True)
class _Owed:
    """What is still to be written of a plan."""

    intent: Preemption
    units: list[DisplacedUnit]


class Disruptions:
    """Notifies tenants of all planes what became of their work. `run` works beside the planes."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        fence: Fence,
        clock: Clock,
        metrics: Metrics,
        events: EventRecorder | None = None,
        policy: GovernorPolicy | None = None,
        notify: Callable[[Disruption], None] | None = None,
    ) -> None:
        """Record which tenants to notify.

        `policy`: how many displacements within which time are reported as repeated displacement.
        `notify`: is given each Disruption once, when this process has written it; does not wait.
        """
        self._client = client
        self._writer = client.at(Priority.STATUS, fence.check, timeout=fence.request_timeout)
        self._namespace = namespace
        self._fence = fence
        self._clock = clock
        self._metrics = metrics
        self._events = events
        self._notify = notify
        self._displaced = DisplacementCounts(policy or GovernorPolicy())
        self.returns = Returns(client, fence, clock)
        self._names = ForeignNames(client, self._writer, namespace, clock)
        self._owed: dict[str, _Owed] = {}
        self._owing = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._old = OldDisruptions(client, self._writer, fence, clock, self._slots)
        metrics.remembers(Remembered.TIMES_DISPLACED, lambda: len(self._displaced))
        metrics.remembers(Remembered.LINES_AWAITED, lambda: self.returns.remembers[0])
        metrics.remembers(Remembered.UNITS_AWAITED, lambda: self.returns.remembers[1])
        metrics.remembers(Remembered.NAMESPACES, lambda: self._old.namespaces)

    # What happened.

    async def report(
        self, intent: Preemption, states: Mapping[str, VictimStatus], ended: Mapping[str, str]
    ) -> None:
        """Write what became of a plan's units; what cannot be written now is owed (`owes`).

        `states` and `ended` as in `displaced_units`.

        Raises:
            Deposed: the fence is closed.
        """
        try:
            units = displaced_units(intent, states, ended)
            for unit in units:
                self._displaced.record(displacement_of(intent, unit))
        except Exception:
            log.exception("the Disruptions of preemption %s are not written", intent.metadata.name)
            return
        if len(units) > _WITH_THE_PLAN:
            self._owe(intent, units)
        elif units:
            left = await self._write_all(intent, units)
            if left:
                self._owe(intent, left)

    def owes(self, name: str) -> bool:
        """Whether Disruptions of a plan are still to be written, by its record's name."""
        return name in self._owed

    def note(self, row: Displacement) -> None:
        """Count what another actor has displaced; no tenant is notified of that by itself."""
        self._displaced.record(row)

    async def recover(self, intents: IntentLog, records: Iterable[Preemption]) -> None:
        """Record what former processes displaced, and which of it they have not reported.

        Raises:
            ApiError: a part of a record could not be read, to be tried again.
        """
        await self.returns.recover()
        since = format_instant(Nanos(self._clock.wall() - KEPT))
        closed = [
            each
            for each in records
            if not each.spec.dry_run
            and not each.status.phase.open
            and (each.status.owes_disruptions or each.spec.decided_at >= since)
        ]
        rows = []
        for record in await intents.all_whole(closed):
            units = displaced_units(record, victim_states(record), {})
            rows += [displacement_of(record, unit) for unit in units]
            if record.status.owes_disruptions:
                self._owe(record, units)
        self._displaced.fold(rows)

    async def known_as(self, namespace: str, lineage: str) -> str:
        """Return what people of a namespace may know of work of another one.

        Raises:
            Deposed: the fence is closed.
            ApiError: the key to the numbers could not be read now.
        """
        return await self._names.known_as(namespace, lineage)

    async def preemptor_of(self, intent: Preemption, namespace: str) -> str:
        """Return for whom a plan is, as people of a namespace may know it.

        Raises:
            Deposed: the fence is closed.
            ApiError: the key to the numbers could not be read now.
        """
        return await self._names.preemptor(intent, namespace)

    async def run(self) -> None:
        """Write what is owed and remove what is old, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pay())
            group.create_task(self._count_repeated())
            group.create_task(self._old.run())
            group.create_task(self.returns.run())

    # Writing.

    def _owe(self, intent: Preemption, units: Sequence[DisplacedUnit]) -> None:
        self._owed[intent.metadata.name] = _Owed(intent, list(units))
        while len(self._owed) > _MOST_OWED:
            dropped = next(iter(self._owed))
            del self._owed[dropped]
            log.error(
                "the Disruptions of preemption %s are not written by this process: the next "
                "one writes them",
                dropped,
            )
        self._owing.set()

    async def _pay(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._owing.wait()
            failed = not self._fence.open or not await self._pay_once()
            if not self._owed:
                self._owing.clear()
            if failed:
                await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE) if failed else _FIRST_PAUSE

    async def _pay_once(self) -> bool:
        """Try once to write all that is owed; return whether that succeeded."""
        for name, owed in list(self._owed.items()):
            try:
                owed.units = await self._write_all(owed.intent, owed.units)
                if owed.units:
                    return False
                await self._paid(name)
            except Deposed:
                return False
            except ApiError as failure:
                log.warning("preemption %s: %s", name, failure)
                return False
            except Exception:
                log.exception("the Disruptions of preemption %s are not written", name)
            self._owed.pop(name, None)
        return True

    async def _paid(self, name: str) -> None:
        """Remove a record from those that have something to report."""
        patch = {"status": {"disruptionsPending": None, "untold": None}}
        try:
            await self._writer.patch(
                PREEMPTIONS, self._namespace, name, patch, _Head, subresource="status"
            )
        except NotFound:
            return  # deleted in the meantime

    async def _write_all(
        self, intent: Preemption, units: Sequence[DisplacedUnit]
    ) -> list[DisplacedUnit]:
        """Write these; return those that could not be. After a failure no other call is begun."""
        left: list[DisplacedUnit] = []

        async def write(unit: DisplacedUnit) -> None:
            async with self._slots:
                if left:
                    left.append(unit)
                    return
                try:
                    await self._write(intent, unit)
                except ApiError as failure:
                    left.append(unit)
                    self._metrics.disruption_failures.labels(type(failure).__name__).inc()
                    log.warning(
                        "the Disruption of %s is not written, it is retried: %s",
                        unit.subject.name,
                        failure,
                    )

        await asyncio.gather(*map(write, units))
        return left

    async def _write(self, intent: Preemption, unit: DisplacedUnit) -> None:
        space = unit.subject.namespace
        reported = await self._of(intent, unit)
        noticed = displacement_of(intent, unit).at
        awaited = Unit((space, unit.name), unit.lineage, noticed, unit.objects)
        back = self.returns.displaced(awaited, unit.deleted)
        if back is not None:
            status = msgspec.structs.replace(reported.status, back_at=format_instant(back))
            reported = msgspec.structs.replace(reported, status=status)
        try:
            await self._writer.create(DISRUPTIONS, reported, _Head)
        except AlreadyExists:
            self.returns.reported(awaited.name, None)
            return
        except (NotFound, Forbidden):
            if await self._goes(space):
                self.returns.forget(awaited)
                log.info(
                    "namespace %s does not exist: no Disruption is written for %s",
                    space,
                    unit.subject.name,
                )
                return
            raise
        self.returns.reported(awaited.name, back)
        self._metrics.disruptions.labels(intent.spec.plane, unit.rule).inc()
        self._metrics.lineage_displacements.observe(reported.spec.times)
        if reported.status.repeated:
            self._report_repeated(unit, reported.status.message)
        self._old.written(space)
        if self._notify is not None:
            self._notify(reported)

    async def _of(self, intent: Preemption, unit: DisplacedUnit) -> Disruption:
        spec, status = intent.spec, intent.status
        row, policy = displacement_of(intent, unit), self._displaced.policy
        times = max(1, self._displaced.displaced(row.victim, row.at))
        repeated = times >= policy.repeated
        return Disruption(
            Metadata(unit.name, unit.subject.namespace),
            DisruptionSpec(
                subject=unit.subject,
                lineage=unit.lineage,
                plan_id=spec.plan_id,
                plane=spec.plane,
                rule=rule_text(spec.plane, unit.rule),
                preemptor=await self._names.preemptor(intent, unit.subject.namespace),
                noticed_at=spec.decided_at,
                evicting_at=status.started_at or spec.decided_at,
                ended_at=unit.ended or status.finished_at or spec.decided_at,
                objects=unit.objects,
                lost_device_seconds=unit.lost_device_seconds,
                times=times,
                window=format_duration(policy.repeated_window),
                spared_by=spared_by(spec.plane, unit.rule),
                notice_withheld=withheld_text(unit.notice_withheld),
                demand=await self._demand_of(intent, unit),
            ),
            DisruptionStatus(
                repeated, repeated_text(times, policy.repeated_window, policy.enforcement)
            )
            if repeated
            else DisruptionStatus(),
        )

    async def _demand_of(self, intent: Preemption, unit: DisplacedUnit) -> DisruptionDemand | None:
        """Return what is reported of the demand; None where one plane decides alone."""
        spec = intent.spec
        if not spec.stages:
            return None
        space, former = unit.subject.namespace, spec.debt_of
        if former and former == unit.lineage:
            former = f"{unit.subject.kind}/{unit.subject.name}"
        elif former:
            former = await self.known_as(space, former)
        return DisruptionDemand(
            [plane for plane, _ in groupby(each.plane for each in spec.stages)],
            unit.frees,
            spec.proof.quota,
            spec.proof.placement,
            list(spec.rejected),
            spec.depth,
            former,
        )

    def _report_repeated(self, unit: DisplacedUnit, text: str) -> None:
        """Report on the work that it is displaced again and again."""
        log.warning("%s/%s: %s", unit.subject.namespace, unit.subject.name, text)
        if self._events is None:
            return
        about = unit.subject.reference
        self._events.event(about, "Warning", REPEATED, REPEATED, text, controller=_CONTROLLER)

    async def _goes(self, namespace: str) -> bool:
        try:
            found = await self._client.get(NAMESPACES, "", namespace, _Namespace)
        except NotFound:
            return True
        return bool(found.metadata.deletion_timestamp)

    async def _count_repeated(self) -> None:
        """Show how many lineages are displaced again and again, as of the last minute."""
        while True:
            await self._clock.sleep(MINUTE)
            if self._fence.open:
                reported = len(self._displaced.repeated(self._clock.wall()))
                self._metrics.repeatedly_displaced.set(reported)
