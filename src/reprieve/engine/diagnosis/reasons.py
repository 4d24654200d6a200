"""The closed list of reasons for which a unit waits, in the order in which they dominate.

A unit can wait for several reasons at once; the one that is reported is the first of this order:
permanent before temporary, one's own before others', the cheapest remedy first. A reason is a word
of the interface: it stands in conditions, events, metrics, answers and the decision log. To add
one: a member and its row here, and its words in `wording.diagnosis`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from types import MappingProxyType
from typing import Final

from reprieve.engine.plan import Plane

__all__ = ["BEYOND_EVICTION", "REASONS", "Reason", "Trait", "dominant", "with_trait"]


class Reason(StrEnum):
    """Why a unit waits; of several the first one dominates."""

    STOPPED = "Stopped"
    INACTIVE = "Inactive"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    INVALID = "Invalid"
    NO_FLAVOR_MATCHES = "NoFlavorMatches"
    NEVER_FITS = "NeverFits"
    NO_PLACES = "NoPlaces"
    GROUP_MISSING = "GroupMissing"
    GROUP_INCOMPLETE = "GroupIncomplete"
    NOT_UNIFORM = "NotUniform"
    NO_NODE_MATCHES = "NoNodeMatches"
    SET_ASIDE = "SetAside"
    CHECKS_OPEN = "ChecksOpen"
    PODS_NOT_READY = "PodsNotReady"
    NOMINATED_WAITING = "NominatedWaiting"
    VICTIMS_LEAVING = "VictimsLeaving"
    NOT_OPTED_IN = "NotOptedIn"
    WOULD_NOT_HELP = "WouldNotHelp"
    STALE_METRICS = "StaleMetrics"
    SPREAD_OR_AFFINITY_BLOCKS = "SpreadOrAffinityBlocks"
    POLICY_NEVER = "PolicyNever"
    VICTIMS_PROTECTED = "VictimsProtected"
    NO_VICTIMS_SUFFICE = "NoVictimsSuffice"
    FULL = "Full"
    BACKOFF = "Backoff"
    BEHIND_HEAD = "BehindHead"
    PLACES_TAKEN = "PlacesTaken"
    HELD_BY_OTHERS = "HeldByOthers"
    HELD_BY_CLAIM = "HeldByClaim"
    NOT_IDLE_YET = "NotIdleYet"
    NOBODY_IDLE = "NobodyIdle"
    NO_PRESSURE = "NoPressure"


class Trait(Flag):
    """What a reason states about what helps."""

    NONE = 0
    LASTS = auto()  # it does not pass by itself: a user has to change something
    NOT_ROOM = auto()  # also on an empty cluster the unit would wait for it
    FULL_NODES = auto()  # the nodes are full, and nothing is preempted


@dataclass(frozen=True, slots=True)
class _Row:
    """In which planes a reason is reported, and its traits."""

    planes: tuple[Plane, ...]
    traits: Trait = Trait.NONE


_QUOTA: Final = Plane.QUOTA
_SCHEDULING: Final = Plane.SCHEDULING
_IDLE: Final = Plane.IDLE
_ROWS: Final[Mapping[Reason, _Row]] = MappingProxyType(
    {
        Reason.STOPPED: _Row((_QUOTA,), Trait.LASTS | Trait.NOT_ROOM),
        Reason.INACTIVE: _Row((_QUOTA,), Trait.LASTS | Trait.NOT_ROOM),
        Reason.NAMESPACE_NOT_ALLOWED: _Row((_QUOTA,), Trait.LASTS | Trait.NOT_ROOM),
        Reason.INVALID: _Row((_QUOTA,), Trait.LASTS),
        Reason.NO_FLAVOR_MATCHES: _Row((_QUOTA,), Trait.LASTS),
        Reason.NEVER_FITS: _Row((_QUOTA,), Trait.LASTS),
        Reason.NO_PLACES: _Row((_QUOTA,), Trait.LASTS),
        Reason.GROUP_MISSING: _Row((_SCHEDULING,), Trait.LASTS | Trait.NOT_ROOM),
        Reason.GROUP_INCOMPLETE: _Row((_SCHEDULING,), Trait.LASTS | Trait.NOT_ROOM),
        Reason.NOT_UNIFORM: _Row((_SCHEDULING,), Trait.LASTS),
        Reason.NO_NODE_MATCHES: _Row((_SCHEDULING,), Trait.LASTS),
        Reason.SET_ASIDE: _Row((_QUOTA, _SCHEDULING), Trait.NOT_ROOM),
        Reason.CHECKS_OPEN: _Row((_QUOTA,), Trait.NOT_ROOM),
        Reason.PODS_NOT_READY: _Row((_QUOTA,), Trait.NOT_ROOM),
        Reason.NOMINATED_WAITING: _Row((_SCHEDULING,)),
        Reason.VICTIMS_LEAVING: _Row((_QUOTA, _SCHEDULING), Trait.NOT_ROOM),
        Reason.NOT_OPTED_IN: _Row((_IDLE,)),
        Reason.WOULD_NOT_HELP: _Row((_IDLE,)),
        Reason.STALE_METRICS: _Row((_IDLE,)),
        Reason.SPREAD_OR_AFFINITY_BLOCKS: _Row((_SCHEDULING,)),
        Reason.POLICY_NEVER: _Row((_SCHEDULING,), Trait.FULL_NODES),
        Reason.VICTIMS_PROTECTED: _Row((_SCHEDULING, _IDLE), Trait.FULL_NODES),
        Reason.NO_VICTIMS_SUFFICE: _Row((_SCHEDULING,), Trait.FULL_NODES),
        Reason.FULL: _Row((_SCHEDULING,), Trait.FULL_NODES),
        Reason.BACKOFF: _Row((_QUOTA, _SCHEDULING), Trait.NOT_ROOM),
        Reason.BEHIND_HEAD: _Row((_QUOTA,)),
        Reason.PLACES_TAKEN: _Row((_QUOTA,)),
        Reason.HELD_BY_OTHERS: _Row((_QUOTA,)),
        Reason.HELD_BY_CLAIM: _Row((_IDLE,)),
        Reason.NOT_IDLE_YET: _Row((_IDLE,)),
        Reason.NOBODY_IDLE: _Row((_IDLE,)),
        Reason.NO_PRESSURE: _Row((_IDLE,)),
    }
)

#: What may be stated in each plane; the first of several dominates.
REASONS: Final[Mapping[Plane, tuple[Reason, ...]]] = MappingProxyType(
    {plane: tuple(reason for reason in Reason if plane in _ROWS[reason].planes) for plane in Plane}
)


def with_trait(trait: Trait) -> frozenset[Reason]:
    """Return the reasons that have a trait."""
    return frozenset(reason for reason, row in _ROWS.items() if trait in row.traits)


#: What no eviction changes: the unit itself, its queue or its admission has to.
BEYOND_EVICTION: Final = with_trait(Trait.LASTS) | with_trait(Trait.NOT_ROOM)


def dominant(plane: Plane, found: Iterable[Reason]) -> Reason | None:
    """Return which of the reasons found in a plane is reported, None where none was found.

    Raises:
        ValueError: one of them is no reason of this plane.
    """
    order = REASONS[plane]
    places = [order.index(reason) for reason in found]
    return order[min(places)] if places else None
