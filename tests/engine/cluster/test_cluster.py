"""What the cluster promises about events, the overlay and snapshots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reprieve.engine.cluster.cluster import Cluster, NotSynced
from reprieve.engine.cluster.invariants import contents
from reprieve.engine.cluster.limits import LIMIT
from reprieve.engine.cluster.rows import Gone, Kind, PodRow
from reprieve.engine.cluster.snapshot import NO_START, Flag, Snapshot
from reprieve.units.ids import Uid
from tests.engine.builders import (
    GPU,
    cluster_of,
    gang,
    group,
    later,
    namespace,
    node,
    pending_of,
    pod,
    service,
    slot_of,
    snapshot_of,
)


def used(snapshot: Snapshot, name: str, resource: str) -> int:
    column = snapshot.resources.index(resource)
    return int(snapshot.used[snapshot.node_index[name], column])


def gone(row: PodRow) -> Gone:
    return Gone(Kind.POD, row.uid, row.namespace, row.name)


def test_no_snapshot_before_every_kind_is_listed() -> None:
    cluster = Cluster({Kind.POD, Kind.NODE}, validate=True)
    cluster.apply([node("n1")])
    cluster.replace(Kind.NODE, [node("n1")])
    with pytest.raises(NotSynced, match="not listed yet: Pod"):
        cluster.snapshot()
    cluster.replace(Kind.POD, [])
    assert [each.name for each in cluster.snapshot().nodes] == ["n1"]


def test_a_list_by_pages_ends_in_the_state_of_the_whole_list() -> None:
    left = pod("left", node="n1", cpu=1)
    first, second = pod("a", node="n1", cpu=2), pod("b", node="n1", cpu=4)
    cluster, whole = Cluster({Kind.POD}, validate=True), Cluster({Kind.POD}, validate=True)
    for each in (cluster, whole):
        each.apply([node("n1", cpu=10)])
    cluster.apply([left])  # of an attempt that broke off
    for page in ([first], [second]):
        cluster.apply(page)
        with pytest.raises(NotSynced, match="not listed yet: Pod"):
            cluster.snapshot()
    cluster.complete(Kind.POD, {first.uid, second.uid})
    whole.replace(Kind.POD, [first, second])
    assert contents(cluster.snapshot()) == contents(whole.snapshot())
    assert used(cluster.snapshot(), "n1", "cpu") == 6


def test_the_first_four_columns_are_fixed_and_new_names_add_some() -> None:
    cluster = cluster_of(node("n1"))
    assert cluster.snapshot().resources == ("pods", "cpu", "memory", "ephemeral-storage")
    cluster.apply([pod("p", node="n1", gpus=3), node("n2", extended={"a.b/c": 5})])
    snapshot = cluster.snapshot()
    assert snapshot.resources[4:] == (GPU, "a.b/c")
    assert used(snapshot, "n1", GPU) == 3
    assert snapshot.allocatable[1].tolist()[-1] == 5


def test_a_resource_that_a_node_offers_late_is_counted_once_of_pods_that_came_together() -> None:
    asked = [pod(f"p{n}", node="n1", extended={f"a.b/{n:02}": 2}) for n in range(40)]
    cluster = Cluster()
    cluster.apply([*asked, node("n1", extended={"a.b/00": 8, "a.b/39": 8})])
    snapshot = cluster.snapshot()
    assert (used(snapshot, "n1", "a.b/00"), used(snapshot, "n1", "a.b/39")) == (2, 2)
    assert used(snapshot, "n1", "pods") == 40


def test_nodes_are_sorted_by_name() -> None:
    snapshot = snapshot_of(node("n10"), pod("p", node="n2"), node("n2"), node("n1"))
    assert [each.name for each in snapshot.nodes] == ["n1", "n10", "n2"]
    assert snapshot.pod_node[slot_of(snapshot, "p")] == 2


def test_a_pod_whose_node_is_unknown_counts_when_the_node_comes() -> None:
    cluster = cluster_of(pod("p", node="n1", cpu=500))
    before = cluster.snapshot()
    assert before.pod_node[slot_of(before, "p")] == -1
    assert not before.pending
    cluster.apply([node("n1")])
    assert used(cluster.snapshot(), "n1", "cpu") == 500


def test_a_removed_node_has_no_capacity_and_its_pods_stay() -> None:
    there = node("n1")
    cluster = cluster_of(there, pod("p", node="n1", cpu=500))
    cluster.apply([Gone(Kind.NODE, there.uid, "", "n1")])
    snapshot = cluster.snapshot()
    assert snapshot.nodes == () and snapshot.used.shape == (0, 4)
    assert snapshot.pod_node[slot_of(snapshot, "p")] == -1
    cluster.apply([replace(node("n1", cpu=100), uid=Uid("other"))])
    assert used(cluster.snapshot(), "n1", "cpu") == 500  # more than it has: free is negative


def test_a_late_deletion_of_a_predecessor_changes_nothing() -> None:
    old = node("n1")
    cluster = cluster_of(old, replace(node("n1"), uid=Uid("new")))
    cluster.apply([Gone(Kind.NODE, old.uid, "", "n1")])
    assert len(cluster.snapshot().nodes) == 1


def test_an_older_version_is_dropped() -> None:
    first = pod("p", node="n1", cpu=100)
    second = later(first, priority=9)
    cluster = cluster_of(node("n1"), second, first)
    snapshot = cluster.snapshot()
    assert snapshot.pod_priority[slot_of(snapshot, "p")] == 9


def test_a_new_uid_under_an_old_name_ends_the_old_pod() -> None:
    old = pod("p", node="n1", cpu=100)
    new = pod("p", uid=Uid("new"), node="n1", cpu=300)
    cluster = cluster_of(node("n1"), old, new)
    cluster.apply([old, gone(old)])
    assert used(cluster.snapshot(), "n1", "cpu") == 300
    assert used(cluster.snapshot(), "n1", "pods") == 1


def test_finished_pods_are_nowhere_and_do_not_come_back() -> None:
    running = pod("p", node="n1", cpu=100)
    cluster = cluster_of(node("n1"), running, later(running, finished=True), running)
    snapshot = cluster.snapshot()
    assert used(snapshot, "n1", "pods") == 0
    assert not any(snapshot.pod_uids)
    found = cluster.pod(running.uid)
    assert found is not None and found.finished


def test_terminating_pods_stay_in_use_and_are_flagged() -> None:
    snapshot = snapshot_of(
        node("n1"),
        pod("a", node="n1", deleting=True),
        pod("b", node="n1", deleting=True, preempted=True, start=5),
    )
    assert used(snapshot, "n1", "pods") == 2
    flags = [snapshot.pod_flags[slot_of(snapshot, name)] for name in "ab"]
    assert flags == [Flag.DELETING, Flag.DELETING | Flag.PREEMPTED]
    starts = [snapshot.pod_start[slot_of(snapshot, name)] for name in "ab"]
    assert starts == [NO_START, 5]


def test_usage_follows_the_stored_row_when_a_pod_is_resized() -> None:
    small = pod("p", node="n1", cpu=100, gpus=1)
    large = replace(later(small), pod_class=pod("x", cpu=900).pod_class)
    cluster = cluster_of(node("n1"), small, large)
    snapshot = cluster.snapshot()
    assert (used(snapshot, "n1", "cpu"), used(snapshot, "n1", GPU)) == (900, 0)
    assert snapshot.scored[0].tolist() == [900, 200 * 2**20]


def test_sums_saturate_and_recover() -> None:
    huge = [pod(f"p{i}", node="n1", memory=2**62) for i in range(3)]
    cluster = cluster_of(node("n1"), huge, pod("q", node="n1", memory=5))
    assert used(cluster.snapshot(), "n1", "memory") == LIMIT
    cluster.apply([gone(row) for row in huge])
    assert used(cluster.snapshot(), "n1", "memory") == 5


def test_a_group_may_come_after_its_pods() -> None:
    owner, *members = gang(2, "g", priority=7, nodes=["n1"])
    cluster = cluster_of(node("n1"), members)
    before = cluster.snapshot()
    assert before.group_rows == (None,)
    assert before.effective_priority(True)[slot_of(before, "g-0")] == 7  # the pod's own
    cluster.apply([later(owner, priority=3)])
    after = cluster.snapshot()
    assert after.effective_priority(True)[slot_of(after, "g-0")] == 3
    assert after.effective_priority(False)[slot_of(after, "g-0")] == 7


def test_pods_of_one_class_share_its_number() -> None:
    snapshot = snapshot_of(node("n1"), pod("a", node="n1", cpu=5), pod("b", cpu=5), pod("c", cpu=6))
    number = snapshot.pod_class[slot_of(snapshot, "a")]
    assert pending_of(snapshot, "b").pod_class == number
    assert pending_of(snapshot, "c").pod_class != number


def test_a_list_of_services_leaves_replica_sets_alone() -> None:
    cluster = cluster_of(service("s", {"a": "b"}), service("r", {"a": "b"}, kind="ReplicaSet"))
    cluster.replace(Kind.SERVICE, [service("t", {"a": "b"})])
    assert set(cluster.snapshot().tables[Kind.SELECTOR]) == {
        ("default", "ReplicaSet/r"),
        ("default", "Service/t"),
    }


def test_namespaces_have_labels() -> None:
    snapshot = snapshot_of(namespace("team", {"a": "b"}))
    assert snapshot.namespace_labels("team") == {"a": "b"}
    assert snapshot.namespace_labels("other") == {}


def test_a_heartbeat_of_a_node_leaves_its_row_alone() -> None:
    first = node("n1")
    cluster = cluster_of(first)
    cluster.apply([later(first)])
    assert cluster.snapshot().nodes[0] is first
    stale = replace(first, unschedulable=True)
    cluster.apply([stale])  # older than the heartbeat
    assert cluster.snapshot().nodes[0] is first


def test_the_snapshot_is_the_same_object_until_something_changes() -> None:
    cluster = cluster_of(node("n1"), pod("p"))
    first = cluster.snapshot()
    assert cluster.snapshot() is first
    cluster.apply([pod("q")])
    second = cluster.snapshot()
    assert second is not first and second.revision > first.revision
    assert second.nodes is first.nodes and second.budgets is first.budgets


# What we did and have not seen yet.


def test_an_assumed_pod_counts_and_is_no_longer_pending() -> None:
    waiting = pod("p", cpu=500, gpus=2, priority=4)
    cluster = cluster_of(node("n1"), pod("q", node="n1", cpu=100), waiting)
    assert cluster.assume(waiting.uid, "n1", deadline=10)
    snapshot = cluster.snapshot()
    slot = slot_of(snapshot, "p")
    assert snapshot.pending == {}
    assert used(snapshot, "n1", "cpu") == 600
    assert snapshot.pod_flags[slot] == Flag.ASSUMED
    assert (snapshot.pod_node[slot], snapshot.pod_priority[slot]) == (0, 4)
    assert snapshot.pod_uids[slot] == waiting.uid
    assert dict(zip(snapshot.resources, snapshot.pod_requests[slot].tolist(), strict=True)) == {
        "pods": 1,
        "cpu": 500,
        "memory": 0,
        "ephemeral-storage": 0,
        GPU: 2,
    }


def test_a_binding_that_is_seen_ends_the_assumption_and_counts_once() -> None:
    waiting = pod("p", cpu=500)
    cluster = cluster_of(node("n1"), node("n2"), waiting)
    cluster.assume(waiting.uid, "n1", 10)
    cluster.apply([later(waiting, node="n2")])  # somebody else was faster
    snapshot = cluster.snapshot()
    assert (used(snapshot, "n1", "cpu"), used(snapshot, "n2", "cpu")) == (0, 500)
    assert cluster.overlay.assumed == {}
    assert not cluster.assume(waiting.uid, "n1", 10)


def test_updates_do_not_end_an_assumption() -> None:
    waiting = pod("p", cpu=500)
    cluster = cluster_of(node("n1"), waiting)
    cluster.assume(waiting.uid, "n1", 10)
    cluster.apply([later(waiting, nominated="n1", priority=3)])
    cluster.apply([later(waiting, labels=(("a", "b"),))])
    assert cluster.snapshot().pending == {}
    assert used(cluster.snapshot(), "n1", "cpu") == 500


@pytest.mark.parametrize("end", ["forgotten", "expired"])
def test_an_assumption_that_ends_makes_the_pod_pending_again(end: str) -> None:
    waiting = pod("p", cpu=500)
    cluster = cluster_of(node("n1"), waiting)
    before = contents(cluster.snapshot())
    cluster.assume(waiting.uid, "n1", 10)
    assert cluster.expire(9) == ([], [])
    if end == "forgotten":
        cluster.forget(waiting.uid)
    else:
        assert cluster.expire(10) == ([waiting.uid], [])
    assert contents(cluster.snapshot()) == before


def test_a_deleted_or_finished_pod_is_not_assumed() -> None:
    one, two = pod("one"), pod("two")
    cluster = cluster_of(node("n1"), one, two)
    cluster.assume(one.uid, "n1", 10)
    cluster.assume(two.uid, "n1", 10)
    cluster.apply([gone(one), later(two, finished=True)])
    assert used(cluster.snapshot(), "n1", "pods") == 0
    assert not cluster.assume(one.uid, "n1", 10)
    assert not cluster.assume(two.uid, "n1", 10)


def test_nominations_are_sorted_and_have_the_groups_priority() -> None:
    owner, first, second = gang(2, "g", priority=5)
    assert isinstance(first, PodRow) and isinstance(second, PodRow)
    cluster = cluster_of(
        node("n1"),
        node("n2"),
        later(owner, priority=8),
        replace(second, nominated="n2"),
        replace(first, nominated="n1"),
        pod("a", nominated="n2", priority=1),
        pod("b", nominated="elsewhere"),
        pod("c", nominated="n1", node="n2"),
    )
    snapshot = cluster.snapshot()
    assert [(n.name, n.node, n.priority, n.group) for n in snapshot.nominations] == [
        ("a", 1, 1, -1),
        ("g-0", 0, 8, 0),
        ("g-1", 1, 8, 0),
    ]


def test_a_nomination_of_ours_holds_until_it_is_seen() -> None:
    waiting = pod("p", priority=2)
    cluster = cluster_of(node("n1"), node("n2"), waiting)
    cluster.nominate(waiting.uid, "n2", 6, deadline=10)
    assert [(n.node, n.priority) for n in cluster.snapshot().nominations] == [(1, 6)]
    cluster.apply([later(waiting, nominated="n1")])  # older than our write
    assert [n.node for n in cluster.snapshot().nominations] == [1]
    cluster.apply([later(waiting, nominated="n2")])
    assert [(n.node, n.priority) for n in cluster.snapshot().nominations] == [(1, 2)]
    assert cluster.overlay.nominated == {}


def test_a_nomination_that_we_took_away_is_gone_at_once() -> None:
    waiting = pod("p", nominated="n1")
    cluster = cluster_of(node("n1"), waiting)
    cluster.nominate(waiting.uid, "", 0, deadline=10)
    assert cluster.snapshot().nominations == ()
    assert cluster.expire(10) == ([], [waiting.uid])
    assert [n.name for n in cluster.snapshot().nominations] == ["p"]


def test_slots_of_assumed_pods_follow_those_of_bound_ones() -> None:
    rows = [pod(f"p{number:03}", node="n1", cpu=number) for number in range(200)]
    waiting = [pod(f"w{number}") for number in range(3)]
    cluster = cluster_of(node("n1", pods=500), rows, waiting, group("g"))
    for row in waiting:
        cluster.assume(row.uid, "n1", 10)
    snapshot = cluster.snapshot()
    names = [key for key in snapshot.pod_keys if key]
    assert names == [f"default/{row.name}" for row in (*rows, *waiting)]
    assert len(snapshot.pod_uids) == len(snapshot.pod_node) == len(snapshot.pod_requests)
    free = np.array([not uid for uid in snapshot.pod_uids])
    assert (snapshot.pod_node[free] == -1).all() and (snapshot.pod_group[free] == -1).all()
    assert int((snapshot.pod_flags == Flag.ASSUMED).sum()) == 3
