"""Candidates by kind, kept from one decision to the next, and which kinds have to be checked.

A kind is a tenant and a priority: what budgets select by. Of each kind it is known when the work
of its candidates began at the earliest and how many devices one of them has at most, so how much
any of them may lose at an instant. While that fits into what its accounts have left (`rooms`),
no candidate of the kind is checked. A decision looks again at the tenants alone whose candidates or
accounts have changed, and at all once time may have made one of them lose more than is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.harm_budgets.rooms import EACH, ENDLESS, Rooms

__all__ = ["NEVER", "UNBOUNDED", "Doubts", "Kind", "Kinds"]

#: When something began that has not.
NEVER: Final = 2**62
#: The devices of a candidate whose number may change unseen.
UNBOUNDED: Final = 2**62


@dataclass(slots=True, eq=False)
class Kind:
    """Candidates that are alike for selectors: when each began (Unix seconds), and its devices."""

    tenant: str
    priority: int | None
    members: dict[str, tuple[int, int]] = field(default_factory=dict)
    since: int = NEVER
    devices: int = 0

    def add(self, uid: str, since: int, devices: int) -> None:
        """Add a candidate, or what is known of it now."""
        self.members[uid] = since, devices
        self.since, self.devices = min(self.since, since), max(self.devices, devices)

    def tighten(self) -> None:
        """Keep only these candidates."""
        self.since = min((since for since, _ in self.members.values()), default=NEVER)
        self.devices = max((devices for _, devices in self.members.values()), default=0)

    def fits_until(self, room: int) -> int:
        """Return the first second at which one may lose more than this."""
        if room < 0:
            return 0
        if room == ENDLESS or not self.devices or self.since == NEVER:
            return NEVER
        return self.since + room // self.devices + 1


class Kinds:
    """All candidates of a plane, by tenant and priority."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[int | None, Kind]] = {}
        self._of: dict[str, Kind] = {}
        self.version = 0
        # When the candidates of a tenant have changed, the latest last.
        self._changed: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[Kind]:
        for kinds in self._tenants.values():
            yield from kinds.values()

    def __contains__(self, uid: str) -> bool:
        return uid in self._of

    def uids(self) -> list[str]:
        """Return all candidates."""
        return list(self._of)

    def apply(self, uid: str, tenant: str, priority: int | None, since: int, devices: int) -> None:
        """Apply a candidate, or what is known of it now."""
        known = self._of.get(uid)
        if known is not None:
            if known.tenant == tenant and known.priority == priority:
                if known.members[uid] != (since, devices):
                    known.add(uid, since, devices)
                    self._touch(tenant)
                return
            self.remove(uid)
        kinds = self._tenants.setdefault(tenant, {})
        kind = kinds.get(priority)
        if kind is None:
            kind = kinds[priority] = Kind(tenant, priority)
        kind.add(uid, since, devices)
        self._of[uid] = kind
        self._touch(tenant)

    def remove(self, uid: str) -> None:
        """Release a candidate; of others of its kind nothing changes."""
        kind = self._of.pop(uid, None)
        if kind is None:
            return
        del kind.members[uid]
        if kind.members:
            return
        kinds = self._tenants[kind.tenant]
        del kinds[kind.priority]
        self._touch(kind.tenant)
        if not kinds:
            del self._tenants[kind.tenant]

    def of(self, tenant: str) -> list[Kind]:
        """Return the kinds of a tenant."""
        return list(self._tenants.get(tenant, {}).values())

    def tenants(self) -> list[str]:
        """Return all tenants with candidates."""
        return list(self._tenants)

    def changed_since(self, version: int) -> list[str]:
        """Return the tenants whose candidates have changed since a version."""
        found = []
        for tenant, at in reversed(self._changed.items()):
            if at <= version:
                break
            found.append(tenant)
        return found

    def _touch(self, tenant: str) -> None:
        self.version += 1
        self._changed.pop(tenant, None)
        self._changed[tenant] = self.version
        if len(self._changed) > 2 * len(self._tenants) + 1_000:
            self._forget_gone()

    def _forget_gone(self) -> None:
        """Release tenants without candidates: none of theirs has to be checked."""
        self._changed = {
            each: version for each, version in self._changed.items() if each in self._tenants
        }


class Doubts:
    """Which kinds have to be checked, for the preemptors and the plane of some balances."""

    def __init__(self, rooms: Rooms, kinds: Kinds, plane: str, asks: HarmSide | None) -> None:
        self._rooms, self._kinds = rooms, kinds
        self._plane, self._asks = plane, asks
        self._version = -1
        self._until = 0  # the second from which more candidates may have to be checked
        self._found: dict[str, list[Kind]] = {}

    def at(self, now: Nanos) -> list[Kind]:
        """Return the kinds of which a member may lose more than is left."""
        second, forgotten = now // SECOND, self._rooms.forgotten()
        if forgotten is None or second >= self._until or self._version < 0:
            self._found.clear()
            self._until, tenants = NEVER, self._kinds.tenants()
        else:
            # What is left of the others may be more by now: something has left a window.
            for kind in (kind for kinds in self._found.values() for kind in kinds):
                if self._rooms.get(kind, EACH) != EACH:
                    del self._rooms[kind]
            changed = self._kinds.changed_since(self._version)
            tenants = list({*forgotten, *changed, *self._found})
        self._version = self._kinds.version
        for tenant in tenants:
            self._look_at(tenant, now)
        return [kind for kinds in self._found.values() for kind in kinds]

    def _look_at(self, tenant: str, now: Nanos) -> None:
        found, second = [], now // SECOND
        for kind in self._kinds.of(tenant):
            room = self._rooms.get(kind)
            if room is None:
                side = HarmSide(tenant, "", kind.priority)
                room = self._rooms.ask(kind, Harm(now, self._plane, side, self._asks))
            until = kind.fits_until(room)
            if until <= second and room >= 0:
                kind.tighten()
                until = kind.fits_until(room)
            if until <= second:
                found.append(kind)
            else:
                self._until = min(self._until, until)
        if found:
            self._found[tenant] = found
        else:
            self._found.pop(tenant, None)
