"""Flavor assignment: which flavor each pod set gets, and whether that takes preemption.

Pod sets are taken in order; for every resource that has no flavor yet the group that covers it is
scanned from where the last scan stopped. The mode of a flavor is the worst over the resources of
the group, by `is_preferred`; fungibility says whether the scan goes on after a flavor that would
do.

Modes, worst first: no fit, no preemption candidates, preempt, reclaim, fit.

Source: specification of the quota plane, sections 5.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from reprieve.engine.quota.amounts import capacity_text, plus, text
from reprieve.engine.quota.flavors import mismatch
from reprieve.engine.quota.model import (
    ClusterQueue,
    FlavorFungibility,
    FlavorResource,
    Fungibility,
    Policy,
    Preference,
    ResourceGroup,
    Workload,
)
from reprieve.engine.quota.preemption import Oracle, Possibility
from reprieve.engine.quota.requests import PodSetRequest, pod_set_requests
from reprieve.engine.quota.state import Snapshot
from reprieve.engine.quota.tree import available, borrowing_level

__all__ = [
    "Assigner",
    "Assignment",
    "Bookmark",
    "Choice",
    "Considered",
    "Mode",
    "NoFitReason",
    "PodSetAssignment",
    "PreemptionMode",
    "is_preferred",
]

# Last index tried, by pod set and resource; -1 once the last flavor was reached.
Bookmark = Mapping[str, Mapping[str, int]]


class PreemptionMode(IntEnum):
    """What it takes to get a flavor-resource."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class Mode(StrEnum):
    """The mode of an assignment. DeferredFit: fits once others' victims are gone."""

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


_SEVERITY = {reason: position for position, reason in enumerate(NoFitReason)}
_POSSIBILITIES = {
    Possibility.NO_CANDIDATES: PreemptionMode.NO_CANDIDATES,
    Possibility.PREEMPT: PreemptionMode.PREEMPT,
    Possibility.RECLAIM: PreemptionMode.RECLAIM,
}
_ANSWERS = {mode: possibility for possibility, mode in _POSSIBILITIES.items()}
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
    """One flavor that the scans of a pod set looked at, and what it would have taken.

    `possibility` is what the oracle answered for it, None if it was not asked; of several answers
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
    """What one pod set gets; without flavors for what it asks it does not fit."""

    name: str
    count: int
    requests: Mapping[str, int]
    flavors: Mapping[str, Choice] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    considered: tuple[Considered, ...] = ()
    fits: bool = True

    @property
    def mode(self) -> Mode:
        """Return the worst mode of its resources."""
        if not self.fits:
            return Mode.NO_FIT
        modes = {choice.mode for choice in self.flavors.values()}
        return Mode.PREEMPT if Mode.PREEMPT in modes else Mode.FIT


@dataclass(frozen=True, slots=True)
class Assignment:
    """Flavors for a whole workload. `usage` is by flavor-resource of the tree."""

    pod_sets: tuple[PodSetAssignment, ...]
    usage: Mapping[int, int]
    need: frozenset[int]
    no_fit_reason: NoFitReason = NoFitReason.NONE

    @property
    def mode(self) -> Mode:
        """Return the worst mode of its pod sets."""
        modes = {each.mode for each in self.pod_sets}
        for mode in (Mode.NO_FIT, Mode.PREEMPT):
            if mode in modes:
                return mode
        return Mode.FIT

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

    @property
    def bookmark(self) -> Bookmark:
        """Return where the next scan goes on."""
        return {
            each.name: {resource: choice.tried for resource, choice in each.flavors.items()}
            for each in self.pod_sets
        }

    @property
    def has_pending_flavors(self) -> bool:
        """Whether some group has flavors that were not tried."""
        return any(c.tried != -1 for each in self.pod_sets for c in each.flavors.values())


def is_preferred(a: Worth, b: Worth, fungibility: FlavorFungibility) -> bool:
    """Tell whether `a` is better than `b`.

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


