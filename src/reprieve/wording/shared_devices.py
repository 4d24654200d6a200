"""The condition `SharedDevice` of a GpuWorkload: why its own use of a GPU is not known.

Where GPUs are shared by time-slicing, MPS or shares, exporters report a device for one of its pods,
or its whole use for each of them. Source: dcgm-exporter issues 307, 587 and 642.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.kaiwo import Condition
from reprieve.units.counts import counted

__all__ = ["SHARED_DEVICE", "Sharing", "SharingReason", "with_sharing"]

SHARED_DEVICE: Final = "SharedDevice"
_OVER: Final = "NotShared"


class SharingReason(StrEnum):
    """Reasons of the condition while it is True; the first that holds is stated."""

    SAME_DEVICE = "SameDevice"
    TIME_SLICING = "TimeSlicing"
    MPS = "MPS"
    SHARE = "Share"


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the GPUs of a workload are shared.

    `devices`: how many, by UUID, and `others`: how many pods beside its own, where an exporter
    states so. `name`: the node whose GPUs are shared, or the resource that requests a share.
    """

    reason: SharingReason
    devices: int = 0
    others: int = 0
    name: str = ""


def with_sharing(existing: list[Condition], sharing: Sharing | None, now: Nanos) -> list[Condition]:
    """Return the conditions with how GPUs are shared; None where they are not, as far as known."""
    known = next((each for each in existing if each.type == SHARED_DEVICE), None)
    if sharing is None and (known is None or known.status == "False"):
        return existing
    reason = _OVER if sharing is None else sharing.reason.value
    message = "Its GPUs are not shared" if sharing is None else _message(sharing)
    status = "False" if sharing is None else "True"
    if known is not None and (known.status, known.reason, known.message) == (
        status,
        reason,
        message,
    ):
        return existing
    same = known is not None and known.status == status
    since = known.last_transition_time if known is not None and same else format_instant(now)
    condition = Condition(SHARED_DEVICE, status, reason, message, since)
    return [*(each for each in existing if each.type != SHARED_DEVICE), condition]


def _message(sharing: Sharing) -> str:
    match sharing.reason:
        case SharingReason.SAME_DEVICE:
            devices = f"{counted(sharing.devices, 'device')} of its pods {_be(sharing.devices)}"
            return (
                f"{devices} reported for {counted(sharing.others, 'other pod')}, too: the "
                "utilization is that of all of them, and counts as idle only while none uses "
                "the device"
            )
        case SharingReason.SHARE:
            return (
                f"Its pods request a share of a GPU ({sharing.name}): the exporter reports the use "
                "of the whole device or none. Read HAMi's monitor (vendor hami) for that of shares"
            )
        case _:
            return (
                f"Node {sharing.name} shares its GPUs ({sharing.reason}): the exporter reports a "
                "device for one of its pods, or its whole use for each. Pods without samples are "
                "never idle, the others only while none of them uses the device"
            )


def _be(number: int) -> str:
    return "is" if number == 1 else "are"
