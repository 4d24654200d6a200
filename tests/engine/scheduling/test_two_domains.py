"""Members whose own nodes fix no single domain of a constraint: said which, and nobody goes."""

from __future__ import annotations

from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from reprieve.wording.kube_scheduler import explanation_text
from tests.engine.builders import gang, node, pod, snapshot_of


def test_two_domains_are_unschedulable_and_named_and_no_fault_of_the_scheduler() -> None:
    snapshot = snapshot_of(
        node("n1", labels={"zone": "b"}),
        node("n2", labels={"zone": "a"}),
        pod("low", node="n1", cpu=1000, priority=1),
        gang(3, "g", priority=10, topology_key="zone", nodes=["n1", "n2"], cpu=1000),
    )
    attempt = Session(snapshot, Policy()).attempt(Unit(tuple(snapshot.pending), "default/g"))
    assert attempt is not None
    assert (attempt.code, attempt.scheduler_error) == (Code.UNSCHEDULABLE, False)
    assert attempt.plan is None
    assert explanation_text(attempt.status[0]) == (
        "cannot determine domain for already scheduled pods: "
        "more than 1 domain found for pod group: a, b"
    )


def test_a_member_whose_node_is_gone_is_an_error_that_names_it() -> None:
    snapshot = snapshot_of(
        node("n1", labels={"zone": "a"}),
        pod("low", node="n1", cpu=64_000, priority=1),
        gang(3, "g", priority=10, topology_key="zone", nodes=["n1", "removed"], cpu=1000),
    )
    attempt = Session(snapshot, Policy()).attempt(Unit(tuple(snapshot.pending), "default/g"))
    assert attempt is not None
    assert (attempt.code, attempt.scheduler_error) == (Code.ERROR, True)
    assert attempt.plan is None
    assert explanation_text(attempt.status[0]) == (
        "cannot determine domain for already scheduled pods: "
        "getting node for pod default/g-1: node not found"
    )
