"""What has to be written for a placed pod before it is bound: claims of volumes and of devices.

The filters of volumes and devices note in the simulation what a placed pod reserves. Source:
specification 21.5 and 21.9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.dynamic.device_state import ClaimAllocation, DeviceState
from reprieve.engine.placement.filters.volume_ledger import VolumeAssignment, VolumeLedger
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Attempt, Member
from reprieve.units.ids import Uid

__all__ = ["Reservations", "reservations_of", "with_reservations"]


_RESERVING: Final = (FilterName.VOLUME_BINDING, FilterName.DYNAMIC_RESOURCES)


@dataclass(frozen=True, slots=True)
class Reservations:
    """What has to be written for one pod, in order."""

    volumes: tuple[VolumeAssignment, ...] = ()
    claims: tuple[ClaimAllocation, ...] = ()


def reservations_of(view: View, uid: Uid) -> Reservations:
    """Return what a pod that the view has placed reserves."""
    ledger = view.shared.get(FilterName.VOLUME_BINDING)
    devices = view.shared.get(FilterName.DYNAMIC_RESOURCES)
    return Reservations(
        ledger.made.get(uid, ()) if isinstance(ledger, VolumeLedger) else (),
        devices.made.get(uid, ()) if isinstance(devices, DeviceState) else (),
    )


def with_reservations(simulation: Simulation, attempt: Attempt) -> Attempt:
    """Return the attempt with what its placed members have reserved in the simulation."""
    if simulation.shared.keys().isdisjoint(_RESERVING):
        return attempt

    def reserved(member: Member) -> Member:
        found = reservations_of(simulation, member.uid) if member.bind else Reservations()
        if found == Reservations():
            return member
        return replace(member, volumes=found.volumes, claims=found.claims)

    return replace(attempt, members=tuple(map(reserved, attempt.members)))
