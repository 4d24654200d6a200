"""Why a pod or a group waits in the scheduling plane without having been tried: what gates it.

Its group, or a pod of it, is not there; a preemption for it is under way; its claims cannot be used
yet; it pauses. Source: the design's "Why work waits"; specification 2.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.diagnosis.scheduling import count_victims
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.gangs.gate import Barrier, Barring

__all__ = [
    "backing_off",
    "group_incomplete",
    "group_missing",
    "of_barring",
    "refused_claims",
    "set_aside",
    "victims_leaving",
]


def group_missing(name: str) -> Diagnosis:
    """Return the diagnosis of pods whose group, or one above it, is not there."""
    return Diagnosis(Plane.SCHEDULING, Reason.GROUP_MISSING, {"group": name})


def group_incomplete(present: int | None, minimum: int | None, why: str = "") -> Diagnosis:
    """Return the diagnosis of a group that lacks pods; None: that is no single number."""
    numbers = {"present": present, "minimum": minimum}
    values = {name: str(number) for name, number in numbers.items() if number is not None}
    return Diagnosis(
        Plane.SCHEDULING, Reason.GROUP_INCOMPLETE, {**values, **({"why": why} if why else {})}
    )


def of_barring(barring: Barring, present: int, minimum: int) -> Diagnosis:
    """Return the diagnosis of a member of a gang of an older API that may not be tried.

    `present`, `minimum`: pods of its own gang.
    """
    if barring.barrier is not Barrier.GROUP:
        return group_missing(barring.gang)
    unknown = (*barring.missing, *barring.uninitialized)
    if unknown:
        return group_missing(", ".join(unknown))
    if present >= minimum:
        return group_incomplete(None, None, "another gang of its group lacks pods")
    return group_incomplete(present, minimum)


def victims_leaving(victims: int = 0) -> Diagnosis:
    """Return the diagnosis of a unit whose preemption is being carried out."""
    values: dict[str, str] = {}
    count_victims(victims, values)
    return Diagnosis(Plane.SCHEDULING, Reason.VICTIMS_LEAVING, values)


def refused_claims(why: str) -> Diagnosis:
    """Return the diagnosis of a pod whose ResourceClaims cannot be used yet."""
    return Diagnosis(Plane.SCHEDULING, Reason.NO_NODE_MATCHES, {"why": why})


def set_aside(until: Nanos, why: str = "") -> Diagnosis:
    """Return the diagnosis of a unit about which nothing is decided before an instant."""
    return _until(Reason.SET_ASIDE, until, {"why": why} if why else {})


def backing_off(until: Nanos) -> Diagnosis:
    """Return the diagnosis of a unit of which only is known that it pauses."""
    return _until(Reason.BACKOFF, until, {})


def _until(reason: Reason, until: Nanos, values: Mapping[str, str]) -> Diagnosis:
    reported = {**values, "until": format_instant(until)}
    return Diagnosis(Plane.SCHEDULING, reason, reported, earliest=until)