class Assigner:
    """Assigns flavors to one workload in one ClusterQueue of a snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        workload: Workload,
        queue: int,
        oracle: Oracle,
        bookmark: Bookmark | None = None,
        only: Callable[[str, str], str | None] | None = None,
    ) -> None:
        """Prepare it.

        Args:
            snapshot: the state; not changed.
            workload: what asks.
            queue: index of its ClusterQueue.
            oracle: answers what preemption could do.
            bookmark: where the scans start; None from the first flavor.
            only: by pod set and resource, the one flavor to look at, or None for all.
        """
        self._snapshot = snapshot
        self._tree = snapshot.tree
        self._workload = workload
        self._queue = queue
        self._config: ClusterQueue = snapshot.configuration.cluster_queues[
            snapshot.tree.names[queue]
        ]
        self._oracle = oracle
        self._bookmark = bookmark or {}
        self._only = only

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Return the assignment, with the pod sets' counts lowered to `counts` where given."""
        requests = pod_set_requests(self._workload, self._snapshot.settings, counts)
        if self._config.group_of("pods") is not None:
            requests = [
                PodSetRequest(each.pod_set, each.count, {**each.amounts, "pods": each.count})
                for each in requests
            ]
        together: dict[str, list[PodSetRequest]] = {}
        for position, each in enumerate(requests):
            name = each.pod_set.group
            together.setdefault(f"group/{name}" if name else f"single/{position}", []).append(each)
        usage: dict[int, int] = {}
        need: set[int] = set()
        done: list[PodSetAssignment] = []
        for group in together.values():
            scan = _Scan(self, usage)
            flavors = scan.run(group)
            for each in group:
                mine = {r: c for r, c in (flavors or {}).items() if r in each.amounts}
                done.append(
                    PodSetAssignment(
                        each.pod_set.name,
                        each.count,
                        each.amounts,
                        mine,
                        tuple(sorted(scan.reasons)),
                        tuple(scan.considered[name] for name in sorted(scan.considered)),
                        flavors is not None,
                    )
                )
                for resource, choice in mine.items():
                    column = self._tree.column(FlavorResource(choice.flavor, resource))
                    usage[column] = plus(usage.get(column, 0), each.amounts[resource])
                    if choice.mode is Mode.PREEMPT:
                        need.add(column)
            if flavors is None:
                return Assignment(tuple(done), usage, frozenset(need), scan.no_fit_reason())
        return Assignment(tuple(done), usage, frozenset(need))


