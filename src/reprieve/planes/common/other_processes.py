"""Demands that an open record of another process serves: this one evicts nothing for them.

Records are watched in a process in which not all planes run. One counts while it is open, unless it
is a dry run or of a plane of this process, whose book knows it earlier. A demand is known by its
lineage, its objects and its pods, as a record names them. Without the right to read records, or
where they are not served, no other work counts as evicting. Source: the design's "Where the planes
meet".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from reprieve.api.reprieve import Preemption
from reprieve.engine.plan import Plane
from reprieve.execution.records.demands import names_of
from reprieve.kube.resource import PREEMPTIONS
from reprieve.planes.common.mirrors.mirror import Mirror

__all__ = ["OtherProcesses"]

log: Final = logging.getLogger("reprieve")

_Served = tuple[str, Plane, tuple[str, ...]]
_NOBODY: Final[Mapping[str, Plane]] = MappingProxyType({})


class OtherProcesses:
    """The open records of other processes, by what their demands are known by."""

    def __init__(
        self,
        mirror: Mirror,
        namespace: str,
        own: Collection[str],
        restarted: Callable[[str, str], None] = lambda kind, why: None,
    ) -> None:
        """`namespace`: the operator's. `own`: the planes of this process."""
        self._namespace = namespace
        self._own = frozenset(own)
        self._open: dict[str, tuple[Plane, tuple[str, ...]]] = {}  # by name of the record
        self._served: Mapping[str, Plane] | None = _NOBODY
        kind = PREEMPTIONS.qualified
        self._followed = mirror.follow(
            PREEMPTIONS,
            Preemption,
            self,
            report=lambda trouble: log.warning(
                "Preemptions of other processes are not read, so that two planes may evict for "
                "one preemptor: %s",
                trouble,
            ),
            restarted=lambda why: restarted(kind, why),
        )

    async def run(self) -> None:
        """Follow the records until cancelled."""
        await self._followed.run()

    def serve(self, names: Iterable[str]) -> Plane | None:
        """Return the plane that evicts for the demand that is known by one of these names."""
        served = self.served
        return next(filter(None, map(served.get, names)), None) if served else None

    @property
    def served(self) -> Mapping[str, Plane]:
        """Return by name of a demand the plane that serves it; what is returned never changes."""
        if self._served is None:
            found = {name: plane for plane, names in self._open.values() for name in names}
            self._served = MappingProxyType(found)
        return self._served

    # What the watch reports.

    def received(self, objects: list[Preemption]) -> list[_Served]:
        """Return what is kept of a page of the list."""
        return [found for each in objects if (found := self._read(each)) is not None]

    def replaced(self, objects: list[_Served], resource_version: str) -> None:
        """Replace what is known by a whole list."""
        self._open = {name: (plane, names) for name, plane, names in objects}
        self._served = None

    def applied(self, obj: Preemption) -> None:
        """Apply a record as it is now."""
        found = self._read(obj)
        if found is None:
            self.deleted(obj)
            return
        self._open[found[0]] = found[1:]
        self._served = None

    def deleted(self, obj: Preemption) -> None:
        """Forget a record."""
        ours = obj.metadata.namespace == self._namespace
        if ours and self._open.pop(obj.metadata.name, None) is not None:
            self._served = None

    def _read(self, record: Preemption) -> _Served | None:
        """Return what is kept of a record, None if it serves no demand, or is of this process."""
        spec, metadata = record.spec, record.metadata
        if (
            metadata.namespace != self._namespace
            or spec.plane in self._own
            or spec.dry_run
            or not record.status.phase.open
        ):
            return None
        return metadata.name, Plane(spec.plane), tuple(names_of(spec))
