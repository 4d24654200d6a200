"""What no run of cycles may ever do, judged by flows and by the plain search.

The cycles go on while evicted workloads stop and others end, so that states come up that nobody
has thought of; all of them are judged from the objects alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycle, cycles
from reprieve.engine.quota.entries import CycleResult, Entry, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Reason, Workload
from reprieve.engine.quota.waiting.queues import Queues
from tests.oracle import quota as oracle
from tests.oracle.quota_flows import Flows
from tests.quota.cases import NOW, SECOND, Scene, Size, plain, scene
from tests.quota.test_cycle import start, summary
from tests.quota.test_targets import found

SIZE = Size(admitted=12, pending=14)
ROUNDS = 4
Pair = tuple[str, str]
Usage = dict[str, dict[Pair, int]]


def used(holdings: Holdings) -> Usage:
    """Return what is used by ClusterQueue, from the workloads alone."""
    found: Usage = {}
    for holder in holdings.holders.values():
        count(found, *held_by(holder.workload))
    return found


def held_by(workload: Workload) -> tuple[str, dict[Pair, int]]:
    assert workload.admission is not None
    amounts: dict[Pair, int] = {}
    for pod_set in workload.admission.pod_sets:
        for resource, flavor in pod_set.flavors.items():
            pair = (flavor, resource)
            amounts[pair] = amounts.get(pair, 0) + pod_set.usage.get(resource, 0)
    return workload.admission.cluster_queue, amounts


def count(usage: Usage, queue: str, amounts: Mapping[Pair, int], sign: int = 1) -> None:
    mine = usage.setdefault(queue, {})
    for pair, amount in amounts.items():
        mine[pair] = mine.get(pair, 0) + sign * amount


def requested(entry: Entry, holdings: Holdings) -> dict[Pair, int]:
    assert entry.assignment is not None
    pairs = holdings.tree.flavor_resources
    usage = entry.assignment.usage
    return {(pairs[c].flavor, pairs[c].resource): amount for c, amount in usage.items()}


def stop(holdings: Holdings, queues: Queues, random: Random, now: Nanos) -> None:
    """Let some evicted workloads stop and be queued again, and some others end."""
    for key, holder in sorted(holdings.holders.items()):
        if random.random() < (0.6 if holder.evicted else 0.1):
            name = holdings.tree.names[holder.queue]
            holdings.release(key)
            queues.flush(holdings.related(name))
            if holder.evicted:
                queues.push(
                    replace(holder.workload, admission=None, reserved_at=None, evicted=None)
                )


def test_nothing_is_admitted_beyond_what_flows_and_what_fits_is_not_refused() -> None:
    random = Random(61)
    seen: Counter[str] = Counter()
    for number in range(400):
        case = scene(random, size=SIZE)
        flows = Flows(plain(case))
        holdings, queues = start(case)
        for index in range(ROUNDS):
            now = Nanos(NOW + index * SECOND)
            before = used(holdings)
            result = cycle(holdings, queues, now, index)
            if index == 0:
                judge_refusals(result, holdings, flows, before, number, seen)
            judge_admissions(result, holdings, flows, before, number, seen)
            stop(holdings, queues, random, now)
    wanted = ("admitted", "borrowing", "held back", "refused", "never")
    assert min(seen[each] for each in wanted) >= 50, seen


def judge_admissions(
    result: CycleResult,
    holdings: Holdings,
    flows: Flows,
    usage: Usage,
    number: int,
    seen: Counter[str],
) -> None:
    """Judge each admission by what is held at its turn, victims of this cycle taken as gone.

    The reference gives their room away before they have stopped; who comes early is counted.
    """
    real = {name: dict(held) for name, held in usage.items()}
    designated: set[str] = set()
    for entry in result.entries:
        name = entry.cluster_queue
        if entry.outcome is Outcome.PREEMPTING:
            for target in entry.targets:
                if target.holder.key not in designated:
                    designated.add(target.holder.key)
                    count(usage, *held_by(target.holder.workload), -1)
            count(usage, name, requested(entry, holdings))
        if entry.outcome is not Outcome.ADMITTED:
            continue
        wanted = requested(entry, holdings)
        assert flows.allows(name, wanted, usage), (number, entry.workload.key)
        early = not flows.allows(name, wanted, real)
        assert designated or not early, (number, entry.workload.key)
        for each in (usage, real):
            count(each, name, wanted)
        states = [each for pair in wanted for each in flows.state(name, pair, usage)]
        seen["admitted"] += 1
        seen["early"] += early
        seen["borrowing"] += any(each.left < 0 for each in states)
        seen["held back"] += any(each.held_back > 0 for each in states)


def judge_refusals(
    result: CycleResult,
    holdings: Holdings,
    flows: Flows,
    usage: Usage,
    number: int,
    seen: Counter[str],
) -> None:
    """Nobody is refused who fits on a flavor of his queue, or told `never` when he could."""
    configuration = holdings.configuration
    for entry in result.of(Outcome.NO_FIT):
        (group,) = configuration.cluster_queues[entry.cluster_queue].groups or (None,)
        if group is None:
            continue
        asked = dict(entry.workload.pod_sets[0].requests)
        for quotas in group.flavors:
            wanted = {(quotas.flavor, name): amount for name, amount in asked.items()}
            assert not flows.allows(entry.cluster_queue, wanted, usage), (number, entry.workload)
            if entry.reason == "ExceedsMaxQuota":
                assert not flows.allows(entry.cluster_queue, wanted, {}), (number, entry.workload)
        seen["refused"] += 1
        seen["never"] += entry.reason == "ExceedsMaxQuota"


def test_targets_of_cycles_are_those_of_the_plain_search_with_their_inequality() -> None:
    random = Random(62)
    seen: Counter[str] = Counter()
    for number in range(450):
        case = scene(random, size=SIZE)
        holdings, queues = start(case)
        for index in range(ROUNDS):
            now = Nanos(NOW + index * SECOND)
            held = [holder.workload for holder in holdings.holders.values()]
            result = cycle(holdings, queues, now, index)
            for entry in result.of(Outcome.PREEMPTING):
                if result.recomputations:
                    continue  # looked at again after others were designated
                judge_targets(entry, case, holdings, held, number, seen)
            stop(holdings, queues, random, now)
    reasons = (Reason.IN_CLUSTER_QUEUE, Reason.IN_COHORT_RECLAMATION, Reason.IN_COHORT_FAIR_SHARING)
    assert min(seen[str(each)] for each in reasons) >= 60, seen
    assert seen[str(Reason.IN_COHORT_RECLAIM_WHILE_BORROWING)] >= 20, seen
    assert min(seen["LessThanOrEqualToFinalShare"], seen["LessThanInitialShare"]) >= 20, seen
    assert seen["several"] >= 40, seen


def judge_targets(
    entry: Entry,
    case: Scene,
    holdings: Holdings,
    held: list[Workload],
    number: int,
    seen: Counter[str],
) -> None:
    assert entry.assignment is not None
    pairs = holdings.tree.flavor_resources
    given = plain(
        replace(
            case,
            incoming=entry.workload,
            queue=entry.cluster_queue,
            requests={pairs[column]: n for column, n in entry.assignment.usage.items()},
            need=frozenset(pairs[column] for column in entry.assignment.need),
        ),
        held,
    )
    found = [(target.holder.key, str(target.reason)) for target in entry.targets]
    assert found == oracle.targets(given), (number, entry.workload.key)
    if given["fair"] is not None:
        _, trace = oracle.fair(given)
        chosen = {key: strategy for key, strategy, holds in trace if holds}
        compared = {key for key, reason in found if reason == "InCohortFairSharing"}
        assert compared <= chosen.keys(), (number, entry.workload.key)
        seen.update(chosen[key] for key in compared)
    seen.update(reason for _, reason in found)
    seen["several"] += len(found) > 1


def test_whatever_order_built_them_the_same_objects_give_the_same_cycles() -> None:
    random = Random(63)
    seen: Counter[str] = Counter()
    for number in range(120):
        case = scene(random, size=SIZE)
        other = scene(random, size=SIZE)
        holdings, queues = history(case, other, random, seen)
        fresh, waiting = Holdings(case.configuration), Queues(case.configuration)
        for workload in shuffled(random, [each.workload for each in holdings.holders.values()]):
            fresh.hold(workload)
        for workload in shuffled(random, queues.pending()):
            waiting.push(workload)
        first = [summary(each) for each in cycles(holdings, queues, NOW, limit=20)]
        second = [summary(each) for each in cycles(fresh, waiting, NOW, limit=20)]
        assert first == second, number
        seen.update(entry[1] for each in first for entry in each)
        seen["several cycles"] += len(first) > 3
    outcomes = (Outcome.ADMITTED, Outcome.PREEMPTING, Outcome.NO_FIT, Outcome.NO_CANDIDATES)
    assert min(seen[each] for each in outcomes) >= 40, seen
    events = ("hold", "release", "evict", "fail", "push", "delete", "configure", "flush")
    assert min(seen[each] for each in events) >= 100, seen


def shuffled(random: Random, workloads: Any) -> list[Workload]:
    found = sorted(workloads, key=lambda each: each.key)
    random.shuffle(found)
    return found


def history(
    case: Scene, other: Scene, random: Random, seen: Counter[str]
) -> tuple[Holdings, Queues]:
    """Return what many events have led to, the last of them this case's configuration."""
    holdings, queues = start(case)
    waiting = [*case.pending, case.incoming]
    for _ in range(40):
        event = random.choice(
            ("hold", "release", "evict", "fail", "push", "push", "delete", "configure", "flush")
        )
        keys = sorted(holdings.holders)
        if event == "hold":
            workload = random.choice(case.admitted or other.admitted)
            holdings.hold(replace(workload, priority=random.randint(-2, 2)))
        elif event in ("release", "evict", "fail") and not keys:
            continue
        elif event == "release":
            holdings.release(random.choice(keys))
        elif event == "evict":
            holdings.expect_eviction(random.choice(keys), Reason.IN_CLUSTER_QUEUE, NOW)
        elif event == "fail":
            holdings.eviction_failed(random.choice(keys))
        elif event == "push":
            workload = random.choice(waiting)
            queues.push(replace(workload, priority=random.randint(-2, 2)))
        elif event == "delete":
            queues.delete(random.choice(waiting).key)
        elif event == "flush":
            queues.flush(random.sample(sorted(case.configuration.cluster_queues), 1))
        else:
            changed = random.choice((case, other)).configuration
            holdings.configure(changed)
            queues.configure(changed)
        seen[event] += 1
    holdings.configure(case.configuration)
    queues.configure(case.configuration)
    for key in list(holdings.holders):  # what was only expected is no part of the objects
        holdings.eviction_failed(key)
    return holdings, queues