class _Scan:
    """The scans of all groups that one pod set, or pod sets of one group, need."""

    def __init__(self, assigner: Assigner, usage: Mapping[int, int]) -> None:
        self._of = assigner
        self._usage = usage
        self.reasons: list[str] = []
        self.considered: dict[str, Considered] = {}
        self._unavailable = False

    def run(self, pod_sets: Sequence[PodSetRequest]) -> dict[str, Choice] | None:
        """Return a flavor for each resource, None if one has none."""
        requests: dict[str, int] = {}
        for each in pod_sets:
            for resource, amount in each.amounts.items():
                requests[resource] = plus(requests.get(resource, 0), amount)
        flavors: dict[str, Choice] = {}
        config, settings = self._of._config, self._of._snapshot.settings
        for resource in sorted(requests):
            if resource in flavors:
                continue
            group = config.group_of(resource)
            if group is None:
                if requests[resource] == 0 or settings.ignore_undeclared:
                    continue
                self.reasons = [f"resource {resource} unavailable in ClusterQueue"]
                self._unavailable = True
                return None
            found, reasons = self._group(pod_sets, requests, resource, group)
            if not found:
                self.reasons = reasons
                return None
            flavors.update(found)
            self.reasons += reasons
        return flavors

    def no_fit_reason(self) -> NoFitReason:
        """Return why the pod set got no flavors.

        Flavors of a group are alternatives, so the least severe reason of each group counts; groups
        are needed together, so the most severe of these.
        """
        least: dict[int, NoFitReason] = {}
        for each in self.considered.values():
            if not each.no_fit:
                continue
            for position, group in enumerate(self._of._config.groups):
                if any(flavor.flavor == each.flavor for flavor in group.flavors):
                    known = least.get(position, each.no_fit_reason)
                    least[position] = min(known, each.no_fit_reason, key=_SEVERITY.__getitem__)
        reasons = [*least.values()]
        if self._unavailable or not self.considered:
            reasons.append(NoFitReason.NO_MATCHING_FLAVOR)
        return max(reasons, key=_SEVERITY.__getitem__, default=NoFitReason.NONE)

    def _consider(self, new: Considered) -> None:
        """Note a flavor; one that several groups have is noted once, at its worst."""
        old = self.considered.get(new.flavor)
        if old is not None:
            answers = [each for each in (old.possibility, new.possibility) if each is not None]
            new = Considered(
                new.flavor,
                old.fits and new.fits,
                old.no_fit or new.no_fit,
                min(answers, key=_POSSIBILITIES.__getitem__, default=None),
                max(old.level, new.level),
                tuple(sorted({*old.reasons, *new.reasons})),
                max(old.no_fit_reason, new.no_fit_reason, key=_SEVERITY.__getitem__),
            )
        self.considered[new.flavor] = new

    def _group(
        self,
        pod_sets: Sequence[PodSetRequest],
        requests: Mapping[str, int],
        resource: str,
        group: ResourceGroup,
    ) -> tuple[dict[str, Choice], list[str]]:
        covered = {name: requests[name] for name in sorted(requests) if name in group.covered}
        fungibility = self._of._config.fungibility
        scanning = self._of._snapshot.settings.gates.flavor_fungibility
        name = pod_sets[0].pod_set.name
        start = self._of._bookmark.get(name, {}).get(resource, -1) + 1 if scanning else 0
        only = self._of._only(name, resource) if self._of._only else None
        reasons: list[str] = []
        best: dict[str, tuple[str, Worth]] = {}
        best_worth: Worth = (PreemptionMode.NO_FIT, 0)
        attempted = -1
        for position in range(start, len(group.flavors)):
            attempted = position
            flavor = group.flavors[position].flavor
            if only is not None and flavor != only:
                reasons.append(
                    f"skipping flavor {flavor} as it is not found in the nomination mapping for "
                    f"resource {resource}"
                )
                continue
            worth, choices, why = self._flavor(flavor, pod_sets, covered)
            reasons += why
            if worth[0] is PreemptionMode.NO_FIT:
                continue
            if not scanning:
                if worth[0] > best_worth[0]:
                    best, best_worth = choices, worth
                if worth[0] is PreemptionMode.FIT:
                    break
                continue
            if not _try_next(worth, fungibility):
                best, best_worth = choices, worth
                break
            if is_preferred(worth, best_worth, fungibility):
                best, best_worth = choices, worth
        tried = -1 if attempted == len(group.flavors) - 1 else attempted
        if not scanning:
            tried = 0
        chosen = {
            each: Choice(flavor, _public(worth[0]), worth[1], tried)
            for each, (flavor, worth) in best.items()
        }
        return chosen, [] if best_worth[0] is PreemptionMode.FIT else reasons

    def _flavor(
        self, flavor: str, pod_sets: Sequence[PodSetRequest], covered: Mapping[str, int]
    ) -> tuple[Worth, dict[str, tuple[str, Worth]], list[str]]:
        """Return what one flavor takes, worst and by resource, and what speaks against it."""
        known = self._of._snapshot.configuration.flavors.get(flavor)
        whys = (mismatch(known, each.pod_set) for each in pod_sets) if known else ()
        why = next(filter(None, whys), "") if known else f"flavor {flavor} not found"
        if why:
            never = NoFitReason.NO_MATCHING_FLAVOR
            self._consider(Considered(flavor, False, True, None, 0, (why,), never))
            return (PreemptionMode.NO_FIT, 0), {}, [why]
        worst: Worth = (PreemptionMode.FIT, 0)
        choices: dict[str, tuple[str, Worth]] = {}
        reasons: list[str] = []
        severest, highest = NoFitReason.NONE, 0
        for resource, amount in covered.items():
            worth, why, severity = self._quota(FlavorResource(flavor, resource), amount)
            if why:
                reasons.append(why)
            if is_preferred(worst, worth, self._of._config.fungibility):
                worst = worth
            severest = max(severest, severity, key=_SEVERITY.__getitem__)
            highest = max(highest, worth[1])
            choices[resource] = (flavor, worth)
        mode = worst[0]
        self._consider(
            Considered(
                flavor,
                mode is PreemptionMode.FIT,
                mode is PreemptionMode.NO_FIT,
                _ANSWERS.get(mode),
                highest,
                tuple(sorted(reasons)),
                severest,
            )
        )
        return worst, choices, reasons

    def _quota(self, pair: FlavorResource, amount: int) -> tuple[Worth, str, NoFitReason]:
        """Return what `amount` more of one flavor-resource takes."""
        of, tree, queue = self._of, self._of._tree, self._of._queue
        column = tree.column(pair)
        of._snapshot.add_usage(queue, ((column, 0),))
        usage = of._snapshot.usage[column]
        before = self._usage.get(column, 0)
        wanted = plus(before, amount)
        most = tree.potential[column][queue]
        if wanted > most:
            why = (
                f"insufficient quota for {pair.resource} in flavor {pair.flavor}, previously "
                f"considered podsets requests ({text(pair.resource, before)}) + current podset "
                f"request ({text(pair.resource, amount)}) > maximum capacity "
                f"({capacity_text(pair.resource, most)})"
            )
            return (PreemptionMode.NO_FIT, 0), why, NoFitReason.EXCEEDS_MAX_QUOTA
        level, may_reclaim = borrowing_level(tree, column, usage, queue, wanted)
        left = max(0, available(tree, column, usage, tree.path[queue]))
        if wanted <= left:
            return (PreemptionMode.FIT, level), "", NoFitReason.NONE
        why = (
            f"insufficient unused quota for {pair.resource} in flavor {pair.flavor}, "
            f"{text(pair.resource, wanted - left)} more needed"
        )
        nominal = tree.subtree[column][queue]
        if nominal >= wanted or may_reclaim or self._can_preempt_while_borrowing():
            possibility, after = of._oracle(column, wanted)
            return (_POSSIBILITIES[possibility], after), why, NoFitReason.NONE
        return (PreemptionMode.NO_FIT, level), why, NoFitReason.WAITING_FOR_QUOTA

    def _can_preempt_while_borrowing(self) -> bool:
        rules = self._of._config.preemption
        fair = self._of._snapshot.settings.fair_sharing is not None
        # An unset policy, possible in memory only, is not Never here; it finds no candidate though.
        return rules.borrows or (fair and rules.reclaim_within_cohort is not Policy.NEVER)


def _try_next(worth: Worth, fungibility: FlavorFungibility) -> bool:
    mode, level = worth
    if mode in (PreemptionMode.NO_FIT, PreemptionMode.NO_CANDIDATES):
        return True
    go_on = Fungibility.TRY_NEXT_FLAVOR
    if mode is not PreemptionMode.FIT and fungibility.when_can_preempt is go_on:
        return True
    return level > 0 and fungibility.when_can_borrow is go_on


def _public(mode: PreemptionMode) -> Mode:
    return Mode.FIT if mode is PreemptionMode.FIT else Mode.PREEMPT
