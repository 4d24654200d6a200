"""The result of one run of the global evaluation: plans, and for all else why nothing happens.

Source: specification of the idle plane, section 14; texts are made by wording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.idle.model import Reservation
from reprieve.engine.plan import Plan
from reprieve.units.references import Reference

__all__ = [
    "RULE_ALWAYS",
    "RULE_BESIDE_PRIORITY",
    "RULE_FEWEST_IDLE",
    "RULE_HOLDS_QUOTA",
    "RULE_NOT_NEEDED",
    "RULE_OLDEST_IDLE",
    "Declined",
    "Evaluation",
    "Reason",
]

RULE_OLDEST_IDLE: Final = "OldestIdle"
RULE_FEWEST_IDLE: Final = "FewestIdle"
RULE_ALWAYS: Final = "Always"
RULE_HOLDS_QUOTA: Final = "HoldsQuota"  # idle, and it holds the quota that a queued demand lacks
RULE_BESIDE_PRIORITY: Final = "BesidePriority"  # idle, together with work of lower priority
RULE_NOT_NEEDED: Final = "NotNeeded"  # reprieved: the demand fits without it


class Reason(StrEnum):
    """Why a demand has no victims, or an idle workload stays."""

    COVERED = "Covered"  # what is free or on its way suffices
    SHORT = "Short"  # all eligible idle workloads together hold too little
    NO_PLACEMENT = "NoPlacement"  # there are GPUs enough, but some pod has no node
    NO_PENDING_POD = "NoPendingPod"  # fit Node needs a pod to place
    NO_TIMER = "NoTimer"
    WITHIN_GRACE = "WithinGrace"
    NOT_FRESH = "NotFresh"
    CLAIMED = "Claimed"
    NO_DEMAND = "NoDemand"  # eligible, but no demand needs it
    REPRIEVED = "Reprieved"
    HELD = "Held"  # by the governor of disruptions
    PART_OF_GANG = "PartOfGang"  # it is evicted with a gang of which not all is idle
    SHARES_DEVICES = (
        "SharesDevices"  # a device comes free with others only, of which not all are idle
    )
    OWNED = "Owned"  # another plane of the process evicts for it
    NO_QUOTA = "NoQuota"  # no idle work that may be evicted holds the quota which it lacks
    DELAYED = "Delayed"  # it has not waited for long enough for an eviction
    SPACED = "Spaced"  # others use what plans for it freed, and the next plan is due later
    DISPLACED = "Displaced"  # it was displaced lately: no workload is evicted for its return
    NOT_CONFIRMED = "NotConfirmed"  # the scheduling plane would not place it in their stead


@dataclass(frozen=True, slots=True)
class Declined:
    """A workload for which, or to which, nothing happens, and why.

    `amounts`: what is missing per resource name (SHORT), what is on its way (COVERED), or what a
    pod without a node requests (NO_PLACEMENT; nothing where each has one, but not all together).
    `until`: when time alone changes the answer.
    """

    subject: Reference
    reason: Reason
    amounts: Mapping[str, int] = field(default_factory=dict)
    until: Nanos | None = None
    budget: str = ""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one run decides. `next_due`: when time alone may make another run decide otherwise.

    `reservations`: with fit Node, where the pods of demands that are COVERED were placed. They need
    not be remembered, as every run finds them again; a check of the plans wants them.
    """

    plans: tuple[Plan, ...] = ()
    declined: tuple[Declined, ...] = ()
    next_due: Nanos | None = None
    reservations: tuple[Reservation, ...] = ()
