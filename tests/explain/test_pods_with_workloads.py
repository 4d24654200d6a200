"""A Deployment in the quota plane, whose pods have a Workload each: what is stated of it."""

from __future__ import annotations

from reprieve.answers.document import Answer, State
from tests.explain.objects import Json, admission, condition, job, obj, pod, record, workload
from tests.explain.stories import Story, answered

GATES = [{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]
LACKS = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
    "flavor h100, 8 more needed"
)
SERVE = obj("apps/v1", "Deployment", "serve", spec={"replicas": 2}, status={})
REPLICAS = obj("apps/v1", "ReplicaSet", "serve-576cb9b598", owner=SERVE, spec={}, status={})


def admitted(name: str = "serve-576cb9b598-7zwkk", made: float = 30) -> list[Json]:
    """Return a pod that runs, with its Workload."""
    running = pod(name, "n1", owner=REPLICAS, made=made)
    conditions = (condition("QuotaReserved", True), condition("Admitted", True))
    return [running, workload(running, *conditions, status=admission())]


def held(name: str = "serve-576cb9b598-gtx97", made: float = 10) -> list[Json]:
    """Return a pod that its gates hold, with its Workload."""
    waiting = pod(name, spec={"schedulingGates": GATES}, owner=REPLICAS, made=made)
    return [waiting, workload(waiting, condition("QuotaReserved", False, LACKS, "Pending"))]


def asked(*objects: Json) -> Answer:
    return answered(Story("deployment/serve", [SERVE, REPLICAS, *objects]))


def test_a_deployment_of_which_one_pod_has_no_quota_waits_for_quota() -> None:
    answer = asked(*admitted(), *held())
    assert answer.state is State.WAITS
    assert answer.verdict.startswith("1 of 2 pods of Deployment team/serve wait: ")
    assert answer.waiting is not None and answer.waiting.plane == "quota"
    assert not any("gate" in each.text for each in answer.next_steps)


def test_the_pod_without_quota_counts_also_where_the_other_one_is_younger() -> None:
    answer = asked(*admitted(made=5), *held())
    assert answer.state is State.WAITS


def test_a_deployment_whose_pods_all_have_quota_runs() -> None:
    assert asked(*admitted()).state is State.RUNS


def test_a_gate_of_another_controller_is_named_once_there_is_quota() -> None:
    waiting, its_workload = held()
    waiting["spec"]["schedulingGates"] = [*GATES, {"name": "example.com/data"}]
    answer = asked(*admitted(), waiting, its_workload)
    assert answer.waiting is not None and answer.waiting.plane == "quota"
    waiting["spec"]["schedulingGates"] = [{"name": "example.com/data"}]
    _, running = admitted("serve-576cb9b598-gtx97")
    answer = asked(waiting, running)
    assert answer.state is State.STOPPED and "example.com/data" in answer.verdict


def test_a_former_pod_of_it_that_was_evicted_is_a_displacement_of_the_deployment() -> None:
    former = pod("serve-576cb9b598-h7f5b", owner=REPLICAS)
    rule = "it used quota that another queue has lent and reclaims"
    evicted = record("quota", job("owner"), [workload(former)], rule=rule)
    answer = asked(*admitted(), *held(), evicted)
    assert answer.verdict.startswith("1 of 2 pods of Deployment team/serve wait again: ")
    assert [each.rule for each in answer.displaced] == [rule]


def test_pods_of_another_deployment_with_a_longer_name_are_not_its_own() -> None:
    former = pod("serve-canary-576cb9b598-h7f5b")
    evicted = record("quota", job("owner"), [workload(former)], rule="reclaimed")
    assert asked(*admitted(), *held(), evicted).displaced == []
