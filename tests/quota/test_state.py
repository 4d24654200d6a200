"""State kept up to date by events equals a rebuild, and snapshots do not see what comes later."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Eviction, Reason, StopPolicy, Workload
from tests.quota.cases import NOW, SECOND, Scene, Size, held, scene


def content(state: Holdings | Snapshot, tree: Any) -> dict[str, Any]:
    lists = state.lists if isinstance(state, Snapshot) else state.snapshot().lists
    pairs = tree.flavor_resources
    return {
        "usage": {
            (tree.names[node], node >= len(tree.queues), pairs[column]): amount
            for column, row in enumerate(state.usage)
            for node, amount in enumerate(row)
            if amount
        },
        "lists": {
            (tree.names[queue], evicted, frozenset(pairs[c] for c in columns)): [
                row[:4] for row in rows
            ]
            for queue, found in enumerate(lists)
            for (evicted, columns), rows in found.items()
        },
    }


def rebuilt(holdings: Holdings) -> Holdings:
    fresh = Holdings(holdings.configuration)
    for holder in holdings.holders.values():
        fresh.hold(holder.workload)
    return fresh


def test_incremental_state_equals_a_rebuild_after_random_events() -> None:
    random = Random(31)
    seen: Counter[str] = Counter()
    for number in range(150):
        case = scene(random, size=Size(admitted=25))
        other = scene(random, size=Size(admitted=25))
        holdings = Holdings(case.configuration)
        known: dict[str, Workload] = {}
        for _ in range(40):
            event = random.choice(("hold", "hold", "hold", "release", "evict", "fail", "configure"))
            seen[event] += _apply(event, random, holdings, known, case, other)
        fresh = rebuilt(holdings)
        assert content(holdings, holdings.tree) == content(fresh, fresh.tree), number
    assert min(seen.values()) >= 100, seen


def _apply(
    event: str,
    random: Random,
    holdings: Holdings,
    known: dict[str, Workload],
    case: Scene,
    other: Scene,
) -> bool:
    holders = sorted(holdings.holders)
    if event == "hold":
        workload = random.choice(case.admitted)
        if random.random() < 0.3:
            workload = replace(workload, priority=random.randint(-3, 3))
        holdings.hold(workload)
        known[workload.key] = workload
        return True
    if event == "configure":
        if random.random() < 0.8:
            return False
        holdings.configure(random.choice((case, other)).configuration)
        return True
    if not holders:
        return False
    key = random.choice(holders)
    if event == "release":
        holdings.release(key)
    elif event == "evict":
        holdings.expect_eviction(key, Reason.IN_CLUSTER_QUEUE, NOW)
    else:
        expected = [each for each in holders if holdings.eviction_expected(each)]
        if not expected:
            return False
        holdings.eviction_failed(expected[0])
    return True


def test_a_snapshot_does_not_see_what_comes_later() -> None:
    random = Random(32)
    changed = 0
    for _ in range(60):
        case = scene(random)
        holdings = Holdings(case.configuration)
        for workload in case.admitted[::2]:
            holdings.hold(workload)
        snapshot = holdings.snapshot()
        before = content(snapshot, snapshot.tree)
        for workload in case.admitted[1::2]:
            holdings.hold(workload)
        for workload in case.admitted[::3]:
            holdings.release(workload.key)
        assert content(snapshot, snapshot.tree) == before
        changed += content(holdings, holdings.tree) != before
    assert changed >= 50


def admitted(**changes: Any) -> tuple[Holdings, Workload]:
    random = Random(33)
    case = scene(random)
    holdings = Holdings(case.configuration)
    queue = sorted(case.configuration.cluster_queues)[0]
    flavors = sorted(case.configuration.flavors)
    workload = replace(
        held(random, "victim", queue, flavors, ["cpu"], Size()), evicted=None, **changes
    )
    holdings.hold(workload)
    return holdings, workload


def test_an_issued_eviction_counts_until_it_is_observed_or_failed() -> None:
    holdings, workload = admitted()
    holdings.expect_eviction(workload.key, Reason.IN_COHORT_RECLAMATION, NOW)
    # An event that was on its way before the eviction was written.
    holdings.hold(replace(workload, priority=1))
    holder = holdings.holders[workload.key]
    assert (holder.evicted, holder.priority) == (True, 1)
    assert holdings.eviction_expected(workload.key)
    # The write failed: it is no victim any more.
    holdings.eviction_failed(workload.key)
    assert not holdings.holders[workload.key].evicted
    # Issued again, and seen in the object this time, with the API server's instant.
    holdings.expect_eviction(workload.key, Reason.IN_COHORT_RECLAMATION, NOW)
    seen = Eviction("Preempted", type(NOW)(NOW + SECOND))
    holdings.hold(replace(workload, evicted=seen))
    assert not holdings.eviction_expected(workload.key)
    assert holdings.holders[workload.key].workload.evicted == seen


def test_a_new_object_under_an_old_name_is_not_evicted_for_the_old_one() -> None:
    holdings, workload = admitted()
    holdings.expect_eviction(workload.key, Reason.IN_CLUSTER_QUEUE, NOW)
    holdings.hold(replace(workload, uid="another"))
    assert not holdings.holders[workload.key].evicted


def test_what_a_deleted_queue_admitted_counts_again_when_it_comes_back() -> None:
    holdings, workload = admitted()
    configuration = holdings.configuration
    assert workload.admission is not None
    queues = dict(configuration.cluster_queues)
    del queues[workload.admission.cluster_queue]
    holdings.configure(replace(configuration, cluster_queues=queues))
    assert workload.key not in holdings.holders
    holdings.configure(configuration)
    assert workload.key in holdings.holders


def test_a_stopped_queue_keeps_its_quota_in_the_tree_and_takes_no_part_in_decisions() -> None:
    holdings, workload = admitted()
    assert workload.admission is not None
    name = workload.admission.cluster_queue
    queues = dict(holdings.configuration.cluster_queues)
    before = holdings.tree.subtree
    queues[name] = replace(queues[name], stop_policy=StopPolicy.HOLD)
    holdings.configure(replace(holdings.configuration, cluster_queues=queues))
    assert holdings.tree.subtree == before
    assert holdings.tree.inactive == {name: "it is stopped"}
    assert not any(holdings.tree.queues[name] in each for each in holdings.tree.child_queues)


def test_reclaimable_pods_shrink_what_is_held_dividing_before_multiplying() -> None:
    holdings, workload = admitted()
    assert workload.admission is not None
    (pod_set,) = workload.admission.pod_sets
    flavor = pod_set.flavors["cpu"]
    shrunk = replace(
        workload,
        pod_sets=(replace(workload.pod_sets[0], count=3),),
        admission=replace(
            workload.admission, pod_sets=(replace(pod_set, count=3, usage={"cpu": 10}),)
        ),
        reclaimable={"main": 1},
    )
    holdings.hold(shrunk)
    column = holdings.tree.index[(flavor, "cpu")]  # type: ignore[index]
    assert holdings.usage[column][holdings.holders[shrunk.key].queue] == 10 // 3 * 2
