"""Flavor assignment: which flavor each pod set gets, and whether that needs preemption.

Pod sets are assigned in order; for every resource that has no flavor yet the group that covers it
is scanned from where the last scan stopped. The mode of a flavor is the worst over the resources of
the group, by `is_preferred`; fungibility states whether the scan continues after a flavor that
would do.

Source: specification of the quota plane, sections 5.1, 5.2 and 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from reprieve.engine.quota.assigning.assignment import (
    ANSWERS,
    POSSIBILITIES,
    SEVERITY,
    Assignment,
    Bookmark,
    Choice,
    Considered,
    Mode,
    NoFitReason,
    PodSetAssignment,
    PreemptionMode,
    Worth,
    is_preferred,
)
from reprieve.engine.quota.assigning.flavors import mismatch
from reprieve.engine.quota.assigning.requests import PodSetRequest, pod_set_requests
from reprieve.engine.quota.assigning.topologies import is_tas_only, topology_mismatch, with_places
from reprieve.engine.quota.holdings.amounts import capacity_text, plus, text
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import available, borrowing_level
from reprieve.engine.quota.model import (
    ClusterQueue,
    FlavorFungibility,
    FlavorResource,
    Fungibility,
    PodSet,
    Policy,
    ResourceFlavor,
    ResourceGroup,
    Workload,
)
from reprieve.engine.quota.targets.preemption import Oracle

__all__ = ["Assigner", "in_order"]


def in_order(resources: Iterable[str]) -> list[str]:
    """Return resources in the order in which flavors are looked for: by name.

    Where several have none, the first of them is the one that the message names. The reference
    iterates over a map, so that there it is any of them.
    """
    return sorted(resources)


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
        replaces: bool = False,
    ) -> None:
        """Prepare it.

        Args:
            snapshot: the state; not changed.
            workload: the one that requests quota.
            queue: index of its ClusterQueue.
            oracle: answers what preemption could do.
            bookmark: where the scans start; None from the first flavor.
            only: by pod set and resource, the one flavor to look at, or None for all.
            replaces: whether `only` are the flavors of the slice that the workload replaces.
        """
        self.snapshot = snapshot
        self.tree = snapshot.tree
        self.workload = workload
        self.queue = queue
        self.config: ClusterQueue = snapshot.configuration.cluster_queues[
            snapshot.tree.names[queue]
        ]
        self.oracle = oracle
        self.bookmark = bookmark or {}
        self.only = only
        self.replaces = replaces

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Return the assignment, with the pod sets' counts lowered to `counts` where given."""
        requests = pod_set_requests(self.workload, self.snapshot.settings, counts)
        if self.config.group_of("pods") is not None:
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
                    column = self.tree.column(FlavorResource(choice.flavor, resource))
                    usage[column] = plus(usage.get(column, 0), each.amounts[resource])
                    if choice.mode is Mode.PREEMPT:
                        need.add(column)
            if flavors is None:
                return Assignment(tuple(done), usage, frozenset(need), scan.no_fit_reason())
        found = Assignment(tuple(done), usage, frozenset(need))
        places, configuration = self.snapshot.places, self.snapshot.configuration
        if places is None:
            return found
        return with_places(found, self.workload, self.config, configuration, places, self.tree)


