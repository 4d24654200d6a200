"""When displaced work runs again, for the Disruption that reports it.

Planes state what runs (`runs`): a pod that got a node, a Workload that was admitted, work of a root
that has started. It is the displaced work again where it is of the same lineage and began to
run after that was chosen; of a unit of several objects as many have to run, and no object brings
two units back. The instant is part of the call that creates the Disruption if it is known by then;
otherwise one small patch writes it, in its turn and within a budget. The schema allows it to be set
once, so that a patch that is repeated after a crash changes nothing. A process that becomes the
leader lists the Disruptions without it, and the planes report what runs.

Source: specification of disruptions, section 6.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.api.reprieve import Metadata
from reprieve.engine.disruptions.lineage import Participant
from reprieve.execution.fence import Deposed, Fence
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Forbidden, Invalid, NotFound
from reprieve.kube.recording.write_budget import Allowance, WriteBudget
from reprieve.kube.resource import DISRUPTIONS
from reprieve.kube.writes import Priority
from reprieve.records.plans.at_stake import lineage_of

__all__ = ["Returns", "Unit"]

log: Final = logging.getLogger("reprieve.execution")

_MOST_LINES: Final = 20_000
_MOST_RUNS: Final = 1_000  # of one lineage; the oldest are forgotten
_MOST_AWAY: Final = 1_000  # likewise; a namespace has 200 Disruptions at most
_PAUSE: Final = SECOND
_PAGE: Final = 500
_ALLOWANCE: Final = Allowance(burst=100, quiet=50, busy=10, many=5)

Name = tuple[str, str]  # namespace and name of a Disruption


@dataclass(frozen=True, slots=True)
class Unit:
    """A displaced unit. `name`: of its Disruption; `noticed`: when it was chosen."""

    name: Name
    lineage: str
    noticed: Nanos
    objects: int = 1


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    lineage: str = ""
    noticed_at: str = ""
    objects: int = 1


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    back_at: str = ""


class _Reported(msgspec.Struct, frozen=True):
    """As much of a Disruption as states whether its work is awaited."""

    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(slots=True)
class _Line:
    """One lineage: what is displaced of it, and what runs of it since when, by uid.

    `counted`: those that have brought a unit back, and when; several planes may report one.
    `roots`: what those that run belong to, where that is not themselves. `deleted`: uids of what
    was displaced and deleted, which may be reported late and is never back.
    """

    away: dict[Name, Unit] = field(default_factory=dict)
    runs: dict[str, Nanos] = field(default_factory=dict)
    counted: dict[str, Nanos] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    deleted: dict[str, None] = field(default_factory=dict)

    def stop(self, uid: str) -> None:
        """An object is none of those that run."""
        self.runs.pop(uid, None)
        self.roots.pop(uid, None)

    def delete(self, uids: Iterable[str]) -> None:
        """These were displaced and deleted, and all that belongs to them."""
        self.deleted.update(dict.fromkeys(uids))
        while len(self.deleted) > _MOST_RUNS:
            del self.deleted[next(iter(self.deleted))]
        for uid in [each for each in self.runs if self.is_deleted(each, self.roots.get(each))]:
            self.stop(uid)

    def is_deleted(self, uid: str, root: str | None) -> bool:
        """Return whether an object, or what it belongs to, was deleted."""
        return uid in self.deleted or root in self.deleted


class Returns:
    """Follows lineages that were displaced. `run` writes what is due."""

    def __init__(self, client: Client, fence: Fence, clock: Clock) -> None:
        #: Called with each unit that runs again, and since when.
        self.returned: Callable[[Unit, Nanos], None] = lambda unit, at: None
        self._client = client
        self._writer = client.at(Priority.STATUS, fence.check, timeout=fence.request_timeout)
        self._clock = clock
        self._budget = WriteBudget(clock, lambda: client.passed_before(Priority.STATUS), _ALLOWANCE)
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._due: dict[Name, Nanos] = {}
        self._writing: set[Name] = set()
        self._arrived = asyncio.Event()
        self._listed = False

    @property
    def remembers(self) -> tuple[int, int]:
        """How many lineages are followed, and how many units of them are awaited."""
        lines = list(self._lines.values())
        return len(lines), sum(len(line.away) for line in lines)

    # What happens.

    def runs(self, participant: Participant, uid: str, at: Nanos, root: str = "") -> None:
        """An object of a lineage runs since then; `root`: uid of what it belongs to."""
        line = self._line(lineage_of(participant))
        if line.is_deleted(uid, root):
            return
        line.stop(uid)
        line.runs[uid] = at
        if root:
            line.roots[uid] = root
        if len(line.runs) > _MOST_RUNS:
            line.stop(next(iter(line.runs)))
        if line.away:
            self._match(line)

    def displaced(self, unit: Unit, deleted: Iterable[str] = ()) -> Nanos | None:
        """A unit's Disruption is to be written now; return when its work ran again, if it does.

        Args:
            unit: what was displaced.
            deleted: uids of its objects that were deleted. One that was chosen before it was seen
                to run is not the work that is back.
        """
        self._writing.add(unit.name)
        self._line(unit.lineage).delete(deleted)
        return self._awaited(unit)

    def reported(self, name: Name, at: Nanos | None) -> None:
        """The Disruption is there, with this instant."""
        self._writing.discard(name)
        if at is not None:
            self._due.pop(name, None)
        elif name in self._due:
            self._arrived.set()

    def forget(self, unit: Unit) -> None:
        """There is no Disruption, and no tenant to notify."""
        self._line(unit.lineage).away.pop(unit.name, None)
        self._writing.discard(unit.name)
        self._due.pop(unit.name, None)

    def _awaited(self, unit: Unit) -> Nanos | None:
        line = self._line(unit.lineage)
        if unit.name not in self._due:
            line.away[unit.name] = unit
            if len(line.away) > _MOST_AWAY:
                del line.away[next(iter(line.away))]
            self._match(line)
        return self._due.get(unit.name)

    async def recover(self) -> None:
        """Adopt what former processes have reported, once.

        Raises:
            ApiError: to be tried again.
        """
        if self._listed:
            return
        try:
            async for page in self._client.list_pages(DISRUPTIONS, _Reported, page_size=_PAGE):
                for each in page.items:
                    self._await(each)
        except (Forbidden, NotFound) as failure:
            log.warning("the return of displaced workloads is not observed: %s", failure)
        self._listed = True

    async def run(self) -> None:
        """Write what is due until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            # A Disruption that is created in the next moment can still contain the instant.
            await self._clock.sleep(_PAUSE)
            for name, at in list(self._due.items()):
                await self._budget.turn()
                if name not in self._due or name in self._writing:
                    continue
                if not await self._write(name, at):
                    self._arrived.set()
                    break

    # What follows.

    def _await(self, reported: _Reported) -> None:
        spec, metadata = reported.spec, reported.metadata
        if reported.status.back_at or not spec.lineage:
            return
        try:
            noticed = parse_instant(spec.noticed_at)
        except ValueError:
            return
        self._awaited(
            Unit((metadata.namespace, metadata.name), spec.lineage, noticed, spec.objects)
        )

    def _line(self, lineage: str) -> _Line:
        line = self._lines.get(lineage)
        if line is None:
            if len(self._lines) >= _MOST_LINES:
                self._forget()
            line = self._lines[lineage] = _Line()
        else:
            self._lines.move_to_end(lineage)
        return line

    def _forget(self) -> None:
        """Forget a tenth of the lines: first those that await nothing, then those not heard of."""
        awaited = sorted(self._lines, key=lambda name: bool(self._lines[name].away))
        for name in awaited[: max(1, _MOST_LINES // 10)]:
            del self._lines[name]

    def _match(self, line: _Line) -> None:
        """Find who is back, the one that was displaced first before the others."""
        for unit in sorted(line.away.values(), key=lambda each: (each.noticed, each.name)):
            since = sorted(self._since(line, unit.noticed))
            if len(since) < unit.objects:
                continue
            back = since[: unit.objects]
            for at, uid in back:
                line.stop(uid)
                line.counted[uid] = at
            while len(line.counted) > _MOST_RUNS:
                del line.counted[next(iter(line.counted))]
            del line.away[unit.name]
            self._due[unit.name] = back[-1][0]
            self._arrived.set()
            self.returned(unit, back[-1][0])

    def _since(self, line: _Line, noticed: Nanos) -> Iterator[tuple[Nanos, str]]:
        """Yield what began to run since then, and has not brought another unit back since."""
        for uid, at in line.runs.items():
            if at > noticed and line.counted.get(uid, 0) <= noticed:
                yield at, uid

    async def _write(self, name: Name, at: Nanos) -> bool:
        """Write one; return whether the next may be tried."""
        patch = {"status": {"backAt": format_instant(at)}}
        try:
            await self._writer.patch(DISRUPTIONS, *name, patch, _Reported)
        except NotFound:
            pass  # it is deleted
        except Invalid:
            pass  # a former process has set it
        except (ApiError, Deposed) as failure:
            log.warning(
                "the return of %s/%s is not written to its Disruption, it is retried: %s",
                *name,
                failure,
            )
            return False
        self._due.pop(name, None)
        return True