def test_ties_are_broken_by_uid_whatever_the_names_are() -> None:
    random = Random(64)
    ties = preempted = 0
    for number in range(600):
        case = scene(random, size=SIZE)
        level = tuple(
            replace(each, priority=0, reserved_at=NOW, evicted=None) for each in case.admitted
        )
        case = replace(case, admitted=level, incoming=replace(case.incoming, priority=1))
        names = [each.name for each in level]
        random.shuffle(names)
        renamed = tuple(replace(w, name=name) for w, name in zip(level, names, strict=True))
        uids = uids_of_targets(case)
        assert uids == uids_of_targets(replace(case, admitted=renamed)), number
        assert uids == [uid_of(level, key) for key, _ in oracle.targets(plain(case))], number
        preempted += bool(uids)
        # Somebody of the same queue and request was spared only for its uid.
        alike = [shape_of(each) for each in level if each.uid not in uids]
        ties += any(shape_of(each) in alike for each in level if each.uid in uids)
    assert preempted >= 100
    assert ties >= 40


def shape_of(workload: Workload) -> object:
    return workload.queue, workload.admission


def uid_of(workloads: tuple[Workload, ...], key: str) -> str:
    return next(each.uid for each in workloads if each.key == key)


def uids_of_targets(case: Scene) -> list[str]:
    return [uid_of(case.admitted, key) for key, _ in found(case)]
