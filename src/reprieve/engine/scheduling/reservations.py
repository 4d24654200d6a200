"""What has to be written for a placed pod before it is bound: claims of volumes and of devices.

The filters of volumes and devices note in the simulation what a placed pod takes. Source:
specification 21.5 and 21.9.
"""

from __future__ import annotations

from dataclasses import replace

from reprieve.engine.placement.filters.device_state import DeviceState
from reprieve.engine.placement.filters.volume_binding import VolumeLedger
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Attempt, Member

__all__ = ["with_reservations"]


def with_reservations(simulation: Simulation, attempt: Attempt) -> Attempt:
    """Return the attempt with what its placed members have reserved in the simulation."""
    ledger = simulation.shared.get(FilterName.VOLUME_BINDING)
    devices = simulation.shared.get(FilterName.DYNAMIC_RESOURCES)
    if not isinstance(ledger, VolumeLedger) and not isinstance(devices, DeviceState):
        return attempt

    def reserved(member: Member) -> Member:
        if not member.bind:
            return member
        volumes = ledger.made.get(member.uid, ()) if isinstance(ledger, VolumeLedger) else ()
        claims = devices.made.get(member.uid, ()) if isinstance(devices, DeviceState) else ()
        if not volumes and not claims:
            return member
        return replace(member, volumes=volumes, claims=claims)

    return replace(attempt, members=tuple(map(reserved, attempt.members)))
