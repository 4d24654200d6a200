"""The PodGroup status controller: phases and counters, written where the door keeps them.

A PodGroup is looked at when it or one of its pods changes; each write brings the next look, so that
a full gang passes through its phases within a few writes. Source: specification of gang jobs,
sections 2 and 11.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.gangs import Door, PodGroup
from reprieve.engine.scheduling.gangs.phases import (
    PhasePod,
    PodGroupStatus,
    is_settled,
    next_status,
    plain_phase,
)
from reprieve.execution.fence import Fence
from reprieve.execution.writes.statuses import StatusChange
from reprieve.intake.cluster.metadata import seconds_of
from reprieve.kube.client import Client
from reprieve.kube.objects import version_number
from reprieve.kube.writes import Priority
from reprieve.planes.common.status_writer import StatusWriter
from reprieve.planes.scheduling.gangs.watches import RESOURCES

__all__ = ["GroupStatuses"]

log: Final = logging.getLogger("reprieve.scheduling")

_AGAIN: Final = SECOND


@dataclass(slots=True)
class _Known:
    """A PodGroup, and the status that was written last or read since."""

    door: Door
    group: PodGroup
    status: PodGroupStatus
    phase: str  # as Koordinator has it, which the other door's status cannot state


class GroupStatuses:
    """Keeps the statuses of all PodGroups. `pods` gives the pods of a gang.

    `fault`: called with each fault of ours by which one was not written.
    """

    def __init__(
        self,
        client: Client,
        fence: Fence,
        clock: Clock,
        pods: Callable[[str], Iterable[PhasePod]],
        *,
        fault: Callable[[], None],
        dry_run: bool,
    ) -> None:
        self._clock = clock
        self._pods = pods
        self._known: dict[str, _Known] = {}
        self._writer: StatusWriter[str, _Known, PodGroup] = StatusWriter(
            client.at(Priority.STATUS, fence.check),
            clock,
            change=self._change,
            wire=PodGroup,
            written=self._wrote,
            failed=lambda id, known: self._ask(id, _AGAIN),
            fault=fault,
            reported=log,
            writes=lambda: not dry_run,
        )

    def observe(self, door: Door, group: PodGroup) -> None:
        """Look at a PodGroup that came or changed."""
        id = f"{group.metadata.namespace}/{group.metadata.name}"
        status = _status(group)
        known = self._known.get(id)
        if known is not None and _is_older(group, known.group):
            return  # an answer to a write of ours is known already
        phase = status.phase
        if known is not None and plain_phase(known.phase) == phase and not door.all_phases:
            phase = known.phase
        self._known[id] = _Known(door, group, status, phase)
        self._ask(id)

    def remove(self, id: str) -> None:
        """Forget a PodGroup."""
        self._known.pop(id, None)
        self._writer.forget(id)

    def reconcile(self, id: str) -> None:
        """Look at the PodGroup soon, if there is one."""
        self._ask(id)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._writer.run()

    def _ask(self, id: str, pause: int = 0) -> None:
        known = self._known.get(id)
        if known is not None:
            self._writer.ask(id, known, pause)

    def _change(self, id: str, known: _Known) -> StatusChange | None:
        group, minimum = known.group, known.group.spec.min_member
        created = group.metadata.creation_timestamp
        before = replace(known.status, phase=known.phase)
        if is_settled(before, minimum, seconds_of(created) or 0):
            return None
        now = self._clock.wall() // SECOND
        after = next_status(before, minimum, self._pods(id), now)
        known.phase = after.phase
        changes = _changes(known, known.status, after)
        if not changes:
            if after.phase != before.phase:
                # Two phases of Koordinator are one here: the next look continues from the second.
                self._ask(id)
            return None
        metadata, door = group.metadata, known.door
        return StatusChange(
            RESOURCES[door.api_version],
            metadata.namespace,
            metadata.name,
            metadata.uid,
            changes,
            subresource=door.status_subresource,
        )

    def _wrote(self, id: str, known: _Known, written: PodGroup) -> None:
        if self._known.get(id) is known:
            known.status = _status(written)
            known.group = written
            self._ask(id)


def _is_older(group: PodGroup, known: PodGroup) -> bool:
    new, old = group.metadata, known.metadata
    versions = version_number(new.resource_version), version_number(old.resource_version)
    return new.uid == old.uid and versions[0] < versions[1]


def _status(group: PodGroup) -> PodGroupStatus:
    given = group.status
    return PodGroupStatus(
        given.phase,
        given.occupied_by,
        given.scheduled,
        given.running,
        given.succeeded,
        given.failed,
        seconds_of(given.schedule_start_time),
    )


def _changes(known: _Known, before: PodGroupStatus, after: PodGroupStatus) -> dict[str, Any]:
    phase = str(after.phase) if known.door.all_phases else plain_phase(after.phase)
    wanted: dict[str, Any] = {
        "phase": (before.phase, phase),
        "occupiedBy": (before.occupied_by, after.occupied_by),
        "running": (before.running, after.running),
        "succeeded": (before.succeeded, after.succeeded),
        "failed": (before.failed, after.failed),
    }
    if known.door.all_phases:
        wanted["scheduled"] = (before.scheduled, after.scheduled)
    body = {name: new for name, (old, new) in wanted.items() if old != new}
    if before.started != after.started and after.started is not None:
        body["scheduleStartTime"] = format_instant(Nanos(after.started * SECOND))
    return body
