"""One reason for each unit that waits, with what it lacks and who has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import AffinityTerm
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.diagnosis.causes import Cause
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.diagnosis.scheduling import PRIORITY, PROTECTED, RUNTIME, of_attempt
from reprieve.engine.diagnosis.scheduling_figures import with_figures
from reprieve.engine.diagnosis.untried import backing_off, set_aside
from reprieve.engine.placement.profile import Policy, Protection
from reprieve.engine.placement.reasons import Code
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.outcome import Attempt, Explanation, Member, Sentence, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid
from reprieve.wording.diagnosis import sentence
from tests.engine.builders import (
    GPU,
    gang,
    group,
    matching,
    node,
    pod,
    priority_class,
    snapshot_of,
)

NOW = 1_700_000_000
PLAIN = Policy()
TIMED = Policy(max_min_runtime=600)


def decided(snapshot: Snapshot, policy: Policy = PLAIN, key: str = "") -> tuple[Unit, Diagnosis]:
    unit = Unit(tuple(snapshot.pending), key)
    attempt = Session(snapshot, policy, now=NOW).attempt(unit)
    assert attempt is not None
    found = of_attempt(attempt)
    assert found is not None, "it waits"
    return unit, with_figures(snapshot, policy, unit, found, now=NOW)


def why(*rows: Any, policy: Policy = PLAIN, key: str = "") -> Diagnosis:
    return decided(snapshot_of(*rows), policy, key)[1]


def test_what_is_placed_does_not_wait() -> None:
    snapshot = snapshot_of(node("a", gpus=8), pod("p", gpus=1))
    attempt = Session(snapshot, Policy()).attempt(Unit(tuple(snapshot.pending)))
    assert attempt is not None and of_attempt(attempt) is None


def test_no_node_of_its_kind() -> None:
    rows = node("a", taints=["k=v:NoSchedule"]), node("b"), node("c", unschedulable=True)
    found = why(*rows, pod("p", cpu=65_000))
    assert found.reason is Reason.NO_NODE_MATCHES
    expected = {"TaintToleration": 1, "NodeResourcesFit": 1, "NodeUnschedulable": 1}
    assert (found.filters, found.values["nodes"]) == (expected, "3")
    assert set(found.deficit.values()) == {1_000}


def test_nobody_is_in_the_way_of_what_no_node_accepts_however_empty() -> None:
    found = why(node("a", gpus=8), pod("x", node="a", gpus=8), pod("p", gpus=9))
    assert (found.reason, found.deficit) == (Reason.NO_NODE_MATCHES, {("a", GPU): 9})
    assert (found.blockers, found.refused) == ((), {})


def test_full_names_what_is_missing_and_who_has_it() -> None:
    rows = [pod("x", node="a", gpus=5), pod("y", node="b", gpus=3), pod("z", node="b", cpu=1)]
    found = why(node("a", gpus=8), node("b", gpus=8), rows, pod("p", gpus=6))
    assert (found.reason, found.others) == (Reason.FULL, ())
    assert (found.deficit, found.values["short"]) == ({("b", GPU): 1}, GPU)
    holders = [(each.holder.name, dict(each.amounts), each.rule) for each in found.blockers]
    assert holders == [("x", {GPU: 5}, PRIORITY), ("y", {GPU: 3}, PRIORITY)]
    assert found.refused == {PRIORITY: 2}


def test_a_group_lacks_what_the_pods_ask_for_that_do_not_fit_in_the_best_domain() -> None:
    nodes = [
        node("a", gpus=8, labels={"rack": "r1"}),
        node("b", gpus=4, labels={"rack": "r2"}),
        node("c", gpus=8, labels={"rack": "r2"}),
        node("d", gpus=64),
    ]
    held = pod("x", node="d", gpus=61)
    free = why(nodes, held, gang(6, gpus=4), key="default/g")
    assert (free.reason, free.deficit) == (Reason.FULL, {("", GPU): 4})
    within = why(nodes, held, gang(6, gpus=4, topology_key="rack"), key="default/g")
    assert within.deficit == {("rack=r2", GPU): 12}


def test_no_victims_suffice() -> None:
    rows = pod("low", node="a", gpus=2, priority=1), pod("same", node="a", gpus=6, priority=5)
    found = why(node("a", gpus=8), rows, pod("p", gpus=4, priority=5))
    assert found.reason is Reason.NO_VICTIMS_SUFFICE
    assert [(each.holder.name, each.rule) for each in found.blockers] == [
        ("same", PRIORITY),
        ("low", ""),
    ]
    assert found.refused == {PRIORITY: 1}


def test_victims_leave() -> None:
    low = pod("low", node="a", gpus=8)
    found = why(node("a", gpus=8), low, pod("p", gpus=4, priority=5))
    assert (found.reason, found.values["victims"]) == (Reason.VICTIMS_LEAVING, "1 pod")


def test_a_policy_of_never() -> None:
    low = pod("low", node="a", gpus=8)
    never = pod("p", gpus=4, priority=5, preempts=False)
    assert why(node("a", gpus=8), low, never).reason is Reason.POLICY_NEVER


def test_victims_within_their_minimum_runtime_are_protected_until_it_ends() -> None:
    low = pod("low", node="a", gpus=8, start=NOW - 10, min_runtime=100)
    found = why(node("a", gpus=8), low, pod("p", gpus=4, priority=5), policy=TIMED)
    assert found.reason is Reason.VICTIMS_PROTECTED
    assert found.earliest == (NOW + 90) * SECOND
    assert found.values["until"] == "2023-11-14T22:14:50Z"
    assert found.refused == {RUNTIME: 1}


def test_victims_of_a_preemption_priority_class_are_refused_by_that_rule() -> None:
    policy = Policy(protection=Protection())
    held = pod("low", node="a", gpus=8, protection="kept")
    rows = node("a", gpus=8), priority_class("kept", 50), held
    found = why(*rows, pod("p", gpus=4, priority=5), policy=policy)
    assert (found.reason, found.refused) == (Reason.VICTIMS_PROTECTED, {PROTECTED: 1})


def test_anti_affinity_keeps_a_pod_from_nodes_that_have_room() -> None:
    term = AffinityTerm("kubernetes.io/hostname", matching({"app": "x"}), ("default",))
    other = pod("x", node="a", labels={"app": "x"}, priority=9)
    found = why(node("a"), other, pod("p", anti_affinity=(term,)))
    assert found.reason is Reason.SPREAD_OR_AFFINITY_BLOCKS
    assert found.filters == {"InterPodAffinity": 1}


def test_pods_that_differ() -> None:
    rows = [group(min_count=2, priority=5), pod("a", group="g", priority=5)]
    found = why(node("a"), rows, pod("b", group="g", priority=4), key="default/g")
    assert found.reason is Reason.NOT_UNIFORM
    assert "their priorities are 4 and 5" in found.values["why"]


def test_a_group_that_is_gone_and_one_that_is_short() -> None:
    snapshot = snapshot_of(node("a"), pod("a", group="g"))
    assert decided(snapshot, key="default/g")[1].reason is Reason.GROUP_MISSING
    short = why(node("a"), group(min_count=3), pod("a", group="g"), key="default/g")
    assert short.reason is Reason.GROUP_INCOMPLETE
    assert short.values == {"present": "1", "minimum": "3"}


def test_one_pod_that_no_node_accepts_is_not_told_of_a_group_that_can_do_without_it() -> None:
    rows = gang(3, gpus=4, priority=5, min_count=2)
    huge = pod("g-3", group="g", cpu=10**9, priority=5)
    found = why(node("a", gpus=8), pod("x", node="a", gpus=6), rows, huge, key="default/g")
    assert found.reason is Reason.VICTIMS_LEAVING


def test_a_group_that_only_some_domains_accept_is_told_what_keeps_it_from_those() -> None:
    nodes = [node(f"n{n}", gpus=8, labels={"rack": f"r{n}"}) for n in range(3)]
    held = pod("x", node="n1", gpus=4)
    asked: dict[str, Any] = {"gpus": 4, "topology_key": "rack"}
    full = why(nodes, held, gang(2, node_selector={"rack": "r1"}, **asked), key="default/g")
    assert (full.reason, full.deficit) == (Reason.FULL, {("rack=r1", GPU): 4})
    assert full.filters == {"NodeResourcesFit": 1}
    none = why(nodes, held, gang(2, node_selector={"rack": "r9"}, **asked), key="default/g")
    assert none.reason is Reason.NO_NODE_MATCHES
    assert (none.filters, none.values["nodes"]) == ({"NodeAffinity": 3}, "3")


def test_an_error_sets_aside() -> None:
    status = (Explanation(Sentence.PLUGIN_FAILED, ("Mine", "oops")),)
    members = (Member(Uid("a")),)
    found = of_attempt(Attempt(Unit((Uid("a"),)), Code.ERROR, members, status))
    assert found is not None
    assert (found.reason, found.values["why"]) == (Reason.SET_ASIDE, "the plugin Mine failed")


def test_a_node_that_is_kept_for_the_rest_of_a_group() -> None:
    members = (Member(Uid("a"), bind="n1"), Member(Uid("b"), nominate="n2"))
    found = of_attempt(Attempt(Unit((Uid("a"), Uid("b")), "d/g"), Code.SUCCESS, members))
    assert found is not None
    assert (found.reason, found.values["on"]) == (Reason.NOMINATED_WAITING, "n2")


@pytest.mark.parametrize(
    ("make", "reason"), [(backing_off, Reason.BACKOFF), (set_aside, Reason.SET_ASIDE)]
)
def test_a_pause_says_when_it_is_over(make: Any, reason: Reason) -> None:
    until = Nanos(NOW * SECOND)
    values = {"until": "2023-11-14T22:13:20Z"}
    assert make(until) == Diagnosis(Plane.SCHEDULING, reason, values, earliest=until)


def test_figures_are_for_those_who_lack_room() -> None:
    unit, found = decided(snapshot_of(node("a", gpus=8), pod("p", gpus=9)))
    missing = replace(found, reason=Reason.GROUP_MISSING, deficit={}, blockers=())
    snapshot = snapshot_of(node("a", gpus=8), pod("p", gpus=9))
    assert with_figures(snapshot, Policy(), unit, missing) is missing


@pytest.mark.parametrize("others", [[], [pod("x", node="a", gpus=8)]])
def test_a_group_that_no_nodes_hold_however_empty_is_told_so(others: list[Any]) -> None:
    found = why(node("a", gpus=8), others, gang(3, gpus=4), key="default/g")
    assert (found.reason, found.cause) == (Reason.NO_NODE_MATCHES, Cause.TOO_MANY_PODS)
    assert (found.deficit, found.blockers) == ({("", GPU): 4}, ())
    assert sentence(found).startswith(
        "Its pods do not fit the nodes together, however empty these are: it lacks 4 "
        "nvidia.com/gpu; of the 3 that its group needs 2 at most would fit"
    )


def test_with_a_lower_minimum_or_another_node_a_group_that_was_too_large_starts() -> None:
    for rows in (
        [node("a", gpus=8), *gang(3, gpus=4, min_count=2)],
        [node("a", gpus=8), node("b", gpus=8), *gang(3, gpus=4)],
    ):
        snapshot = snapshot_of(*rows)
        attempt = Session(snapshot, PLAIN, now=NOW).attempt(
            Unit(tuple(snapshot.pending), "default/g")
        )
        assert attempt is not None
        assert attempt.code is Code.SUCCESS


def test_a_domain_that_is_too_small_for_a_group_is_named() -> None:
    nodes = [node(f"{rack}-{n}", gpus=8, labels={"rack": rack}) for rack in "ab" for n in range(2)]
    found = why(nodes, gang(5, gpus=4, topology_key="rack"), key="default/g")
    assert (found.reason, found.cause) == (Reason.NO_NODE_MATCHES, Cause.TOO_MANY_PODS)
    assert found.deficit == {("rack=a", GPU): 4}


def test_a_group_that_empty_nodes_would_hold_is_told_that_they_are_full() -> None:
    found = why(node("a", gpus=8), pod("x", node="a", gpus=4), gang(2, gpus=4), key="default/g")
    assert (found.reason, found.cause) == (Reason.FULL, None)
