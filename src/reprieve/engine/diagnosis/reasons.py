"""The closed list of reasons for which a unit waits, in the order in which they dominate.

A unit can wait for several reasons at once; the one that is told is the first of this order:
permanent before temporary, one's own before others', the cheapest remedy first. A reason is a word
of the interface: it stands in conditions, events, metrics, answers and the decision log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from reprieve.engine.plan import Plane

__all__ = ["REASONS", "Reason", "dominant"]


class Reason(StrEnum):
    """Why a unit waits."""

    # Quota.
    STOPPED = "Stopped"
    INACTIVE = "Inactive"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    INVALID = "Invalid"
    NO_FLAVOR_MATCHES = "NoFlavorMatches"
    NEVER_FITS = "NeverFits"
    NO_PLACES = "NoPlaces"
    PLACES_TAKEN = "PlacesTaken"
    HELD_BY_OTHERS = "HeldByOthers"
    BEHIND_HEAD = "BehindHead"
    CHECKS_OPEN = "ChecksOpen"
    PODS_NOT_READY = "PodsNotReady"
    # Scheduling.
    GROUP_MISSING = "GroupMissing"
    GROUP_INCOMPLETE = "GroupIncomplete"
    NOT_UNIFORM = "NotUniform"
    NO_NODE_MATCHES = "NoNodeMatches"
    POLICY_NEVER = "PolicyNever"
    SPREAD_OR_AFFINITY_BLOCKS = "SpreadOrAffinityBlocks"
    VICTIMS_PROTECTED = "VictimsProtected"
    NO_VICTIMS_SUFFICE = "NoVictimsSuffice"
    FULL = "Full"
    NOMINATED_WAITING = "NominatedWaiting"
    # Quota and scheduling.
    VICTIMS_LEAVING = "VictimsLeaving"
    BACKOFF = "Backoff"
    SET_ASIDE = "SetAside"
    # Idle.
    NOT_OPTED_IN = "NotOptedIn"
    WOULD_NOT_HELP = "WouldNotHelp"
    STALE_METRICS = "StaleMetrics"
    HELD_BY_CLAIM = "HeldByClaim"
    NOT_IDLE_YET = "NotIdleYet"
    NOBODY_IDLE = "NobodyIdle"
    NO_PRESSURE = "NoPressure"


#: What may be said in each plane; the first of several dominates.
REASONS: Final[Mapping[Plane, tuple[Reason, ...]]] = MappingProxyType(
    {
        Plane.QUOTA: (
            Reason.STOPPED,
            Reason.INACTIVE,
            Reason.NAMESPACE_NOT_ALLOWED,
            Reason.INVALID,
            Reason.NO_FLAVOR_MATCHES,
            Reason.NEVER_FITS,
            Reason.NO_PLACES,
            Reason.SET_ASIDE,
            Reason.CHECKS_OPEN,
            Reason.PODS_NOT_READY,
            Reason.VICTIMS_LEAVING,
            Reason.BACKOFF,
            Reason.BEHIND_HEAD,
            Reason.PLACES_TAKEN,
            Reason.HELD_BY_OTHERS,
        ),
        Plane.SCHEDULING: (
            Reason.GROUP_MISSING,
            Reason.GROUP_INCOMPLETE,
            Reason.NOT_UNIFORM,
            Reason.NO_NODE_MATCHES,
            Reason.SET_ASIDE,
            Reason.NOMINATED_WAITING,
            Reason.VICTIMS_LEAVING,
            Reason.SPREAD_OR_AFFINITY_BLOCKS,
            Reason.POLICY_NEVER,
            Reason.VICTIMS_PROTECTED,
            Reason.NO_VICTIMS_SUFFICE,
            Reason.FULL,
            Reason.BACKOFF,
        ),
        Plane.IDLE: (
            Reason.NOT_OPTED_IN,
            Reason.WOULD_NOT_HELP,
            Reason.STALE_METRICS,
            Reason.VICTIMS_PROTECTED,
            Reason.HELD_BY_CLAIM,
            Reason.NOT_IDLE_YET,
            Reason.NOBODY_IDLE,
            Reason.NO_PRESSURE,
        ),
    }
)


def dominant(plane: Plane, found: Iterable[Reason]) -> Reason | None:
    """Return which of the reasons found in a plane is told, None where none was found.

    Raises:
        ValueError: one of them is no reason of this plane.
    """
    order = REASONS[plane]
    places = [order.index(reason) for reason in found]
    return order[min(places)] if places else None
