"""Nodes kept for others: a unit has to fit beside them, and without them (specification 8.7)."""

from __future__ import annotations

from reprieve.engine.cluster.rows import AffinityTerm, Change
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code, Reason, Rejection
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid
from tests.engine.builders import cluster_of, matching, node, pod


def attempt_of(*rows: Change, of: str = "p") -> Attempt:
    attempt = Session(cluster_of(*rows).snapshot(), Policy()).attempt(Unit((Uid(f"pod-{of}"),)))
    assert attempt is not None
    return attempt


def test_room_is_kept_for_a_nominated_pod_of_equal_priority() -> None:
    attempt = attempt_of(
        node("n1", cpu=1000),
        pod("other", cpu=800, nominated="n1", priority=5),
        pod("p", cpu=800, priority=5),
    )
    (member,) = attempt.members
    assert attempt.code is Code.UNSCHEDULABLE
    assert member.diagnosis is not None
    assert member.diagnosis.counts == ((Reason(Rejection.INSUFFICIENT, "cpu"), 1),)


def test_a_nominated_pod_of_lower_priority_keeps_nobody_out() -> None:
    attempt = attempt_of(
        node("n1", cpu=1000),
        pod("other", cpu=800, nominated="n1", priority=4),
        pod("p", cpu=800, priority=5),
    )
    assert [member.bind for member in attempt.members] == ["n1"]


def test_a_nominated_pod_does_not_count_in_scores() -> None:
    attempt = attempt_of(
        node("n1", cpu=8000),
        node("n2", cpu=8000),
        pod("other", cpu=4000, nominated="n1", priority=5),
        pod("p", cpu=1000, priority=5),
    )
    assert [member.bind for member in attempt.members] == ["n1"]


def test_nobody_follows_a_pod_that_is_only_nominated() -> None:
    """Its affinity would hold beside the other, who may never come."""
    near = AffinityTerm("kubernetes.io/hostname", matching({"app": "a"}), ("default",))
    attempt = attempt_of(
        node("n1"),
        pod("other", nominated="n1", priority=5, labels={"app": "a"}),
        pod("p", priority=5, affinity=(near,)),
    )
    (member,) = attempt.members
    assert member.diagnosis is not None
    assert member.diagnosis.counts == ((Reason(Rejection.POD_AFFINITY), 1),)


def test_a_nomination_on_another_node_of_the_zone_keeps_nobody_out_here() -> None:
    apart = AffinityTerm("zone", matching({"app": "a"}), ("default",))
    attempt = attempt_of(
        node("n1", labels={"zone": "z"}),
        node("n2", labels={"zone": "z"}),
        pod("other", nominated="n1", priority=5, labels={"app": "a"}),
        pod("p", priority=5, anti_affinity=(apart,)),
    )
    assert [member.bind for member in attempt.members] == ["n2"]
