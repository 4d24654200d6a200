"""Who leads: the operator's Lease, as the page keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.api.core import ObjectMeta
from reprieve.kube.objects import version_number

__all__ = ["LEASE_NAME", "Lease", "LeaseRecord", "lease_record"]

#: Of the Lease that the operator's process holds.
LEASE_NAME: Final = "reprieve"


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class Lease(msgspec.Struct, frozen=True):
    """A Lease, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The operator's Lease.

    `holder` is empty where no process leads; `epoch` grows with every holder; `duration` in
    nanoseconds.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    holder: str
    epoch: int
    since: Nanos | None
    renewed: Nanos | None
    duration: int

    def is_held(self, at: Nanos) -> bool:
        """Return whether a process leads, by the times that it wrote."""
        return bool(self.holder) and self.renewed is not None and at < self.renewed + self.duration


def lease_record(lease: Lease) -> LeaseRecord:
    """Return what is kept of a Lease."""
    metadata, spec = lease.metadata, lease.spec
    return LeaseRecord(
        metadata.uid,
        metadata.namespace,
        metadata.name,
        version_number(metadata.resource_version),
        spec.holder_identity or "",
        spec.lease_transitions or 0,
        instant_or_none(spec.acquire_time),
        instant_or_none(spec.renew_time),
        (spec.lease_duration_seconds or 0) * SECOND,
    )
