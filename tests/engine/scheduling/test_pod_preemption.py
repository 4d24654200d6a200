"""What keeps a node from being a candidate for a plain pod (specification 8.4)."""

from __future__ import annotations

import numpy as np

from reprieve.engine.cluster.rows import SpreadConstraint
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.placement.reasons import Code, Reason, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Explanation, Nominate, Sentence, Unit
from reprieve.engine.scheduling.pod_preemption import find_candidates, preempt_for_pod
from reprieve.engine.scheduling.session import Session
from reprieve.wording.kube_scheduler import pod_condition
from tests.engine.builders import budget, node, pending_of, pod, snapshot_of

POLICY = Policy()


def test_a_node_that_is_full_and_outside_every_domain_is_no_candidate() -> None:
    """The shortage is found first, and eviction would mend it, but the label stays missing."""
    zone = SpreadConstraint("zone", 1, hard=True, selector=())
    snapshot = snapshot_of(
        node("n1", cpu=1000),
        node("n2", cpu=500, labels={"zone": "a"}),
        pod("low", cpu=1000, node="n1", priority=1),
        pod("high", cpu=1000, priority=5, spread=(zone,)),
    )
    simulation = Simulation(snapshot, POLICY, POLICY.profiles[0])
    found = preempt_for_pod(simulation, pending_of(snapshot, "high"), POLICY)
    assert found.code is Code.UNSCHEDULABLE
    assert dict(found.unhelpful) == {
        Reason(Rejection.SPREAD_LABEL): 1,
        Explanation(Sentence.NOT_HELPFUL): 1,
    }


def test_where_no_node_is_in_any_domain_nobody_is_evicted() -> None:
    zone = SpreadConstraint("zone", 1, hard=True, selector=())
    snapshot = snapshot_of(
        node("n1", cpu=1000),
        pod("low", cpu=1000, node="n1", priority=1),
        pod("high", cpu=1000, priority=5, spread=(zone,)),
    )
    simulation = Simulation(snapshot, POLICY, POLICY.profiles[0])
    found = preempt_for_pod(simulation, pending_of(snapshot, "high"), POLICY)
    assert dict(found.unhelpful) == {Reason(Rejection.SPREAD_LABEL): 1}


def test_a_node_where_nobody_has_to_go_is_named_as_an_error() -> None:
    snapshot = snapshot_of(
        node("n1", cpu=4000),
        pod("low", cpu=1000, node="n1", priority=1),
        pod("high", cpu=1000, priority=5),
    )
    simulation = Simulation(snapshot, POLICY, POLICY.profiles[0])
    pending = pending_of(snapshot, "high")
    found = find_candidates(simulation, pending, POLICY, np.ones(1, np.bool_))
    assert len(found) == 0
    assert found.statuses() == {0: (Explanation(Sentence.EXPECTED_VICTIM, ("n1",)),)}


def candidates(absolute: int, *, guarded: int) -> list[str]:
    """The candidates among six nodes, on the first `guarded` of which a budget would be broken."""
    profile = Profile(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=absolute)
    policy = Policy(profiles=(profile,))
    labels = [{"app": "guarded"} if i < guarded else {} for i in range(6)]
    snapshot = snapshot_of(
        *(node(f"n{i}", cpu=1000) for i in range(6)),
        *(pod(f"low-{i}", cpu=1000, node=f"n{i}", labels=labels[i]) for i in range(6)),
        budget("b", {"app": "guarded"}, allowed=0),
        pod("high", cpu=1000, priority=5),
    )
    simulation = Simulation(snapshot, policy, profile)
    pending = pending_of(snapshot, "high")
    found = find_candidates(simulation, pending, policy, np.ones(6, np.bool_))
    return [snapshot.nodes[int(each)].name for each in found.nodes]


def test_the_search_ends_when_enough_candidates_are_found() -> None:
    assert candidates(2, guarded=0) == ["n0", "n1"]


def test_the_search_goes_on_until_one_candidate_breaks_no_budget() -> None:
    assert candidates(2, guarded=3) == ["n0", "n1", "n2", "n3"]


def test_when_all_candidates_break_a_budget_all_are_looked_at() -> None:
    assert candidates(2, guarded=6) == [f"n{i}" for i in range(6)]


def test_without_any_node_nothing_is_said_of_preemption_and_the_nomination_goes() -> None:
    snapshot = snapshot_of(pod("high", cpu=1000, priority=5, nominated="gone"))
    pending = pending_of(snapshot, "high")
    attempt = Session(snapshot, POLICY).attempt(Unit((pending.row.uid,)))
    assert attempt is not None and attempt.preemption is None
    (member,) = attempt.members
    assert member.nominate is Nominate.CLEAR
    condition = pod_condition(attempt, member)
    assert condition.reason == "Unschedulable"
    assert condition.message == "no nodes available to schedule pods"
