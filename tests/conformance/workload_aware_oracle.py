"""What the oracle of the scheduling plane finds for a vector, by kind of case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.workload_aware_comparison import (
    COMPARED,
    differing,
    preemptor_group,
    preemptor_pod,
    target_node,
)
from tests.conformance.workload_aware_vectors import Json, Vector
from tests.oracle.scheduling import group, objects, preemption, units
from tests.oracle.scheduling.objects import Cluster, key_of, name_of
from tests.oracle.scheduling.preemption import Candidate, Choice


def differences(vector: Vector) -> list[str]:
    if vector.id.startswith("integration_"):
        return integration(vector)
    return COMPARED[vector.kind](vector, FOUND[vector.kind](vector))


def effective_priority(vector: Vector) -> int:
    return units.effective_priority(vector.case["pods"][0], Cluster.of(vector.case))


def preemption_policy(vector: Vector) -> str:
    groups = vector.case["podGroups"] or vector.case["compositePodGroups"]
    return preemption.group_policy(groups[0], vector.case["pending"], Cluster.of(vector.case))


def terminating(vector: Vector) -> bool:
    return units.terminating_by_preemption(vector.case["pods"][0])


def victim_order(vector: Vector) -> bool:
    a, b = (_unit(vector.case[side]) for side in "ab")
    return units.importance(a) < units.importance(b)


def _unit(given: Json) -> units.Unit:
    pods = tuple({"metadata": {"uid": ""}} for _ in range(given["size"]))
    start = given["earliestStartTime"] or units.NOW
    return units.Unit(pods, given["priority"], given["type"], start)


def pdb_split(vector: Vector) -> tuple[dict[int, int], list[int]]:
    given = [units.Unit(tuple(u["pods"]), 0, "pod", "") for u in vector.case["units"]]
    return units.split_by_budget(given, vector.case["pdbs"])


def victim_units(vector: Vector) -> list[units.Unit]:
    return units.cluster_units(Cluster.of(vector.case))


def victim_units_on_node(vector: Vector) -> list[units.Unit]:
    return units.node_units(target_node(vector), Cluster.of(vector.case))


def podgroup_domain(vector: Vector) -> Choice:
    case = vector.case
    return preemption.select_in_cluster(
        preemptor_group(vector), case["pending"], Cluster.of(case), vector.imposed
    )


def podgroup_eligibility(vector: Vector) -> Choice | None:
    return preemption.without_simulation(
        preemptor_group(vector), vector.case["pending"], Cluster.of(vector.case)
    )


def pod_eligibility(vector: Vector) -> bool:
    codes = {"Unschedulable": "U", "UnschedulableAndUnresolvable": "X"}
    refusal = codes.get(vector.case.get("nominatedNodeStatus") or "")
    return preemption.may_preempt(preemptor_pod(vector), Cluster.of(vector.case), refusal) is None


def pod_victims_on_node(vector: Vector) -> Candidate | tuple[str, str]:
    return preemption.victims_on_node(
        preemptor_pod(vector), target_node(vector), Cluster.of(vector.case)
    )


def pod_dryrun(vector: Vector) -> list[Candidate]:
    cluster = Cluster.of(vector.case)
    found, _ = preemption.dry_run(preemptor_pod(vector), cluster.nodes, cluster)
    return found


def pod_select_node(vector: Vector) -> tuple[list[Candidate], list[str]]:
    found = pod_dryrun(vector)
    return found, sorted(c.node for c in preemption.best_candidates(found, Cluster.of(vector.case)))


def pod_preempt(vector: Vector) -> Choice:
    cluster = Cluster.of(vector.case)
    every = {name_of(n): "U" for n in cluster.nodes}
    return preemption.preempt_for_pod(preemptor_pod(vector), cluster, every)


def pod_postfilter(vector: Vector) -> Choice:
    statuses = vector.case["filteredNodeStatuses"]
    codes = {n: "U" if s == "Unschedulable" else "X" for n, s in statuses.items()}
    return preemption.preempt_for_pod(preemptor_pod(vector), Cluster.of(vector.case), codes)


def executed(vector: Vector) -> group.Outcome:
    return group.cycle(vector.case, vector.imposed)


def integration(vector: Vector) -> list[str]:
    """A whole run: cycles until nothing is pending or preemption was tried once.

    Compared are the first attempt of preemption, under the placement that it had, and what fits
    before it. A run that evicts in several attempts is compared up to the first one.
    """
    case, expect = dict(vector.case), vector.expect
    attempts = expect["attempts"]
    imposed = attempts[0].get("placement") if attempts else None
    bound: dict[str, str] = {}
    while case["pending"]:
        outcome = group.cycle(case, imposed)
        if outcome.choice is not None or not outcome.bound:
            break
        bound |= outcome.bound
        placed = [p for p in case["pending"] if key_of(p) in bound]
        case["pods"] = [*case["pods"], *(objects.assumed(p, bound[key_of(p)]) for p in placed)]
        case["pending"] = [p for p in case["pending"] if key_of(p) not in bound]
    choice = outcome.choice
    if not attempts:
        return differing({"preemptionAttempted": False}, {"preemptionAttempted": bool(choice)})
    if choice is None:
        return [f"no preemption was tried; bound {bound}"]
    expected = {
        "status": attempts[0]["status"],
        "nominated": attempts[0].get("nominated") or None,
    }
    got: Json = {
        "status": {"code": choice.code, "message": choice.message},
        "nominated": choice.nominated,
        "victims": sorted(choice.victims),
    }
    if len({a["status"]["code"] for a in attempts if a["status"]["code"] == "Success"}) <= 1:
        expected["victims"] = sorted(expect["victims"])
    return differing(expected, got)


FOUND: dict[str, Callable[[Vector], Any]] = {
    "effective-priority": effective_priority,
    "preemption-policy": preemption_policy,
    "terminating-by-preemption": terminating,
    "victim-order": victim_order,
    "pdb-split": pdb_split,
    "victim-units": victim_units,
    "victim-units-on-node": victim_units_on_node,
    "podgroup-domain": podgroup_domain,
    "podgroup-eligibility": podgroup_eligibility,
    "pod-eligibility": pod_eligibility,
    "pod-victims-on-node": pod_victims_on_node,
    "pod-dryrun": pod_dryrun,
    "pod-select-node": pod_select_node,
    "pod-preempt": pod_preempt,
    "pod-postfilter": pod_postfilter,
    "executed": executed,
    "executed-status": executed,
}