class _Scan:
    """The scans of all groups that one pod set, or pod sets of one group, need."""

    def __init__(self, assigner: Assigner, usage: Mapping[int, int]) -> None:
        self.of = assigner
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
        config, settings = self.of.config, self.of.snapshot.settings
        for resource in in_order(requests):
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
        if not self.of.snapshot.settings.gates.unadmitted_workloads_observability:
            return NoFitReason.NONE
        least: dict[int, NoFitReason] = {}
        for each in self.considered.values():
            if not each.no_fit:
                continue
            for position, group in enumerate(self.of.config.groups):
                if any(flavor.flavor == each.flavor for flavor in group.flavors):
                    known = least.get(position, each.no_fit_reason)
                    least[position] = min(known, each.no_fit_reason, key=SEVERITY.__getitem__)
        reasons = [*least.values()]
        if self._unavailable or not self.considered:
            reasons.append(NoFitReason.NO_MATCHING_FLAVOR)
        return max(reasons, key=SEVERITY.__getitem__, default=NoFitReason.NONE)

    def _consider(self, new: Considered) -> None:
        """Note a flavor; one that several groups have is noted once, at its worst."""
        old = self.considered.get(new.flavor)
        if old is not None:
            answers = [each for each in (old.possibility, new.possibility) if each is not None]
            new = Considered(
                new.flavor,
                old.fits and new.fits,
                old.no_fit or new.no_fit,
                min(answers, key=POSSIBILITIES.__getitem__, default=None),
                max(old.level, new.level),
                tuple(sorted({*old.reasons, *new.reasons})),
                max(old.no_fit_reason, new.no_fit_reason, key=SEVERITY.__getitem__),
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
        fungibility = self.of.config.fungibility
        scanning = self.of.snapshot.settings.gates.flavor_fungibility
        name = pod_sets[0].pod_set.name
        start = self.of.bookmark.get(name, {}).get(resource, -1) + 1 if scanning else 0
        only = self.of.only(name, resource) if self.of.only else None
        reasons: list[str] = []
        best: dict[str, tuple[str, Worth]] = {}
        best_worth: Worth = (PreemptionMode.NO_FIT, 0)
        attempted = -1
        for position in range(start, len(group.flavors)):
            attempted = position
            flavor = group.flavors[position].flavor
            if only is not None and flavor != only:
                reasons.append(self._passed_over(flavor, only, resource))
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

    def _passed_over(self, flavor: str, only: str, resource: str) -> str:
        if not self.of.replaces:
            return (
                f"skipping flavor {flavor} as it is not found in the nomination mapping for "
                f"resource {resource}"
            )
        why = f"could not assign {flavor} flavor since the original workload is assigned: {only}"
        never = NoFitReason.NO_MATCHING_FLAVOR
        self._consider(Considered(flavor, False, True, None, 0, (why,), never))
        return why

    def _flavor(
        self, flavor: str, pod_sets: Sequence[PodSetRequest], covered: Mapping[str, int]
    ) -> tuple[Worth, dict[str, tuple[str, Worth]], list[str]]:
        """Return what one flavor needs, worst and by resource, and what is against it."""
        known = self.of.snapshot.configuration.flavors.get(flavor)
        whys = (self._mismatch(known, each.pod_set, covered) for each in pod_sets) if known else ()
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
            if is_preferred(worst, worth, self.of.config.fungibility):
                worst = worth
            severest = max(severest, severity, key=SEVERITY.__getitem__)
            highest = max(highest, worth[1])
            choices[resource] = (flavor, worth)
        mode = worst[0]
        self._consider(
            Considered(
                flavor,
                mode is PreemptionMode.FIT,
                mode is PreemptionMode.NO_FIT,
                ANSWERS.get(mode),
                highest,
                tuple(sorted(reasons)),
                severest,
            )
        )
        return worst, choices, reasons

    def _mismatch(self, flavor: ResourceFlavor, pod_set: PodSet, covered: Iterable[str]) -> str:
        of, configuration = self.of, self.of.snapshot.configuration
        if of.snapshot.settings.gates.topology_aware_scheduling:
            why = topology_mismatch(
                flavor,
                pod_set,
                configuration.topologies,
                of.snapshot.places,
                is_tas_only(of.config, configuration),
                covered,
            )
            if why:
                return why
        return mismatch(flavor, pod_set)

    def _quota(self, pair: FlavorResource, amount: int) -> tuple[Worth, str, NoFitReason]:
        """Return what `amount` more of one flavor-resource needs."""
        of, tree, queue = self.of, self.of.tree, self.of.queue
        column = tree.column(pair)
        of.snapshot.add_usage(queue, ((column, 0),))
        usage = of.snapshot.usage[column]
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
            possibility, after = of.oracle(column, wanted)
            return (POSSIBILITIES[possibility], after), why, NoFitReason.NONE
        return (PreemptionMode.NO_FIT, level), why, NoFitReason.WAITING_FOR_QUOTA

    def _can_preempt_while_borrowing(self) -> bool:
        rules = self.of.config.preemption
        fair = self.of.snapshot.settings.fair_sharing is not None
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
