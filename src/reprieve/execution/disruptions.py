"""Writes Disruptions: one object for each displaced unit, in the namespace of the work.

1. When all victims of a plan are out of the way, and before its record is closed, what became of
   its units is written, each by one call. The name follows from the plan and the unit, so that
   whoever writes it a second time meets the first.
2. No eviction and no closing waits for that. What cannot be written is owed: the record says so
   (`untold`), it is tried again with a growing pause, and by the next process too. A metric counts
   each failure.
3. Nobody is told where the namespace is gone, or going.
4. Work of other namespaces has a number instead of a name. The key to these numbers is a Secret
   of the operator's namespace, made when it is first needed.
5. Work that is displaced again and again is told so: in the status, in an event, and a metric
   counts such lines of work. Nothing protects them.
6. When the work runs again, its Disruption says since when (`returns`).
7. They stay for 168 hours, and 200 in a namespace; the oldest go first.

What was displaced when is folded from the records at each start (`recover`), for all planes alike.
Source: specification of disruptions, section 6.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from reprieve.api.disruption import (
    KEY_FIELD,
    KEY_SECRET,
    Disruption,
    DisruptionSpec,
    DisruptionStatus,
)
from reprieve.api.reprieve import Metadata, Preemption, VictimStatus
from reprieve.engine.disruptions.counts import DisplacementCounts
from reprieve.engine.disruptions.ledger import KEPT, Displacement
from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.execution.crowding import MOST_IN_NAMESPACE, Crowding
from reprieve.execution.displaced_units import DisplacedUnit, displaced_units, displacement_of
from reprieve.execution.fence import Deposed, Fence
from reprieve.execution.intents import IntentLog
from reprieve.execution.returns import Returns, Unit
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound
from reprieve.kube.events import EventRecorder
from reprieve.kube.resource import DISRUPTIONS, NAMESPACES, PREEMPTIONS, SECRETS
from reprieve.kube.writes import Priority
from reprieve.records.victim_states import victim_states
from reprieve.telemetry.metrics import Metrics, Remembered
from reprieve.units.clock import Clock
from reprieve.units.durations import HOUR, MINUTE, SECOND, format_duration
from reprieve.units.instants import Nanos, format_instant, parse_instant
from reprieve.wording.displacements import (
    NOBODY,
    REPEATED,
    known_as,
    repeated_text,
    rule_text,
    spared_by,
)

__all__ = ["MOST_IN_NAMESPACE", "TIME_TO_LIVE", "Disruptions"]

log: Final = logging.getLogger("reprieve.execution")

_CONTROLLER: Final = "reprieve"
TIME_TO_LIVE: Final = 168 * HOUR
_KEY_BYTES: Final = 32
_WITH_THE_PLAN: Final = 64  # units that are written before the record of their plan is closed
_AT_ONCE: Final = 8
_FIRST_PAUSE: Final = SECOND
_LONGEST_PAUSE: Final = 5 * MINUTE
_MOST_OWED: Final = 1_000  # plans; what is dropped here the next process finds in the records
_SWEEP_EVERY: Final = HOUR
_PAGE: Final = 500


class _Head(msgspec.Struct, frozen=True):
    """A Disruption without its content."""

    metadata: Metadata


class _Space(msgspec.Struct, frozen=True, rename="camel"):
    """When a namespace began to go, if it did."""

    deletion_timestamp: str = ""


class _Namespace(msgspec.Struct, frozen=True):
    """As much of a namespace as says whether it is going."""

    metadata: _Space


@dataclass(slots=True)
class _Owed:
    """What is still to be written of a plan."""

    intent: Preemption
    units: list[DisplacedUnit]


class Disruptions:
    """Tells tenants of all planes what became of their work. `run` works beside the planes."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        fence: Fence,
        clock: Clock,
        metrics: Metrics,
        events: EventRecorder | None = None,
        policy: GovernorPolicy | None = None,
    ) -> None:
        """`policy`: how often within which time is told as repeated displacement."""
        self._client = client
        self._writer = client.at(Priority.STATUS, fence.check, timeout=fence.request_timeout)
        self._namespace = namespace
        self._fence = fence
        self._clock = clock
        self._metrics = metrics
        self._events = events
        self._displaced = DisplacementCounts(policy or GovernorPolicy())
        self.returns = Returns(client, fence, clock)
        self._owed: dict[str, _Owed] = {}
        self._owing = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._secret: bytes | None = None
        self._crowding = Crowding()
        metrics.remembers(Remembered.TIMES_DISPLACED, lambda: len(self._displaced))
        metrics.remembers(Remembered.LINES_AWAITED, lambda: self.returns.remembers[0])
        metrics.remembers(Remembered.UNITS_AWAITED, lambda: self.returns.remembers[1])
        metrics.remembers(Remembered.NAMESPACES, lambda: len(self._crowding))

    # What happened.

    async def tell(
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
            log.exception("preemption %s is not told to its victims", intent.metadata.name)
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
        """Count what another actor has displaced; nobody is told of that by itself."""
        self._displaced.record(row)

    async def recover(self, intents: IntentLog, records: Iterable[Preemption]) -> None:
        """Take note of what former processes displaced, and of what they have not told.

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
            and (each.status.untold or each.spec.decided_at >= since)
        ]
        rows = []
        for record in await intents.all_whole(closed):
            units = displaced_units(record, victim_states(record), {})
            rows += [displacement_of(record, unit) for unit in units]
            if record.status.untold:
                self._owe(record, units)
        self._displaced.fold(rows)

    async def known_as(self, namespace: str, lineage: str) -> str:
        """Return what people of a namespace may know of work of another one.

        Raises:
            Deposed: the fence is closed.
            ApiError: the key to the numbers could not be read now.
        """
        return known_as(await self._numbers_key(), namespace, lineage)

    async def run(self) -> None:
        """Write what is owed and remove what is old, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pay())
            group.create_task(self._tidy())
            group.create_task(self.returns.run())

    # Writing.

    def _owe(self, intent: Preemption, units: Sequence[DisplacedUnit]) -> None:
        self._owed[intent.metadata.name] = _Owed(intent, list(units))
        while len(self._owed) > _MOST_OWED:
            dropped = next(iter(self._owed))
            del self._owed[dropped]
            log.error("Disruptions of preemption %s wait for the next process", dropped)
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
                await self._told(name)
            except Deposed:
                return False
            except ApiError as failure:
                log.warning("preemption %s: %s", name, failure)
                return False
            except Exception:
                log.exception("preemption %s is not told to its victims", name)
            self._owed.pop(name, None)
        return True

    async def _told(self, name: str) -> None:
        """Take back that a record has something untold."""
        patch = {"status": {"untold": None}}
        try:
            await self._writer.patch(
                PREEMPTIONS, self._namespace, name, patch, _Head, subresource="status"
            )
        except NotFound:
            return  # it went in the meantime

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
                    log.warning("what became of %s is not told yet: %s", unit.subject.name, failure)

        await asyncio.gather(*map(write, units))
        return left

    async def _write(self, intent: Preemption, unit: DisplacedUnit) -> None:
        space = unit.subject.namespace
        told = await self._of(intent, unit)
        noticed = displacement_of(intent, unit).at
        awaited = Unit((space, unit.name), unit.lineage, noticed, unit.objects)
        back = self.returns.displaced(awaited, unit.deleted)
        if back is not None:
            status = msgspec.structs.replace(told.status, back_at=format_instant(back))
            told = msgspec.structs.replace(told, status=status)
        try:
            await self._writer.create(DISRUPTIONS, told, _Head)
        except AlreadyExists:
            self.returns.told(awaited.name, None)
            return
        except (NotFound, Forbidden):
            if await self._goes(space):
                self.returns.forget(awaited)
                log.info("nobody is left in %s to be told of %s", space, unit.subject.name)
                return
            raise
        self.returns.told(awaited.name, back)
        self._metrics.disruptions.labels(intent.spec.plane, unit.rule).inc()
        self._metrics.lineage_displacements.observe(told.spec.times)
        if told.status.repeated:
            self._tell_repeated(unit, told.status.message)
        self._crowding.written(space)

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
                preemptor=await self._preemptor(intent, unit.subject.namespace),
                noticed_at=spec.decided_at,
                evicting_at=status.started_at or spec.decided_at,
                ended_at=unit.ended or status.finished_at or spec.decided_at,
                objects=unit.objects,
                lost_device_seconds=unit.lost_device_seconds,
                times=times,
                window=format_duration(policy.repeated_window),
                spared_by=spared_by(spec.plane, unit.rule),
            ),
            DisruptionStatus(
                repeated, repeated_text(times, policy.repeated_window, policy.enforcement)
            )
            if repeated
            else DisruptionStatus(),
        )

    def _tell_repeated(self, unit: DisplacedUnit, text: str) -> None:
        """Say on the work that it is displaced again and again."""
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

    # Whom it was for.

    async def _preemptor(self, intent: Preemption, namespace: str) -> str:
        preemptor = intent.spec.preemptor
        if preemptor is None:
            return NOBODY
        if preemptor.namespace == namespace:
            return f"{preemptor.kind}/{preemptor.name}"
        lineage = intent.spec.preemptor_lineage or preemptor.uid
        return await self.known_as(namespace, lineage)

    async def _numbers_key(self) -> bytes:
        """Return the key to the numbers; empty, so that there are none, where it is out of reach.

        Raises:
            ApiError: to be tried again.
        """
        if self._secret is None:
            try:
                self._secret = await self._stored_key()
            except (Forbidden, binascii.Error, KeyError) as failure:
                self._secret = b""
                log.warning(
                    "Disruptions do not number work of other namespaces: Secret %s/%s: %s",
                    self._namespace,
                    KEY_SECRET,
                    failure,
                )
        return self._secret

    async def _stored_key(self) -> bytes:
        fresh = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
        made: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": KEY_SECRET, "namespace": self._namespace},
            "data": {KEY_FIELD: fresh},
        }
        found: dict[str, Any]
        try:
            found = await self._client.get(SECRETS, self._namespace, KEY_SECRET, dict)
        except NotFound:
            try:
                found = await self._writer.create(SECRETS, made, dict)
            except AlreadyExists:
                found = await self._client.get(SECRETS, self._namespace, KEY_SECRET, dict)
        return base64.b64decode(found["data"][KEY_FIELD], validate=True)

    # How long they stay.

    async def _tidy(self) -> None:
        next_sweep = 0
        while True:
            await self._clock.sleep(MINUTE)
            if not self._fence.open:
                continue
            told = len(self._displaced.repeated(self._clock.wall()))
            self._metrics.repeatedly_displaced.set(told)
            try:
                if self._clock.monotonic() >= next_sweep:
                    await self._sweep()
                    next_sweep = self._clock.monotonic() + _SWEEP_EVERY
                for space in self._crowding.crowded:
                    await self._trim(space)
            except Deposed:
                continue
            except ApiError as failure:
                log.warning("old Disruptions stay for now: %s", failure)
            except Exception:
                log.exception("old Disruptions stay for now")

    async def _sweep(self) -> None:
        """Remove those of all namespaces that are too old, and count the others."""
        counts: dict[str, int] = {}
        old: list[Metadata] = []
        async for page in self._client.list_pages(
            DISRUPTIONS, _Head, page_size=_PAGE, metadata_only=True
        ):
            for each in page.items:
                if self._is_old(each.metadata):
                    old.append(each.metadata)
                else:
                    space = each.metadata.namespace
                    counts[space] = counts.get(space, 0) + 1
        await self._remove(old)
        self._crowding.counted(counts)

    async def _trim(self, namespace: str) -> None:
        """Remove the oldest of a namespace that has too many."""
        page = await self._client.list(DISRUPTIONS, _Head, namespace=namespace, metadata_only=True)
        ordered = sorted(
            (each.metadata for each in page.items),
            key=lambda metadata: (metadata.creation_timestamp, metadata.name),
        )
        surplus = max(0, len(ordered) - MOST_IN_NAMESPACE)
        await self._remove(ordered[:surplus])
        self._crowding.left(namespace, len(ordered) - surplus)

    async def _remove(self, old: Sequence[Metadata]) -> None:
        async def remove(metadata: Metadata) -> None:
            async with self._slots:
                try:
                    await self._writer.delete(
                        DISRUPTIONS, metadata.namespace, metadata.name, uid=metadata.uid
                    )
                except NotFound:
                    return

        await asyncio.gather(*map(remove, old))

    def _is_old(self, metadata: Metadata) -> bool:
        created = metadata.creation_timestamp
        return bool(created) and self._clock.wall() - parse_instant(created) >= TIME_TO_LIVE
