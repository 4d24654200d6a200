"""Whether another decider is at work: the Lease that it renews while it leads.

Two deciders over the same work would evict twice for one demand. The Lease's age is observed on the
monotonic clock, as every lease's here.

A user who may write Leases in a namespace, as any user with Kubernetes' role `edit` may in his own,
can make one of this name and would so stop the decisions for all. So a Lease counts by itself only
in a namespace that is no tenant's: the operator's, and those where the other is known to be
installed. In any other it counts where the other decider has also written what no tenant may, the
status of an object of the plane's, and later than this one did. The Lease of each namespace is
followed by itself, so that none hides another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from kubeworld.units.untrusted import cut
from reprieve.kube.bodies import Json
from reprieve.kube.errors import ApiError, Forbidden
from reprieve.kube.reader import Reader
from reprieve.kube.resource import LEASES

__all__ = [
    "UNWRITTEN",
    "ForeignDecider",
    "StatusAuthors",
    "StatusWrites",
    "last_writer",
    "status_writes",
]

_LONGEST: Final = 10 * MINUTE  # that a Lease counts without a renewal, whatever it states
_SHOWN: Final = 80  # characters of a holder's name
_OURS: Final = "reprieve"
#: Command lines that people write statuses with; they decide nothing.
_BY_HAND: Final = ("kubectl",)


@dataclass(slots=True)
class _Seen:
    """The Lease of one namespace; `at`: when its last renewal was observed."""

    holder: str
    renewal: str
    duration: int
    at: Nanos


class ForeignDecider:
    """Follows the Leases of one name. `namespace` is ours; `homes`: where the other may live."""

    def __init__(
        self,
        client: Reader,
        namespace: str,
        clock: Clock,
        lease: str,
        homes: Collection[str] = (),
    ) -> None:
        self._lease = lease
        self._client = client
        self._namespace = namespace
        self._homes = {namespace, *homes}
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    @property
    def holder(self) -> str:
        """Which process holds a live Lease in a namespace that is no tenant's, empty for none."""
        return next((name for where, name in self._alive() if where in self._homes), "")

    @property
    def elsewhere(self) -> tuple[str, str]:
        """Namespace and holder of a live Lease in any other namespace, empty for none."""
        others = (each for each in self._alive() if each[0] not in self._homes)
        return next(others, ("", ""))

    def _alive(self) -> list[tuple[str, str]]:
        """Return namespace and holder of all that were renewed less than a duration ago."""
        now = self._clock.monotonic()
        return [
            (namespace, seen.holder)
            for namespace, seen in sorted(self._seen.items())
            if now - seen.at < seen.duration
        ]

    async def observe(self) -> None:
        """Read the Leases once, in whatever namespace; one that cannot be read is not held."""
        now = self._clock.monotonic()
        found: dict[str, _Seen] = {}
        for lease in await self._leases():
            spec = lease.get("spec") or {}
            holder = spec.get("holderIdentity")
            if not holder:
                continue
            namespace = str(lease["metadata"].get("namespace", ""))
            renewal = f"{holder} {spec.get('renewTime')}"
            before = self._seen.get(namespace)
            # The first sight of a Lease counts as a renewal too: better to wait once too often.
            at = before.at if before is not None and before.renewal == renewal else now
            duration = min(int(spec.get("leaseDurationSeconds") or 0) * SECOND, _LONGEST)
            found[namespace] = _Seen(cut(str(holder), _SHOWN), renewal, duration, at)
        self._seen = found

    async def _leases(self) -> list[Json]:
        selector = f"metadata.name={self._lease}"
        try:
            page = await self._client.list(LEASES, dict, field_selector=selector)
        except Forbidden:
            try:
                return [await self._client.get(LEASES, self._namespace, self._lease, dict)]
            except ApiError:
                return []
        except ApiError:
            return []
        return page.items


@dataclass(frozen=True, slots=True)
class StatusWrites:
    """When we wrote an object's status last, and when and who others did; empty for never."""

    ours: str = ""
    others: str = ""
    other: str = ""


UNWRITTEN: Final = StatusWrites()


def status_writes(managed_fields: Iterable[dict[str, Any]] | None) -> StatusWrites:
    """Return who wrote a status, by the object's managed fields; people are left out."""
    ours, others = "", ("", "")
    for entry in managed_fields or ():
        manager, time = str(entry.get("manager", "")), str(entry.get("time", ""))
        if entry.get("subresource") != "status" or manager.startswith(_BY_HAND):
            continue
        if manager.startswith(_OURS):
            ours = max(ours, time)
        else:
            others = max(others, (time, manager))
    return StatusWrites(ours, others[0], cut(others[1], _SHOWN))


def last_writer(writes: Iterable[StatusWrites]) -> str:
    """Return who wrote one of these statuses last, empty where we did.

    Another writer in the same second as ours counts as the last.
    """
    found = list(writes)
    ours = max((each.ours for each in found), default="")
    others, other = max(((each.others, each.other) for each in found), default=("", ""))
    return other if others >= ours else ""


class StatusAuthors:
    """Whether another writes the statuses of some objects, by what a watch shows of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = format_instant(clock.wall())
        self._ours = ""
        self._others: tuple[str, str] = ("", "")
        self._seen: Nanos | None = None  # when the newest of theirs was

    def observe(self, managed_fields: Iterable[dict[str, Any]] | None) -> None:
        """Record the authors of an object, each time that it changes."""
        writes = status_writes(managed_fields)
        self._ours = max(self._ours, writes.ours)
        if writes.other and (writes.others, writes.other) > self._others:
            self._others = (writes.others, writes.other)
            self._seen = self._clock.monotonic()

    @property
    def other(self) -> str:
        """Return who wrote last, or has written while this process runs and not long ago.

        An earlier write may be of a decider that has ended: it counts until we have written.
        """
        at, other = self._others
        if at >= self._ours:
            return other
        recent = self._seen is not None and self._clock.monotonic() - self._seen < _LONGEST
        return other if recent and at >= self._began else ""
