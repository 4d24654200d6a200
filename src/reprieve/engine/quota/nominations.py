"""Nomination: whether a head may be considered, its flavors, and who would be preempted for it.

A head gets the full assignment, or a reduced one where only that helps. One whose targets were
designated by another head of the cycle is looked at again as if those were evicted (`again`).
Source: specification of the quota plane, sections 5, 8.2 and 8.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from kubeworld.units.instants import Nanos
from reprieve.engine.pace import Pace
from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import Assignment, Mode, NoFitReason
from reprieve.engine.quota.assigning.partial import reduced, reduction_steps
from reprieve.engine.quota.assigning.topologies import (
    asked_places,
    asks_for_places,
    planned_without,
    search_of,
)
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Entry, Recomputation, Unready
from reprieve.engine.quota.heads import LastScan, RequeueReason
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.kept_places import as_planned, planned_flavors
from reprieve.engine.quota.made_places import Beside, Made
from reprieve.engine.quota.model import Check, Fungibility, PodSet, Workload
from reprieve.engine.quota.nominated import Nominated
from reprieve.engine.quota.refusals import Refusals
from reprieve.engine.quota.targets.by_domain import targets_by_domain
from reprieve.engine.quota.targets.candidates import Preemptor, Target, preemptor
from reprieve.engine.quota.targets.permitted import boards_of
from reprieve.engine.quota.targets.preemption import SearchOracle, nobody
from reprieve.engine.quota.targets.protection import Causes, protected, sparing
from reprieve.engine.quota.waiting.queues import Queues

__all__ = ["Nominations"]


class Nominations:
    """Nominates heads on one snapshot, which the cycle continues to change."""

    def __init__(
        self,
        snapshot: Snapshot,
        holdings: Holdings,
        queues: Queues,
        now: Nanos,
        number: int,
        ledger: Displacements | None,
        pace: Pace,
        refusals: Refusals | None = None,
        nominated: Nominated | None = None,
    ) -> None:
        self.pace = pace
        self.refusals = refusals
        self.nominated = nominated
        self.snapshot = snapshot
        self.holdings = holdings
        self.queues = queues
        self.now = now
        self.number = number
        self.ledger = ledger
        self.causes = Causes(snapshot)
        self.settings = snapshot.settings
        # On what victims were looked for where that was not the snapshot of the nomination.
        self.searched: dict[str, Snapshot] = {}

    def admit(self, entry: Entry) -> bool:
        """Nominate a head; return False, with the reason in the entry, if it may not be."""
        if not self._is_admissible(entry):
            return False
        entry.queue = self.snapshot.tree.queues[entry.cluster_queue]
        self._assign(entry)
        return True

    def again(self, entry: Entry, without: Snapshot, deferred: bool = True) -> Recomputation:
        """Nominate flavors again, as if everything designated were evicted.

        `deferred`: what fits then fits only once these are evicted.
        """
        assert entry.assignment is not None
        who = self.preemptor(entry)
        # A group is queried by its first pod set, also for what only another of it requests.
        first = _first_of_groups(entry.workload.pod_sets)
        chosen = {
            (first[each.name], resource): choice.flavor
            for each in entry.assignment.pod_sets
            for resource, choice in each.flavors.items()
        }
        oracle = SearchOracle(without, who, self.pace)
        assigner = Assigner(
            without,
            entry.workload,
            entry.queue,
            oracle,
            None,
            lambda name, resource: chosen.get((name, resource)),
        )
        found, entry.targets, _ = self._whole_or_reduced(entry.workload, assigner, oracle)
        entry.assignment = found
        self.searched[entry.workload.key] = without
        entry.deferred = deferred and found.mode is Mode.FIT
        self._note_scan(entry)
        if entry.deferred:
            return Recomputation.DEFERRED_FIT
        return Recomputation.NEW_TARGETS if entry.targets else Recomputation.SKIPPED

    def beside(self, entry: Entry, gone: Made, cheapest: bool) -> Beside | None:
        """Return what the rules of its queue give an entry without pods that hold no places.

        None where they give nothing. `cheapest`: the victims are those that cost least.
        """
        left = self.snapshot.without(())
        left.free(gone)
        who, workload = self.preemptor(entry), entry.workload
        oracle = SearchOracle(left, who, self.pace)
        found, targets = _attempt(Assigner(left, workload, entry.queue, oracle), oracle, None)
        config, configuration = (
            left.configuration.cluster_queues[entry.cluster_queue],
            left.configuration,
        )
        asked = asked_places(found, workload, config, configuration, left.places)
        if not targets or asked is None:
            return None
        need = found.usage, found.need
        if cheapest and any(not each.holder.evicted for each in targets):
            other = targets_by_domain(left, who, *need, asked.wanted, targets, self.now)
            if other.targets != targets:
                targets = other.targets
                found = planned_without(found, workload, config, left, targets)
        payers = {each.holder.queue for each in targets}
        boards = boards_of(left, who, *need, payers)
        able = {each.holder.key: each.holder for board in boards for each in board.candidates}
        return Beside(left, found, targets, tuple(able.values()))

    def elsewhere(
        self, entry: Entry, on: Snapshot | None = None
    ) -> Iterator[tuple[str, Assignment]]:
        """Yield how an entry that fits would fit as a whole in each single flavor, in their order.

        For resources in groups of several flavors; what stands in other groups is as it was. `on`:
        another snapshot than that of the cycle.
        """
        assert entry.assignment is not None
        queue = self.snapshot.configuration.cluster_queues[entry.cluster_queue]
        chosen = {each.name: each for each in entry.assignment.pod_sets}
        counts = [chosen[each.name].count for each in entry.workload.pod_sets]
        used = {(r, c.flavor) for each in chosen.values() for r, c in each.flavors.items()}
        for group in queue.groups:
            own = {resource for resource, _ in used if resource in group.covered}
            for flavor in (each.flavor for each in group.flavors) if own else ():
                if {(resource, flavor) for resource in own} <= used and len(own) == len(
                    {pair for pair in used if pair[0] in own}
                ):
                    continue  # it is in this one

                def only(
                    name: str,
                    resource: str,
                    flavor: str = flavor,
                    covered: Collection[str] = group.covered,
                ) -> str | None:
                    if resource in covered:
                        return flavor
                    choice = chosen[name].flavors.get(resource)
                    return None if choice is None else choice.flavor

                where = self.snapshot if on is None else on
                assigner = Assigner(where, entry.workload, entry.queue, nobody, None, only)
                found = assigner.assign(counts)
                if found.mode is Mode.FIT:
                    yield flavor, found

    def _is_admissible(self, entry: Entry) -> bool:
        workload, configuration = entry.workload, self.snapshot.configuration
        queue = configuration.cluster_queues.get(entry.cluster_queue)
        entry.reason = Unready.MISCONFIGURED
        if any(state in (Check.RETRY, Check.REJECTED) for state in workload.checks.values()):
            entry.reason = Unready.PENDING_EVALUATION
            entry.message = "The workload has failed admission checks"
        elif entry.cluster_queue in self.snapshot.tree.inactive:
            entry.message = f"ClusterQueue {entry.cluster_queue} is inactive"
        elif queue is None:
            entry.message = f"ClusterQueue {entry.cluster_queue} not found"
        elif queue.selector is None or not queue.selector.matches(
            configuration.namespaces.get(workload.namespace, {})
        ):
            entry.message = "workload namespace doesn't match ClusterQueue selector"
            entry.requeue = RequeueReason.NAMESPACE_MISMATCH
        elif workload.invalid:
            entry.message = workload.invalid
        else:
            entry.reason = ""
            return True
        return False

    def _assign(self, entry: Entry) -> None:
        """Nominate: the full assignment, or a reduced one where only that helps."""
        workload = entry.workload
        who = self.preemptor(entry)
        last = self._last_scan(workload, entry.cluster_queue)
        entry.resumed = last.bookmark if last else None
        if self._is_refused_again(entry, who):
            return
        known = self.nominated if not self._asks_for_places(entry) else None
        if known is not None and known.again(self.snapshot, entry):
            self._note_scan(entry)
            return
        if self._fits_again(entry):
            return
        snapshot, only = self.snapshot, None
        entry.replaced = self.holdings.holders.get(workload.replaces)
        if entry.replaced is not None:
            # A larger slice replaces the smaller one, on the same flavors.
            snapshot, only = snapshot.without((entry.replaced,)), _flavors_of(entry.replaced)
            self.searched[workload.key] = snapshot
        oracle = SearchOracle(snapshot, who, self.pace)
        assigner = Assigner(
            snapshot,
            workload,
            entry.queue,
            oracle,
            entry.resumed,
            only,
            entry.replaced is not None,
        )
        kept = self._on_planned_flavors(entry, oracle)
        found, entry.targets, full = kept or self._whole_or_reduced(workload, assigner, oracle)
        entry.assignment = found
        other = self.with_room_elsewhere(entry)
        if other is not None:
            entry.assignment = found = full = other
            entry.targets = ()
        if self.settings.best:
            entry.assignment = as_planned(entry, entry.planned, snapshot) or entry.assignment
            full = entry.assignment if full is found else full
            found = entry.assignment
        if full.mode is Mode.NO_FIT and entry.resumed:
            # It would state the last flavors alone, and pod sets that fit others.
            whole = Assigner(snapshot, workload, entry.queue, nobody, None, only, bool(only))
            entry.whole = whole.assign()
        good = found is not full or full.mode is Mode.FIT or bool(entry.targets)
        plain = entry.spared is None and not workload.replaces and not self._asks_for_places(entry)
        if not good and self.refusals and plain:
            shape = self.queues.shape_of(workload)
            self.refusals.record(self.holdings, who, shape, full)
        if self.nominated is not None:
            if not self._asks_for_places(entry):
                self.nominated.record(self.snapshot, entry)
            if full.mode is Mode.FIT and not self._asks_for_places(entry):
                shape = self.queues.shape_of(workload)
                self.nominated.fitting.record(self.snapshot, entry, shape, full)
        self._note_scan(entry)

    def _on_planned_flavors(
        self, entry: Entry, oracle: SearchOracle
    ) -> tuple[Assignment, tuple[Target, ...], Assignment] | None:
        """Return what an entry gets on the flavors that its victims were evicted for.

        None where there is no such plan, or it needs other victims now. Quota that has become
        free in another flavor meanwhile is no reason to leave the nodes that are being freed.
        """
        places, queue = self.snapshot.places, self.snapshot.configuration.cluster_queues
        if places is None or not (self.settings.best and entry.planned) or entry.replaced:
            return None
        rest = entry.workload, entry.queue, oracle, None
        counts = [
            min(each.count, entry.planned[each.name].pods)
            if each.name in entry.planned
            else each.count
            for each in entry.workload.pod_sets
        ]
        for flavors in planned_flavors(entry.planned, queue[entry.cluster_queue], places):
            only = partial(_one_of, flavors)
            found, targets = _attempt(Assigner(self.snapshot, *rest, only), oracle, counts)
            leaving = bool(targets) and all(each.holder.evicted for each in targets)
            if found.mode is Mode.FIT or (found.mode is Mode.PREEMPT and leaving):
                return found, targets, found
        return None

    def _whole_or_reduced(
        self, workload: Workload, assigner: Assigner, oracle: SearchOracle
    ) -> tuple[Assignment, tuple[Target, ...], Assignment]:
        """Return the full assignment, or a reduced one where only that helps; and the full one."""
        full, targets = _attempt(assigner, oracle, None)
        if _is_good(full, targets) or not self.settings.gates.partial_admission:
            return full, targets, full
        if not reduction_steps(workload.pod_sets):
            return full, targets, full

        def probe(counts: Sequence[int]) -> tuple[Assignment, tuple[Target, ...]] | None:
            found, targets = _attempt(assigner, oracle, counts)
            return (found, targets) if _is_good(found, targets) else None

        smaller = reduced(workload.pod_sets, probe)
        return (full, targets, full) if smaller is None else (*smaller, full)

    def _asks_for_places(self, entry: Entry) -> bool:
        """Return whether nodes decide, too, which others use: nothing of it is as it was before."""
        if self.snapshot.places is None:
            return False
        configuration = self.snapshot.configuration
        queue = configuration.cluster_queues[entry.cluster_queue]
        return asks_for_places(entry.workload, queue, configuration)

    def with_room_elsewhere(self, entry: Entry, on: Snapshot | None = None) -> Assignment | None:
        """Return the first flavor whose nodes fit it, of one that was chosen by quota alone.

        Kueue looks at nodes only once a flavor is chosen, and preempts, or waits for ever, though
        the next one has capacity. Only with profile `best`, and where the queue continues to the
        next flavor rather than preempt. Source: specification of topology-aware scheduling, section
        9.
        """
        assignment = entry.assignment
        if not self.settings.best or assignment is None or entry.replaced is not None:
            return None
        without = NoFitReason.TOPOLOGY_PLACEMENT_FAILED
        if not assignment.lacks_places and assignment.no_fit_reason is not without:
            return None
        queue = self.snapshot.configuration.cluster_queues[entry.cluster_queue]
        if queue.fungibility.when_can_preempt is not Fungibility.TRY_NEXT_FLAVOR:
            return None
        return next((found for _, found in self.elsewhere(entry, on)), None)

    def _fits_again(self, entry: Entry) -> bool:
        """Give the entry what others of its shape got, if it fits as they did."""
        if self.nominated is None or self._asks_for_places(entry):
            return False
        shape = self.queues.shape_of(entry.workload)
        known = self.nominated.fitting.again(self.snapshot, entry, shape)
        if known is None:
            return False
        entry.assignment, entry.targets = known, ()
        self._note_scan(entry)
        return True

    def _is_refused_again(self, entry: Entry, who: Preemptor) -> bool:
        """Give the entry the assignment that it would come to, if that is known."""
        if self.refusals is None or entry.spared is not None or entry.workload.replaces:
            return False
        if self._asks_for_places(entry):
            return False
        shape = self.queues.shape_of(entry.workload)
        known = self.refusals.again(self.holdings, who, shape)
        if known is None:
            return False
        entry.assignment, entry.targets = known.assignment, ()
        self._note_scan(entry)
        return True

    def preemptor(self, entry: Entry) -> Preemptor:
        """Return an entry as one that preempts, with whom it spares."""
        who = preemptor(entry.workload, entry.queue, self.settings)
        entry.spared = protected(who, self.now, self.holdings.protects, self.ledger, self.causes)
        return who if entry.spared is None else sparing(who, entry.spared)

    def _last_scan(self, workload: Workload, cluster_queue: str) -> LastScan | None:
        last = self.queues.last_scan(workload.key)
        if last is None or last.generation >= self.holdings.generations[cluster_queue]:
            return last
        keep = self.settings.gates.flavor_fungibility_preserve_scan_progress
        recent = last.cycle >= self.number - 1
        return last if keep and recent and last.shape == self.queues.shape_of(workload) else None

    def _note_scan(self, entry: Entry) -> None:
        assert entry.assignment is not None
        entry.scan = LastScan(
            entry.assignment.bookmark,
            entry.assignment.has_pending_flavors,
            self.holdings.generations[entry.cluster_queue],
            self.number,
            self.queues.shape_of(entry.workload),
        )


def _attempt(
    assigner: Assigner, oracle: SearchOracle, counts: Sequence[int] | None
) -> tuple[Assignment, tuple[Target, ...]]:
    """Return the assignment, and who is preempted for it.

    One that needs preemption has the places that it gets with its targets evicted; without targets
    those that it would get if no topology had placed anything.
    """
    found = assigner.assign(counts)
    if found.mode is not Mode.PREEMPT:
        return found, ()
    snapshot = assigner.snapshot
    rest = assigner.workload, assigner.config, snapshot.configuration
    asked = search_of(found, *rest, snapshot.places)
    search = oracle.targets(found.usage, found.need, asked)
    targets = search.targets if search else ()
    if asked is not None:
        found = planned_without(found, assigner.workload, assigner.config, snapshot, targets)
    return found, targets


def _one_of(flavors: Mapping[tuple[str, str], str], name: str, resource: str) -> str | None:
    return flavors.get((name, resource))


def _is_good(found: Assignment, targets: Sequence[Target]) -> bool:
    return found.mode is Mode.FIT or (found.mode is Mode.PREEMPT and bool(targets))


def _first_of_groups(pod_sets: Sequence[PodSet]) -> dict[str, str]:
    """Return by pod set the name of the first one that gets its flavors together with it."""
    groups: dict[str, str] = {}
    return {
        each.name: groups.setdefault(each.group, each.name) if each.group else each.name
        for each in pod_sets
    }


def _flavors_of(holder: Holder) -> Callable[[str, str], str | None]:
    assert holder.workload.admission is not None
    flavors = {
        (pod_set.name, resource): flavor
        for pod_set in holder.workload.admission.pod_sets
        for resource, flavor in pod_set.flavors.items()
    }
    return lambda name, resource: flavors.get((name, resource))
