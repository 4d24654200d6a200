"""What protects the holders of the quota from preemption: found by changing it and searching again.

The first of these changes with which the search finds victims names the cause; those that the
owner of the workload can make come before those of the queue:

1. no workload is protected, and no loop is held: that ends by itself
2. the highest priority that there is
3. node selectors of its pods that keep them to other flavors than the queue chooses
4. preemption while borrowing, by its own priority or else by the highest
5. a policy that preempts in the queue, or in its cohort, or both, by its own priority or else by
   the highest
6. another order of the queue's flavors, or another scan of them, by its own priority or else by
   the highest

Where none of them does, what others hold is theirs to keep. Source: specification of the quota
plane, sections 3, 5.3 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from reprieve.engine.diagnosis.causes import CAUSE, Cause
from reprieve.engine.diagnosis.quota_flavors import other_choices, selections
from reprieve.engine.diagnosis.quota_trial import Trial, with_fewest_pods
from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import Assignment, Mode
from reprieve.engine.quota.assigning.topologies import search_of
from reprieve.engine.quota.holdings.amounts import text
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.tree import available
from reprieve.engine.quota.model import (
    BorrowWithinCohort,
    ClusterQueue,
    Policy,
    Preemption,
    Workload,
)
from reprieve.engine.quota.targets.candidates import Preemptor, Target, preemptor
from reprieve.engine.quota.targets.preemption import SearchOracle, find_targets
from reprieve.engine.quota.targets.protection import sparing
from reprieve.units.counts import of_resource

__all__ = ["flavors_cause", "holding_cause"]

_HIGHEST: Final = 2**31 - 1
_BORROWING: Final = BorrowWithinCohort(Policy.LOWER_PRIORITY)
_WITHIN: Final = "withinClusterQueue: LowerPriority"
_COHORT: Final = "reclaimWithinCohort: Any"


def holding_cause(trial: Trial, workload: Workload) -> dict[str, str]:
    """Return why holders stay, with what the sentence needs, by name."""
    return _Search(trial, workload).cause()


def flavors_cause(empty: Trial, workload: Workload) -> dict[str, str]:
    """Return the flavors with which a workload could have its quota, empty without any.

    Args:
        empty: the decision about it with no workload that holds quota; the queue's own choice.
        workload: the one that its queue gives flavors which can never suffice.
    """
    return _Search(empty, workload).flavors()


class _Search:
    """Changed decisions about one workload, each on a snapshot of its own."""

    def __init__(self, trial: Trial, workload: Workload) -> None:
        self._trial = trial
        snapshot = trial.snapshot
        workload = with_fewest_pods(workload, snapshot.settings)
        self._free = preemptor(workload, trial.queue, snapshot.settings)
        self._who = self._free if trial.spared is None else sparing(self._free, trial.spared)
        self._name = snapshot.tree.names[trial.queue]
        self._config = snapshot.configuration.cluster_queues[self._name]
        self._rules = self._config.preemption

    def cause(self) -> dict[str, str]:
        """Return the cause, with the values of its sentence."""
        if self._who is not self._free and self._victims(self._free, self._config):
            return {CAUSE: Cause.PROTECTION}
        found = self._victims(replace(self._who, priority=_HIGHEST), self._config)
        if found:
            return {CAUSE: Cause.PRIORITY, "above": _top(found)}
        for selected, workload in selections(self._trial.snapshot, self._config, self._who):
            above = self._above(self._config, workload)
            if above is not None:
                return {CAUSE: Cause.FLAVORS, "selected": selected, "above": above}
        open_rules = replace(self._rules, borrow_within_cohort=_BORROWING)
        above = self._above(replace(self._config, preemption=open_rules))
        if above is not None:
            return {CAUSE: Cause.BORROWING, "above": above, **self._borrowing(open_rules)}
        for setting, rules in self._wider():
            above = self._above(replace(self._config, preemption=rules))
            if above is not None:
                values = {"cluster_queue": self._name, "setting": setting, "above": above}
                return {CAUSE: Cause.POLICY, **values}
        for setting, queue in other_choices(self._config):
            above = self._above(queue)
            if above is not None:
                values = {"cluster_queue": self._name, "setting": setting, "above": above}
                return {CAUSE: Cause.FLAVORS, **values}
        return {CAUSE: Cause.NOT_RECLAIMABLE}

    def flavors(self) -> dict[str, str]:
        """Return which other flavors would do, with the values of the sentence."""
        known = {CAUSE: str(Cause.NEVER_WITH_FLAVORS)}
        for selected, workload in selections(self._trial.snapshot, self._config, self._who):
            if self._above(self._config, workload) == "":
                return {**known, "selected": selected}
        for setting, queue in other_choices(self._config):
            if self._above(queue) == "":
                return {**known, "cluster_queue": self._name, "setting": setting}
        return {}

    def _wider(self) -> Iterator[tuple[str, Preemption]]:
        """Yield settings that preempt more, with the policies that they make."""
        within = replace(self._rules, within_cluster_queue=Policy.LOWER_PRIORITY)
        cohort = replace(self._rules, reclaim_within_cohort=Policy.ANY)
        yield _WITHIN, within
        yield _COHORT, cohort
        yield f"{_WITHIN}, {_COHORT}", replace(within, reclaim_within_cohort=Policy.ANY)

    def _above(self, queue: ClusterQueue, workload: Workload | None = None) -> str | None:
        """Return above which priority a changed queue, or changed workload, gets its quota.

        Empty for its own, None if it does not.
        """
        who = self._who if workload is None else replace(self._who, workload=workload)
        if workload is None and queue == self._config:
            return None
        if self._assigned(who, queue)[2].mode is Mode.FIT or self._victims(who, queue):
            return ""
        found = self._victims(replace(who, priority=_HIGHEST), queue)
        return _top(found) if found else None

    def _victims(self, who: Preemptor, queue: ClusterQueue) -> tuple[Target, ...]:
        snapshot, oracle, assignment = self._assigned(who, queue)
        if assignment.mode is not Mode.PREEMPT:
            return ()
        configuration = snapshot.configuration
        places = search_of(assignment, who.workload, queue, configuration, snapshot.places)
        found = oracle.targets(assignment.usage, assignment.need, places)
        return () if found is None else found.targets

    def _assigned(
        self, who: Preemptor, queue: ClusterQueue
    ) -> tuple[Snapshot, SearchOracle, Assignment]:
        snapshot = self._trial.snapshot.without(())
        queues = {**snapshot.configuration.cluster_queues, self._name: queue}
        snapshot.settings = self._trial.snapshot.settings
        snapshot.configuration = replace(snapshot.configuration, cluster_queues=queues)
        oracle = SearchOracle(snapshot, who)
        return snapshot, oracle, Assigner(snapshot, who.workload, who.queue, oracle).assign()

    def _borrowing(self, open_rules: Preemption) -> dict[str, str]:
        """Return what it would borrow, which setting forbids it, and how much it need not borrow.

        The last only if it would get its quota with that.
        """
        who = replace(self._who, priority=_HIGHEST)
        changed = replace(self._config, preemption=open_rules)
        snapshot, _, assignment = self._assigned(who, changed)
        tree, queue = snapshot.tree, who.queue
        left = {
            column: max(0, tree.subtree[column][queue] - snapshot.usage[column][queue])
            for column in assignment.usage
        }
        beyond = {c: n - left[c] for c, n in assignment.usage.items() if n > left[c]}
        borrow = self._rules.borrow_within_cohort
        setting = "Never"
        if borrow is not None and self._rules.borrows:
            setting = f"{borrow.policy}, with maxPriorityThreshold {borrow.max_priority_threshold}"
        values = {
            "borrows": _listed(snapshot, beyond),
            "cluster_queue": self._name,
            "setting": setting,
        }
        own = {column: min(amount, left[column]) for column, amount in assignment.usage.items()}
        if self._is_enough(own):
            values["own"] = _listed(snapshot, {column: own[column] for column in beyond})
        return values

    def _is_enough(self, amounts: Mapping[int, int]) -> bool:
        """Return whether it would get these amounts, if it requested no more."""
        snapshot, tree = self._trial.snapshot, self._trial.snapshot.tree
        path = tree.path[self._trial.queue]
        need = frozenset(
            column
            for column, amount in amounts.items()
            if amount > max(0, available(tree, column, snapshot.usage[column], path))
        )
        return all(amounts.values()) and (
            not need or find_targets(snapshot, self._who, amounts, need) is not None
        )


def _listed(snapshot: Snapshot, amounts: Mapping[int, int]) -> str:
    pairs = snapshot.tree.flavor_resources
    return ", ".join(
        of_resource(text(pairs[column].resource, amount), pairs[column].resource)
        for column, amount in sorted(amounts.items())
    )


def _top(targets: tuple[Target, ...]) -> str:
    return str(max(each.holder.priority for each in targets))
