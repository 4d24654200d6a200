"""Runs one recorded cycle of topology-aware scheduling: what came out, and what is expected."""

from __future__ import annotations

from typing import Any

from reprieve.engine.plan import Plan
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.plans import plan_of
from reprieve.engine.topology.places import Grounds, NodeUse
from reprieve.records.quota.record import inputs_of, policy_text
from reprieve.records.quota.replay import decide_quota_again
from tests.conformance.quota_objects import amount
from tests.conformance.quota_runners import Scheduler, expectations
from tests.conformance.topology_objects import nodes

Json = dict[str, Any]


def run_cycle(case: Json) -> tuple[Json, Json]:
    """Return the outcome of a cycle and the expectation, cut to what both have."""
    scheduler = Scheduler(case)
    scheduler.holdings.stand_on(grounds(case))
    result = scheduler.cycle()
    assert decided_again(scheduler, result) == [plan for _, plan in plans(scheduler, result)]
    outcome = scheduler.outcome(result)
    failing = {
        w["metadata"]["namespace"] + "/" + w["metadata"]["name"]
        for w in case["workloads"]
        if (w.get("status") or {}).get("unhealthyNodes")
    }
    outcome["admitted"] = sorted({*outcome["admitted"], *failing})
    outcome["newAssignments"] = {
        key: admission
        for key, admission in scheduler.assignments().items()
        if key in outcome["admitted"]
    }
    outcome["messages"] = messages(scheduler)
    expected = expectations({k: v for k, v in case["expect"].items() if k != "events"})
    expected.setdefault("evictedForNodeFailure", [])
    outcome["evictedForNodeFailure"] = sorted(
        f"{entry.workload.key}: {entry.message}" for entry in result.of(Outcome.NODE_FAILED)
    )
    return {key: outcome[key] for key in expected if key in outcome}, {
        key: value for key, value in expected.items() if key in outcome
    }


def plans(scheduler: Scheduler, result: CycleResult) -> list[tuple[str, Plan | None]]:
    """Return by preemptor the plans of a cycle."""
    configuration, tree = scheduler.holdings.configuration, scheduler.holdings.tree
    return [
        (each.workload.key, plan_of(each, tree, 1, policy_text(configuration, each.cluster_queue)))
        for each in result.entries
        if each.issued
    ]


def decided_again(scheduler: Scheduler, result: CycleResult) -> list[Plan | None]:
    """Return the plans that the stored inputs of a cycle give."""
    inputs = inputs_of(result, scheduler.holdings, scheduler.queues, scheduler.now)
    return [decide_quota_again(inputs[key]).plan(1) for key, _ in plans(scheduler, result)]


def grounds(case: Json) -> Grounds:
    """Return the nodes of a case, and its pods outside of topologies."""
    uses = [
        NodeUse(pod["node"], {r: amount(r, q) for r, q in (pod.get("requests") or {}).items()})
        for pod in case.get("pods") or ()
        if pod.get("phase") not in ("Succeeded", "Failed")
    ]
    return Grounds(nodes(case), uses)


def messages(scheduler: Scheduler) -> Json:
    """Return reason and message of those that are told why they wait."""
    found = {}
    for key, each in scheduler.statuses.objects.items():
        for condition in (each.get("status") or {}).get("conditions") or ():
            if condition["type"] == "QuotaReserved" and condition["status"] == "False":
                found[key] = {"reason": condition["reason"], "message": condition["message"]}
    return found
