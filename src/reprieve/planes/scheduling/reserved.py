"""Volumes and devices that are about to be written: they count as used until they are seen so.

Between a decision and the watch's answer an object may change in other ways, so what is expected is
laid over every version that comes until one shows it. Source: the design's "State that can be
trusted": what we did and have not seen yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from reprieve.engine.cluster.devices import ResourceClaimRow
from reprieve.engine.cluster.rows import Entry, Kind
from reprieve.engine.cluster.storage import ClaimRow, VolumeRow
from reprieve.engine.placement.filters.dynamic.device_state import ClaimAllocation
from reprieve.engine.placement.filters.volume_ledger import VolumeAssignment
from reprieve.engine.scheduling.outcome import Member

__all__ = ["Reserved", "unused"]


@dataclass(frozen=True, slots=True)
class _Pointed:
    """A volume that gets a claim: namespace, name and uid."""

    claim: tuple[str, str, str]


_Expected: TypeAlias = _Pointed | VolumeAssignment | ClaimAllocation
_Key: TypeAlias = tuple[str, str]  # namespace, name


class Reserved:
    """What is expected of which object.

    `stored` returns an object as it was seen last, `show` makes decisions read it as it is given.
    """

    def __init__(
        self, stored: Callable[[Kind, _Key], Entry | None], show: Callable[[Entry], None]
    ) -> None:
        self._stored = stored
        self._show = show
        self._expected: dict[tuple[Kind, _Key], list[_Expected]] = {}

    def reserve(self, member: Member) -> None:
        """Count volumes and devices as used that are about to be written for a pod."""
        for volume in member.volumes:
            key = (volume.namespace, volume.claim)
            claim = self._stored(Kind.CLAIM, key)
            if claim is not None and volume.volume:
                self._expect(Kind.VOLUME, ("", volume.volume), _Pointed((*key, claim.uid)))
            elif claim is not None:
                self._expect(Kind.CLAIM, key, volume)
        for made in member.claims:
            self._expect(Kind.RESOURCE_CLAIM, (made.namespace, made.name), made)

    def unreserve(self, member: Member) -> None:
        """Show these objects as they were seen last: writing failed."""
        for volume in member.volumes:
            self._forget(Kind.CLAIM, (volume.namespace, volume.claim))
            self._forget(Kind.VOLUME, ("", volume.volume))
        for made in member.claims:
            self._forget(Kind.RESOURCE_CLAIM, (made.namespace, made.name))

    def bound(self, member: Member) -> bool:
        """Whether all claims of volumes that were reserved for a pod are bound."""
        claims = (self._stored(Kind.CLAIM, (v.namespace, v.claim)) for v in member.volumes)
        return all(claim is not None and claim.row.bound for claim in claims)

    def shown(self, entry: Entry) -> Entry:
        """Return the object with what is expected of it and not seen there yet."""
        place = (entry.kind, (entry.namespace, entry.name))
        expected = self._expected.get(place)
        if not expected:
            return entry
        left = [each for each in expected if not _stands(entry.row, each)]
        if not left:
            del self._expected[place]
            return entry
        self._expected[place] = left
        row = entry.row
        for each in left:
            row = _after(row, each)
        return replace(entry, row=row)

    def gone(self, kind: Kind, key: _Key) -> None:
        """The object was deleted, and nothing is expected of it."""
        self._expected.pop((kind, key), None)

    def _expect(self, kind: Kind, key: _Key, expected: _Expected) -> None:
        entry = self._stored(kind, key)
        if entry is not None:
            self._expected.setdefault((kind, key), []).append(expected)
            self._show(self.shown(entry))

    def _forget(self, kind: Kind, key: _Key) -> None:
        if self._expected.pop((kind, key), None) is not None:
            entry = self._stored(kind, key)
            if entry is not None:
                self._show(entry)


def _stands(row: Any, expected: _Expected) -> bool:
    """Whether the object shows what was written."""
    if isinstance(expected, _Pointed):
        return isinstance(row, VolumeRow) and row.claim is not None
    if isinstance(expected, VolumeAssignment):
        return isinstance(row, ClaimRow) and (row.selected_node == expected.node or row.bound)
    return isinstance(row, ResourceClaimRow) and any(
        user.uid == expected.consumer.uid for user in row.reserved_for
    )


def _after(row: Any, expected: _Expected) -> Any:
    if isinstance(expected, _Pointed):
        return replace(row, available=False, claim=expected.claim)
    if isinstance(expected, VolumeAssignment):
        return replace(row, selected_node=expected.node)
    row = replace(row, reserved_for=(*row.reserved_for, expected.consumer))
    if expected.allocation is not None:
        row = replace(row, allocation=expected.allocation, in_flight=True)
    return row


def unused(entry: Entry) -> bool:
    """Whether it is a ResourceClaim without users."""
    claim = entry.row
    return isinstance(claim, ResourceClaimRow) and not claim.reserved_for
