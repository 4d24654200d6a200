"""What a flavor assignment is: a flavor for each resource of each pod set, or why there is none.

Modes, worst first: no fit, no preemption candidates, preempt, reclaim, fit.

Source: specification of the quota plane, sections 5.4 and 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from reprieve.engine.quota.model import (
    AdmittedPodSet,
    FlavorFungibility,
    Preference,
    Workload,
)
from reprieve.engine.quota.targets.preemption import Possibility
from reprieve.engine.topology.model import PlacedPods, TopologyAssignment
from reprieve.engine.topology.places import Placed

__all__ = [
    "Assignment",
    "Bookmark",
    "Choice",
    "Considered",
    "Mode",
    "NoFitReason",
    "PodSetAssignment",
    "PreemptionMode",
    "begins",
    "is_preferred",
]

# Last index tried, by pod set and resource; -1 once the last flavor was reached.
Bookmark = Mapping[str, Mapping[str, int]]


class PreemptionMode(IntEnum):
    """What is needed to get a flavor-resource."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class Mode(StrEnum):
    """The mode of an assignment. DeferredFit: fits once others' victims have ended."""

    NO_FIT = "NoFit"
    PREEMPT = "Preempt"
    DEFERRED_FIT = "DeferredFit"
    FIT = "Fit"


class NoFitReason(StrEnum):
    """Why nothing fits; declared from the least to the most severe."""

    NONE = ""
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"


SEVERITY = {reason: position for position, reason in enumerate(NoFitReason)}
POSSIBILITIES = {
    Possibility.NO_CANDIDATES: PreemptionMode.NO_CANDIDATES,
    Possibility.PREEMPT: PreemptionMode.PREEMPT,
    Possibility.RECLAIM: PreemptionMode.RECLAIM,
}
ANSWERS = {mode: possibility for possibility, mode in POSSIBILITIES.items()}
Worth = tuple[PreemptionMode, int]  # with the borrowing level


@dataclass(frozen=True, slots=True)
class Choice:
    """The flavor of one resource of a pod set."""

    flavor: str
    mode: Mode
    level: int
    tried: int = -1


@dataclass(frozen=True, slots=True)
class Considered:
    """One flavor that the scans of a pod set looked at, and what it would have needed.

    `possibility` is what the oracle answered for it, None if it was not queried; of several answers
    the worst. `level` is the highest borrowing level over the resources.
    """

    flavor: str
    fits: bool
    no_fit: bool
    possibility: Possibility | None
    level: int
    reasons: tuple[str, ...]
    no_fit_reason: NoFitReason = NoFitReason.NONE


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """What one pod set gets; without flavors for its requests it does not fit.

    `topology` is where its pods are placed; where preemption is needed first, where they would be.
    `delayed`: they get places once checks have provided the nodes.
    """

    name: str
    count: int
    requests: Mapping[str, int]
    flavors: Mapping[str, Choice] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    considered: tuple[Considered, ...] = ()
    fits: bool = True
    topology: TopologyAssignment | None = None
    delayed: bool = False

    @property
    def mode(self) -> Mode:
        """Return the worst mode of its resources."""
        if not self.fits:
            return Mode.NO_FIT
        for choice in self.flavors.values():
            if choice.mode is Mode.PREEMPT:
                return Mode.PREEMPT
        return Mode.FIT

    @property
    def admitted(self) -> AdmittedPodSet:
        """Return what it holds once it is admitted so."""
        return AdmittedPodSet(
            self.name,
            self.count,
            {resource: choice.flavor for resource, choice in self.flavors.items()},
            {name: amount for name, amount in self.requests.items() if name in self.flavors},
            self.topology,
            self.delayed,
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """Flavors for a whole workload. `usage` is by flavor-resource of the tree.

    `lacks_places`: quota is free on them, and its pods have no capacity as their topology requires.
    """

    pod_sets: tuple[PodSetAssignment, ...]
    usage: Mapping[int, int]
    need: frozenset[int]
    no_fit_reason: NoFitReason = NoFitReason.NONE
    lacks_places: bool = False

    @property
    def mode(self) -> Mode:
        """Return the worst mode of its pod sets."""
        worst = Mode.FIT
        for each in self.pod_sets:
            mode = each.mode
            if mode is Mode.NO_FIT:
                return mode
            if mode is Mode.PREEMPT:
                worst = mode
        return worst

    @property
    def level(self) -> int:
        """Return the highest borrowing level."""
        levels = [c.level for each in self.pod_sets for c in each.flavors.values()]
        return max(levels, default=0)

    @property
    def message(self) -> str:
        """Return what kept pod sets from their flavors."""
        return "; ".join(
            f"couldn't assign flavors to pod set {each.name}: {', '.join(each.reasons)}"
            for each in self.pod_sets
            if each.reasons
        )

    def placed(self, workload: Workload) -> list[Placed]:
        """Return the places that a workload gets by it, by flavor."""
        rows = {each.name: each for each in workload.pod_sets}
        return [
            (flavor, PlacedPods(rows[each.name].on_node, each.topology))
            for each in self.pod_sets
            if each.topology is not None
            for flavor in sorted({choice.flavor for choice in each.flavors.values()})
        ]

    @property
    def bookmark(self) -> Bookmark:
        """Return where the next scan continues."""
        return {
            each.name: {resource: choice.tried for resource, choice in each.flavors.items()}
            for each in self.pod_sets
        }

    @property
    def has_pending_flavors(self) -> bool:
        """Whether some group has flavors that were not tried."""
        return any(c.tried != -1 for each in self.pod_sets for c in each.flavors.values())


def begins(resumed: Bookmark | None) -> bool:
    """Return whether a scan begins with the first flavor."""
    return not resumed or all(tried == -1 for scans in resumed.values() for tried in scans.values())


def is_preferred(a: Worth, b: Worth, fungibility: FlavorFungibility) -> bool:
    """Return whether `a` is better than `b`.

    1. what does not fit is never better, and worse than all else
    2. anything is better than a flavor without candidates
    3. the better mode, then the lower borrowing level; the other way round for the preference
       PreemptionOverBorrowing
    """
    none = PreemptionMode.NO_CANDIDATES
    if a[0] is PreemptionMode.NO_FIT:
        return False
    if b[0] is PreemptionMode.NO_FIT:
        return True
    if (a[0] is none) != (b[0] is none):
        return b[0] is none
    if fungibility.preference is Preference.PREEMPTION_OVER_BORROWING:
        return (-a[1], a[0]) > (-b[1], b[0])
    return (a[0], -a[1]) > (b[0], -b[1])
