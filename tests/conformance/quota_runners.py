"""Runs one case of the quota plane: what the engine makes of the input, and what is expected of it.

A runner returns two values that must be equal. Partial expectations (absent order, metrics of some
queues only) are cut out of both.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

from kubeworld.units.instants import parse_instant
from reprieve.engine.plan_faults import PlanFault
from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import (
    Assignment,
    PreemptionMode,
    is_preferred,
)
from reprieve.engine.quota.assigning.partial import reduced
from reprieve.engine.quota.cycle import (
    cycle,
)
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.holdings.amounts import clamp, text
from reprieve.engine.quota.holdings.holders import Holder, Kind, Row, effective_priority, row_of
from reprieve.engine.quota.holdings.shares import Share, Shares, share
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.holdings.tree import Tree, available
from reprieve.engine.quota.model import (
    Configuration,
    FlavorFungibility,
    FlavorResource,
    Fungibility,
    Policy,
    Preference,
    Reason,
    Workload,
)
from reprieve.engine.quota.proofs.proof import Fault, faults_of
from reprieve.engine.quota.proofs.proof_state import Preempting, Victim
from reprieve.engine.quota.room import reserved_amounts
from reprieve.engine.quota.taking_back import undo_admission
from reprieve.engine.quota.targets.candidates import (
    Preemptor,
    Target,
    order_holders,
    preemptor,
    satisfies,
)
from reprieve.engine.quota.targets.fair import Pending, TargetWalk
from reprieve.engine.quota.targets.preemption import Possibility, SearchOracle, find_targets
from reprieve.engine.quota.tournament import classical_order
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.quota.waiting.timing import queue_timestamp
from reprieve.wording.kueue import preemption_message
from tests.conformance import quota_objects as objects
from tests.conformance.quota_status import Statuses

Json = dict[str, Any]
Outcomes = tuple[Any, Any]


def world(case: Json) -> Holdings:
    holdings = Holdings(objects.configuration(case))
    for each in case.get("admitted") or ():
        holdings.hold(objects.workload(each))
    return holdings


def amounts(tree: Tree, values: dict[int, int]) -> list[Json]:
    rows = [(*tree.flavor_resources[column], value) for column, value in values.items()]
    return [{"flavor": f, "resource": r, "value": clamp(v)} for f, r, v in sorted(rows)]


def columns(tree: Tree, given: list[Json] | None) -> dict[int, int]:
    return {
        tree.column(FlavorResource(each["flavor"], each["resource"])): each["value"]
        for each in given or ()
    }


def use(snapshot: Snapshot, usage: dict[str, list[Json]] | None) -> None:
    for name, given in (usage or {}).items():
        queue = snapshot.tree.queues[name]
        snapshot.add_usage(queue, columns(snapshot.tree, given).items())


def run_targets(case: Json) -> Outcomes:
    holdings = world(case)
    snapshot = holdings.snapshot()
    tree = snapshot.tree
    workload = objects.workload(case["incoming"])
    queue = tree.queues[case["targetClusterQueue"]]
    who = preemptor(workload, queue, snapshot.settings)
    outcome: Json = {}
    expected: Json = {}
    expect = case["expect"]
    if "state" in expect:
        outcome["state"], expected["state"] = state(snapshot), expect["state"]
        assigned = Assigner(snapshot, workload, queue, SearchOracle(snapshot, who)).assign()
        outcome["assignment"], expected["assignment"] = brief(assigned), case["assignment"]
    if case["assignment"].get("representativeMode", "Preempt") == "Preempt":
        need = frozenset(
            tree.column(FlavorResource(choice["flavor"], resource))
            for pod_set in case["assignment"]["podSets"]
            for resource, choice in (pod_set.get("flavors") or {}).items()
            if choice["mode"] == "Preempt"
        )
        found = find_targets(snapshot, who, columns(tree, case["requests"]), need)
        targets = found.targets if found else ()
    else:
        targets = ()
    outcome["preempted"] = sorted(
        (
            {
                "name": t.holder.workload.name,
                "namespace": t.holder.workload.namespace,
                "clusterQueue": tree.names[t.holder.queue],
                "reason": str(t.reason),
            }
            for t in targets
        ),
        key=repr,
    )
    if targets:
        outcome["faults"] = [each.fault for each in proven(snapshot, holdings, who, case, targets)]
        # Who asks for nothing needs nobody gone; no nomination comes to that.
        expected["faults"] = [] if case["requests"] else [Fault.NOTHING_LACKS]
    expected["preempted"] = sorted(expect["preempted"], key=lambda e: repr(ordered(e)))
    if "targetsInOrder" in expect:
        outcome["order"] = [t.holder.key for t in targets]
        expected["order"] = expect["targetsInOrder"] or []
    if "changedWorkloads" in expect:
        statuses = Statuses(case["admitted"], case["now"])
        boosted = snapshot.settings.gates.priority_boost
        for target in targets:
            if not target.holder.evicted:
                statuses.preempt(tree, workload, queue, target, boosted)
        changed = [statuses.objects[t.holder.key] for t in targets if not t.holder.evicted]
        outcome["changed"] = by_key(changed)
        expected["changed"] = by_key(expect["changedWorkloads"] or [])
        outcome["events"] = sorted_events(statuses.events)
        expected["events"] = sorted_events(expect["events"])
    return outcome, expected


def proven(
    snapshot: Snapshot,
    holdings: Holdings,
    who: Preemptor,
    case: Json,
    targets: Sequence[Target],
) -> tuple[PlanFault, ...]:
    """Return what the proof has against the targets."""
    requests = columns(snapshot.tree, case["requests"])
    victims = tuple(Victim(target.holder, target.reason) for target in targets)
    now = parse_instant(case["now"])
    plan = Preempting(who.workload, who.queue, requests, victims, now)
    return faults_of(plan, snapshot, snapshot, holdings.holders)


def ordered(each: Json) -> Json:
    return {key: each[key] for key in ("name", "namespace", "clusterQueue", "reason")}


def sorted_events(events: list[Json] | None) -> list[Json]:
    return sorted(events or (), key=lambda e: (e["object"], e["reason"], e["message"]))


def by_key(workloads: list[Json]) -> Json:
    """Workloads by key, their conditions in one order, empty statuses left out."""
    found = {}
    for each in workloads:
        metadata = each.get("metadata") or {}
        full = copy.deepcopy({**each, "status": each.get("status") or {}})
        conditions = full["status"].get("conditions")
        if conditions:
            full["status"]["conditions"] = sorted(conditions, key=lambda c: str(c["type"]))
        found[f"{metadata.get('namespace') or ''}/{metadata.get('name')}"] = full
    return found


def state(snapshot: Snapshot) -> Json:
    tree, usage = snapshot.tree, snapshot.usage

    def used(node: int) -> list[Json]:
        return amounts(tree, {c: row[node] for c, row in enumerate(usage) if row[node]})

    queues, cohorts = {}, {}
    for name, node in tree.queues.items():
        found = share(tree, usage, node)
        path = tree.path[node]
        left = {c: max(0, available(tree, c, usage[c], path)) for c in tree.defined[node]}
        queues[name] = {
            "usage": used(node),
            "available": amounts(tree, left),
            "potentialAvailable": amounts(
                tree, {c: tree.potential[c][node] for c in tree.defined[node]}
            ),
            "borrowing": found.borrowing,
            "preciseWeightedShare": precise(found),
        }
    for name, node in tree.cohorts.items():
        found = share(tree, usage, node)
        cohorts[name] = {
            "usage": used(node),
            "subtreeQuota": amounts(tree, {c: tree.subtree[c][node] for c in tree.defined[node]}),
            "borrowing": found.borrowing,
            "preciseWeightedShare": precise(found),
        }
    return {"clusterQueues": queues, "cohorts": cohorts}


def precise(found: Share) -> str:
    """The share as Go prints a float64: the fewest digits that mean it."""
    if math.isinf(found.weighted):
        return "+Inf"
    return f"{Decimal(repr(found.weighted)):f}".removesuffix(".0")


def brief(found: Assignment) -> Json:
    return {
        "representativeMode": str(found.mode),
        "borrowing": found.level,
        "message": found.message,
        "noFitReason": str(found.no_fit_reason),
        "podSets": [
            {
                "name": each.name,
                "count": each.count,
                "flavors": {
                    resource: {"flavor": choice.flavor, "mode": str(choice.mode)}
                    for resource, choice in each.flavors.items()
                },
            }
            for each in found.pod_sets
        ],
    }


def run_flavors(case: Json) -> Outcomes:
    snapshot = world(case).snapshot()
    use(snapshot, case["usage"])
    tree = snapshot.tree
    table = {
        (each["flavor"], each["resource"]): (Possibility(each["possibility"]), each["borrowAfter"])
        for each in case["oracle"] or ()
    }

    def oracle(column: int, amount: int) -> tuple[Possibility, int]:
        return table.get(tree.flavor_resources[column], (Possibility.PREEMPT, 0))

    found = Assigner(
        snapshot,
        objects.workload(case["incoming"]),
        tree.queues[case["targetClusterQueue"]],
        oracle,
    ).assign()
    outcome = {
        **brief(found),
        "usage": amounts(tree, dict(found.usage)),
        "podSets": [
            {
                "name": each.name,
                "count": each.count,
                "requests": {name: text(name, value) for name, value in each.requests.items()},
                "flavors": {
                    resource: {
                        "flavor": choice.flavor,
                        "mode": str(choice.mode),
                        "triedFlavorIdx": choice.tried,
                        "borrow": choice.level,
                    }
                    for resource, choice in each.flavors.items()
                },
                "reasons": list(each.reasons),
                "error": "",
            }
            for each in found.pod_sets
        ],
    }
    return outcome, case["expect"]


class Scheduler:
    """Queues and holdings of a case, and the statuses that its cycles write."""

    def __init__(self, case: Json) -> None:
        self.case = case
        self.configuration: Configuration = objects.configuration(case)
        self.holdings = Holdings(self.configuration)
        self.queues = Queues(self.configuration)
        self.statuses = Statuses(case["workloads"], case["now"])
        self.now = parse_instant(case["now"])
        ranges = [o for o in case.get("objects") or () if o["kind"] == "LimitRange"]
        for each in case["workloads"]:
            workload = objects.workload(each, ranges)
            if workload.admission is not None and workload.reserved_at is not None:
                self.holdings.hold(workload)
            else:
                self.queues.push(workload)

    def cycle(self, number: int = 0) -> CycleResult:
        result = cycle(self.holdings, self.queues, self.now, number)
        for entry in result.entries:
            if entry.outcome is Outcome.ADMITTED and self.case.get("admissionError"):
                undo_admission(self.holdings, self.queues, entry)
                entry.outcome = Outcome.BLOCKED
            else:
                self.statuses.apply(entry, self.holdings.tree, self.configuration)
        return result

    def assignments(self) -> Json:
        found = {}
        for key, each in self.statuses.objects.items():
            admission = (each.get("status") or {}).get("admission")
            if admission:
                found[key] = admission
        return found

    def outcome(self, result: CycleResult) -> Json:
        tree = self.holdings.tree
        return {
            "admitted": sorted(each.workload.key for each in result.of(Outcome.ADMITTED)),
            "preempted": sorted(
                (
                    {
                        "name": target.holder.workload.name,
                        "namespace": target.holder.workload.namespace,
                        "clusterQueue": tree.names[target.holder.queue],
                        "reason": str(target.reason),
                    }
                    for entry in result.entries
                    for target in entry.issued
                ),
                key=repr,
            ),
            "left": {name: sorted(keys) for name, keys in self.queues.active().items()},
            "inadmissibleLeft": self.queues.inadmissible(),
            "events": sorted_events(self.statuses.events),
        }


def expectations(expect: Json) -> Json:
    """What is expected, lists in the order of outcomes."""
    found = dict(expect)
    for key in ("admitted",):
        if key in found:
            found[key] = sorted(found[key] or ())
    if "preempted" in found:
        found["preempted"] = sorted(map(ordered, found["preempted"] or ()), key=repr)
    for key in ("left", "inadmissibleLeft"):
        if key in found:
            found[key] = {name: sorted(keys) for name, keys in (found[key] or {}).items()}
    if "events" in found:
        found["events"] = sorted_events(found["events"])
    for key in ("workloads", "changedWorkloads"):
        if key in found:
            found[key] = by_key(found[key] or [])
    found.pop("eventsAsserted", None)
    return found


def run_cycle(case: Json) -> Outcomes:
    scheduler = Scheduler(case)
    before = by_key(case["workloads"])
    result = scheduler.cycle()
    outcome, expected = scheduler.outcome(result), expectations(case["expect"])
    after = by_key(list(scheduler.statuses.objects.values()))
    outcome["assignments"] = scheduler.assignments()
    outcome["newAssignments"] = {
        key: admission
        for key, admission in scheduler.assignments().items()
        if key in outcome["admitted"]
    }
    outcome["workloads"] = after
    outcome["changedWorkloads"] = {k: each for k, each in after.items() if each != before[k]}
    for key, counts in (
        ("skippedPreemptions", dict(result.skipped_preemptions)),
        ("preemptionTargetRecomputations", recomputations(result)),
    ):
        asserted = expected.pop(key, None)
        if asserted is not None:
            # Only some queues are asserted; what is not counted is zero.
            outcome[key] = {name: counts.get(name, 0) for name in asserted}
            expected[key] = asserted
    return {key: outcome[key] for key in expected}, expected


def recomputations(result: CycleResult) -> Json:
    found: Json = {}
    for (name, kind), count in result.recomputations.items():
        found.setdefault(name, {})[str(kind)] = count
    return found


def run_two_cycles(case: Json) -> Outcomes:
    scheduler = Scheduler(case)
    first = scheduler.cycle(1)
    outcome: Json = {"firstCycle": scheduler.outcome(first)}
    outcome["firstCycle"]["workloads"] = by_key(list(scheduler.statuses.objects.values()))
    expected = expectations(case["expect"])
    expected["firstCycle"] = expectations(expected["firstCycle"])
    outcome["firstCycle"] = {key: outcome["firstCycle"][key] for key in expected["firstCycle"]}
    for key in case["deleteAfterFirstCycle"] or ():
        scheduler.holdings.release(key)
        scheduler.queues.delete(key)
        del scheduler.statuses.objects[key]
    scheduler.queues.flush(scheduler.configuration.cluster_queues)
    scheduler.cycle(2)
    outcome["assignmentsAfterSecondCycle"] = scheduler.assignments()
    return outcome, expected


def run_available(case: Json) -> Outcomes:
    snapshot = world(case).snapshot()
    use(snapshot, case["usage"])
    tree = snapshot.tree
    outcome: Json = {"available": {}, "availableUnclamped": {}, "potentialAvailable": {}}
    for name, given in case["expect"]["available"].items():
        node = tree.queues[name]
        wanted = columns(tree, given)
        left = {c: available(tree, c, snapshot.usage[c], tree.path[node]) for c in wanted}
        outcome["available"][name] = amounts(tree, {c: max(0, v) for c, v in left.items()})
        outcome["availableUnclamped"][name] = amounts(tree, left)
        outcome["potentialAvailable"][name] = amounts(
            tree, {c: tree.potential[c][node] for c in wanted}
        )
    return outcome, case["expect"]


def run_share(case: Json) -> Outcomes:
    snapshot = world(case).snapshot()
    use(snapshot, case["usage"])
    tree = snapshot.tree
    extra = columns(tree, case["additionalRequests"])
    nodes = []
    for each in case["expect"]["nodes"]:
        index = tree.queues if each["node"] == "ClusterQueue" else tree.cohorts
        found = share(tree, snapshot.usage, index[each["name"]], extra)
        nodes.append(
            {
                "node": each["node"],
                "name": each["name"],
                "borrowing": found.borrowing,
                "dominantResource": found.resource,
                "fairWeight": found.weight,
                "preciseWeightedShare": precise(found),
                "unweightedRatio": found.ratio,
                "weightedShare": found.published,
            }
        )
    return {"nodes": nodes}, case["expect"]


def run_candidate_order(case: Json) -> Outcomes:
    settings = objects.settings(case)
    names: dict[str, int] = {case["preemptorClusterQueue"]: 0}
    now = parse_instant(case["now"])
    usage: dict[str, float] = {}
    rows: list[Row] = []
    for each in case["candidates"]:
        workload = objects.workload(each["workload"])
        if workload.reserved_at is None:
            workload = replace(workload, reserved_at=now)
        queue = names.setdefault(each["clusterQueue"], len(names))
        holder = Holder(
            workload,
            workload.key,
            queue,
            effective_priority(workload, settings),
            queue_timestamp(workload, settings),
            workload.evicted is not None,
            False,
            int(workload.reserved_at or 0),
            (),
            frozenset(),
            0,
            Kind(workload.namespace, each["clusterQueue"], 0),
        )
        rows.append(row_of(holder))
        if each.get("localQueueFSUsage") is not None:
            usage[workload.queue] = float(each["localQueueFSUsage"])
    fair = usage if case["admissionFairSharing"] else None

    def compare(left: Row, right: Row) -> int:
        return order_holders(left, right, 0, fair)

    rows.sort(key=cmp_to_key(compare))
    return {"order": [row[4].workload.name for row in rows]}, case["expect"]


def run_policy(case: Json) -> Outcomes:
    settings = objects.settings(case)
    who = preemptor(objects.workload(case["preemptor"]), 0, settings)
    candidate = objects.workload(case["candidate"])
    satisfied = satisfies(
        Policy(case["policy"]),
        who,
        effective_priority(candidate, settings),
        queue_timestamp(candidate, settings),
    )
    return {"satisfied": satisfied}, case["expect"]


def run_message(case: Json) -> Outcomes:
    reason = Reason(case["reason"]) if case["reason"] else None
    preemptor_object = objects.workload(case["preemptor"])
    message = preemption_message(
        preemptor_object, reason, case["preemptorPath"], case["preempteePath"]
    )
    return {"message": message}, case["expect"]


def run_target_walk(case: Json) -> Outcomes:
    snapshot = world(case).snapshot()
    tree = snapshot.tree
    by_queue: dict[int, list[Any]] = {}
    for each in case["admitted"] or ():
        workload = objects.workload(each)
        assert workload.admission is not None
        if workload.admission.cluster_queue not in (case["candidateClusterQueues"] or ()):
            continue
        queue = tree.queues[workload.admission.cluster_queue]
        rows = (r for lists in snapshot.lists[queue].values() for r in lists)
        by_queue.setdefault(queue, []).append(next(r for r in rows if r[3] == workload.key))
    pending = {queue: Pending(iter(rows)) for queue, rows in by_queue.items()}
    own = tree.queues[case["preemptorClusterQueue"]]
    walk = TargetWalk(tree, Shares(tree, snapshot.usage), own, pending)
    order: list[str] = []
    actions = case["actions"] or []
    while (found := walk.next()) is not None:
        position = len(order)
        order.append(tree.names[found])
        if position < len(actions) and actions[position] == "drop":
            walk.drop(found)
        else:
            pending[found].pop()
    return {"order": order}, {"order": case["expect"]["order"] or []}


def run_entry_order(case: Json) -> Outcomes:
    settings = objects.settings(case)

    class One:
        def __init__(self, given: Json) -> None:
            self.workload: Workload = objects.workload(given["workload"])
            self.queue, self.level = 0, given["borrows"]
            self.preempts = given["isPreemptor"]
            self.counted: dict[int, int] = {}

    entries = sorted(map(One, case["entries"]), key=lambda e: classical_order(e, settings))
    return {"order": [each.workload.name for each in entries]}, case["expect"]


def run_reserve(case: Json) -> Outcomes:
    snapshot = world(case).snapshot()
    (queue,) = snapshot.tree.queues.values()
    snapshot.add_usage(queue, columns(snapshot.tree, case["clusterQueueUsage"]).items())
    usage = columns(snapshot.tree, case["assignmentUsage"])
    kept = reserved_amounts(snapshot, queue, usage, case["borrowing"])
    if case["assignmentMode"] == "Fit":
        kept = usage
    return {"reserved": amounts(snapshot.tree, kept)}, case["expect"]


def run_preferred(case: Json) -> Outcomes:
    modes = {
        "noFit": PreemptionMode.NO_FIT,
        "noPreemptionCandidates": PreemptionMode.NO_CANDIDATES,
        "preempt": PreemptionMode.PREEMPT,
        "reclaim": PreemptionMode.RECLAIM,
        "fit": PreemptionMode.FIT,
    }
    a, b = ((modes[case[k]["preemptionMode"]], case[k]["borrowingLevel"]) for k in "ab")
    given = case["flavorFungibility"]
    fungibility = FlavorFungibility(
        Fungibility(given.get("whenCanBorrow", "MayStopSearch")),
        Fungibility(given.get("whenCanPreempt", "TryNextFlavor")),
        Preference(given["preference"]) if given.get("preference") else None,
    )
    return {"preferred": is_preferred(a, b, fungibility)}, case["expect"]


def run_reducer(case: Json) -> Outcomes:
    pod_sets = [
        objects.pod_set({"template": {}, "name": "", **each}) for each in case["podSets"] or ()
    ]
    found = reduced(
        pod_sets, lambda counts: sum(counts) if sum(counts) <= case["countLimit"] else None
    )
    return {"count": found or 0, "found": found is not None}, case["expect"]


RUNNERS: dict[str, Callable[[Json], Outcomes]] = {
    "available": run_available,
    "candidatesOrdering": run_candidate_order,
    "classical": run_targets,
    "drs": run_share,
    "entryOrdering": run_entry_order,
    "fair": run_targets,
    "fair-hierarchical": run_targets,
    "fairTargetOrdering": run_target_walk,
    "flavorassigner": run_flavors,
    "hierarchical": run_targets,
    "isPreferred": run_preferred,
    "podSetReducer": run_reducer,
    "preemptionMessage": run_message,
    "preemptionPolicy": run_policy,
    "resourcesToReserve": run_reserve,
    "scheduler": run_cycle,
    "schedulerGenerated": run_cycle,
    "schedulerTwoCycles": run_two_cycles,
}
