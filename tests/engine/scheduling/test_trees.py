"""Trees of composite groups: where they go, at which priority, and who goes together for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprieve.engine.cluster.rows import COMPOSITE, Change
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import CompositePriority, Gates, Policy, policy_text
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.proofs.proof import Fault, faults_of
from reprieve.engine.scheduling.session import Session
from reprieve.wording.kube_scheduler import explanation_text, pod_condition
from tests.engine.builders import composite, gang, group, node, pod, snapshot_of

ROOT = f"{COMPOSITE}default/root"
TREES = Policy(gates=Gates(composite_pod_group=True))
NEAREST = replace(TREES, composite_priority=CompositePriority.NEAREST)


def tried(snapshot: Snapshot, policy: Policy = TREES, key: str = ROOT) -> Attempt:
    """The attempt of all waiting pods as one unit; what it wants to do is proved."""
    attempt = Session(snapshot, policy).attempt(Unit(tuple(sorted(snapshot.pending)), key))
    assert attempt is not None
    if attempt.code is not Code.ERROR:
        assert faults_of(snapshot, policy, attempt) == ()
    return attempt


def bound(attempt: Attempt) -> dict[str, str]:
    return {member.uid: member.bind for member in attempt.members if member.bind}


def victims(snapshot: Snapshot, attempt: Attempt) -> list[list[str]]:
    found = attempt.preemption.victims if attempt.preemption is not None else ()
    return [[snapshot.pod_keys[slot] for slot in unit.pods] for unit in found]


def statuses(attempt: Attempt) -> dict[str, str]:
    return {
        part.key: "" if part.failure is None else explanation_text(part.failure)
        for part in attempt.parts
    }


def racks(*free: tuple[str, str, int]) -> list[Change]:
    """One node in each rack of each block, with room for so many pods."""
    labels = [{"block": block, "rack": rack} for block, rack, _ in free]
    return [
        node(f"{each['block']}-{each['rack']}", cpu=room, labels=each)
        for each, (*_, room) in zip(labels, free, strict=True)
    ]


def test_children_find_their_racks_inside_the_block_of_their_parent() -> None:
    snapshot = snapshot_of(
        racks(("A", "1", 3), ("A", "2", 5), ("B", "3", 5), ("B", "4", 5)),
        composite("root", min_count=2, topology_key="block"),
        gang(5, "a", parent="root", topology_key="rack", cpu=1),
        gang(5, "b", parent="root", topology_key="rack", cpu=1),
    )
    attempt = tried(snapshot)
    assert attempt.code is Code.SUCCESS
    found = bound(attempt)
    assert {found[f"pod-a-{n}"] for n in range(5)} == {"B-3"}
    assert {found[f"pod-b-{n}"] for n in range(5)} == {"B-4"}


def test_a_placed_member_fixes_the_block_for_the_whole_tree() -> None:
    snapshot = snapshot_of(
        racks(("A", "1", 3), ("A", "2", 5), ("B", "3", 9)),
        composite("root", min_count=2, topology_key="block"),
        gang(3, "a", parent="root", cpu=1, nodes=["A-1"]),
        gang(2, "b", parent="root", cpu=1),
    )
    assert {where[0] for where in bound(tried(snapshot)).values()} == {"A"}


def test_members_of_a_tree_in_two_domains_are_unschedulable() -> None:
    snapshot = snapshot_of(
        racks(("A", "1", 3), ("B", "3", 9)),
        composite("root", topology_key="block"),
        gang(2, "a", parent="root", cpu=1, nodes=["A-1"]),
        gang(2, "b", parent="root", cpu=1, nodes=["B-3"]),
    )
    attempt = tried(snapshot)
    assert (attempt.code, attempt.plan) == (Code.UNSCHEDULABLE, None)
    assert "more than 1 domain found for pod group: A, B" in statuses(attempt)["default/a"]


def test_a_child_that_does_not_fit_is_left_out_where_the_minimum_allows() -> None:
    snapshot = snapshot_of(
        node(cpu=4),
        composite("root", min_count=1),
        gang(3, "a", parent="root", cpu=1),
        gang(3, "b", parent="root", cpu=1),
    )
    attempt = tried(snapshot)
    assert sorted(bound(attempt)) == ["pod-a-0", "pod-a-1", "pod-a-2"]
    assert statuses(attempt) == {
        ROOT: "",
        "default/a": "",
        "default/b": (
            "pod group is unschedulable, 0/1 placements are available, first placement status: "
            "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"
        ),
    }
    waiting = {
        str(member.uid): pod_condition(attempt, member).message for member in attempt.members
    }
    assert waiting["pod-b-1"] == "0/1 nodes are available: 1 Insufficient cpu."
    assert waiting["pod-b-2"].startswith("pod group is unschedulable, 0/1 placements")


def test_nothing_is_bound_below_the_number_of_groups_that_is_needed() -> None:
    snapshot = snapshot_of(
        node(cpu=4),
        composite("root", min_count=2),
        composite("middle", parent="root"),
        gang(3, "a", parent="middle", cpu=1),
        gang(3, "b", parent="root", cpu=1),
    )
    attempt = tried(snapshot)
    assert (attempt.code, bound(attempt)) == (Code.UNSCHEDULABLE, {})
    own = "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
    assert own in statuses(attempt)[ROOT]
    # What fits in a tree that does not has the status of that.
    assert statuses(attempt)["default/b"] == statuses(attempt)[ROOT]
    assert "minCount (3) cannot be satisfied" in statuses(attempt)["default/a"]


def test_the_rest_of_a_tree_that_has_its_minimum_preempts_by_itself() -> None:
    snapshot = snapshot_of(
        node(cpu=4),
        composite("root", min_count=1, priority=10),
        gang(3, "a", parent="root", cpu=1, priority=10, nodes=["n1"] * 3),
        group("b", parent="root", min_count=1, priority=10),
        pod("b-0", group="b", cpu=1, priority=10),
        pod("low", node="n1", cpu=1, priority=1),
    )
    attempt = tried(snapshot)
    assert victims(snapshot, attempt) == [["default/low"]]
    assert attempt.plan is not None and attempt.plan.preemptor is not None
    ref = attempt.plan.preemptor
    assert (ref.api_version, ref.kind) == ("scheduling.k8s.io/v1alpha3", "CompositePodGroup")


def test_a_tree_of_mode_all_makes_way_as_a_whole_and_is_spared_before_a_group() -> None:
    snapshot = snapshot_of(
        node("n1", cpu=3),
        node("n2", cpu=3),
        composite("tree", all_or_nothing=True, priority=1),
        gang(2, "a", parent="tree", cpu=1, priority=1, nodes=["n1", "n2"]),
        gang(1, "b", parent="tree", cpu=1, priority=1, nodes=["n2"]),
        gang(2, "alone", all_or_nothing=True, cpu=1, priority=1, nodes=["n1", "n1"]),
        pod("beside", node="n2", cpu=1, priority=10),
        composite("root", priority=10),
        gang(1, "high", parent="root", cpu=2, priority=10),
    )
    assert victims(snapshot, tried(snapshot)) == [["default/alone-0", "default/alone-1"]]
    larger = snapshot_of(
        node("n1", cpu=3),
        node("n2", cpu=3),
        composite("tree", all_or_nothing=True, priority=1),
        gang(2, "a", parent="tree", cpu=1, priority=1, nodes=["n1", "n2"]),
        gang(1, "b", parent="tree", cpu=1, priority=1, nodes=["n2"]),
        gang(2, "alone", all_or_nothing=True, cpu=1, priority=1, nodes=["n1", "n1"]),
        pod("beside", node="n2", cpu=1, priority=10),
        composite("root", priority=10),
        gang(1, "high", parent="root", cpu=3, priority=10),
    )
    assert victims(larger, tried(larger)) == [
        ["default/a-0", "default/a-1", "default/b-0"],
        ["default/alone-0", "default/alone-1"],
    ]
    alone = tried(larger, replace(TREES, gates=Gates()), "default/high")
    assert victims(larger, alone) == [["default/alone-0", "default/alone-1"], ["default/a-0"]]


def inside_a_tree(child: int, root: int) -> Snapshot:
    """A node filled by a child of one priority in a tree of another, and a pod of 50 that waits."""
    return snapshot_of(
        node(cpu=2),
        composite("tree", priority=root),
        gang(1, "child", parent="tree", cpu=2, priority=child, nodes=["n1"]),
        pod("middle", cpu=1, priority=50),
    )


@pytest.mark.parametrize(
    ("child", "root", "by_root", "by_nearest"),
    [(10, 100, False, True), (100, 10, True, False), (10, 10, True, True)],
)
def test_the_option_says_whose_priority_counts(
    child: int, root: int, by_root: bool, by_nearest: bool
) -> None:
    snapshot = inside_a_tree(child, root)
    for policy, evicts in ((TREES, by_root), (NEAREST, by_nearest)):
        attempt = Session(snapshot, policy).attempt(Unit(tuple(snapshot.pending)))
        assert attempt is not None
        assert bool(victims(snapshot, attempt)) == evicts


def test_by_the_nearest_priority_a_tree_looks_for_room_at_the_lowest_of_its_waiting_pods() -> None:
    def waiting(low: int) -> Snapshot:
        return snapshot_of(
            node(cpu=4),
            composite("root", min_count=2, priority=100),
            gang(1, "high", parent="root", cpu=2, priority=100),
            gang(1, "low", parent="root", cpu=2, priority=low),
            pod("runs", node="n1", cpu=4, priority=50),
        )

    refused = tried(waiting(low=10), NEAREST)
    assert (refused.plan, refused.scheduler_error) == (None, False)
    assert victims(waiting(low=60), tried(waiting(low=60), NEAREST)) == [["default/runs"]]
    odd = tried(waiting(low=10))
    assert odd.scheduler_error, "by the root's priority all pods must have it"


def test_pods_that_go_together_have_the_highest_of_their_priorities() -> None:
    snapshot = snapshot_of(
        node(cpu=2),
        composite("tree", all_or_nothing=True, priority=10),
        gang(1, "a", parent="tree", cpu=1, priority=10, nodes=["n1"]),
        gang(1, "b", parent="tree", cpu=1, priority=90, nodes=["n1"]),
        pod("p", cpu=1, priority=50),
    )
    for policy, evicts in ((TREES, True), (NEAREST, False)):
        attempt = Session(snapshot, policy).attempt(Unit(tuple(snapshot.pending)))
        assert attempt is not None
        assert bool(victims(snapshot, attempt)) == evicts


def test_a_tree_with_too_many_levels_is_an_error_that_says_so() -> None:
    names = ["c0", "c1", "c2", "c3"]
    snapshot = snapshot_of(
        node(),
        [composite(name, parent=up) for name, up in zip(names, ["", *names], strict=False)],
        gang(1, "g", parent="c3"),
    )
    attempt = tried(snapshot, key="default/g")
    assert (attempt.code, attempt.scheduler_error) == (Code.ERROR, True)
    assert explanation_text(attempt.status[0]) == (
        'the tree of pod group "g" has more than 4 levels, or is circular'
    )


def test_all_pods_of_a_tree_have_one_priority_and_every_group_is_told() -> None:
    snapshot = snapshot_of(
        node(),
        composite("root", priority=10),
        gang(1, "a", parent="root", priority=10),
        gang(1, "b", parent="root", priority=9),
    )
    attempt = tried(snapshot)
    assert (attempt.code, attempt.scheduler_error) == (Code.ERROR, True)
    text = (
        "all pods in a single pod group should have the same priority as the pod group's priority, "
        "got 9 and 10"
    )
    assert statuses(attempt) == dict.fromkeys((ROOT, "default/a", "default/b"), text)


def test_a_plan_that_tears_a_tree_or_leaves_it_short_is_refused() -> None:
    snapshot = snapshot_of(
        node(cpu=2),
        composite("tree", all_or_nothing=True, priority=1),
        gang(1, "a", parent="tree", cpu=1, priority=1, nodes=["n1"]),
        gang(1, "b", parent="tree", cpu=1, priority=1, nodes=["n1"]),
        composite("root", min_count=2, priority=10),
        gang(1, "x", parent="root", cpu=1, priority=10),
        gang(1, "y", parent="root", cpu=1, priority=10),
    )
    attempt = tried(snapshot)
    plan, found = attempt.plan, attempt.preemption
    assert plan is not None and found is not None
    torn = replace(
        attempt,
        plan=replace(plan, victims=plan.victims[:1]),
        preemption=replace(
            found, victims=(replace(found.victims[0], pods=found.victims[0].pods[:1]),)
        ),
    )
    assert Fault.TORN_GROUP in {fault.fault for fault in faults_of(snapshot, TREES, torn)}
    short = replace(attempt, members=(), plan=replace(plan, placement=plan.placement[:1]))
    assert [fault.fault for fault in faults_of(snapshot, TREES, short)] == [Fault.SHORT]


def test_the_option_is_no_part_of_a_plans_id_until_it_is_set() -> None:
    assert policy_text(Policy()) == policy_text(Policy(composite_priority=CompositePriority.ROOT))
    assert policy_text(Policy()) != policy_text(NEAREST)
    assert "composite_priority" not in policy_text(TREES)
