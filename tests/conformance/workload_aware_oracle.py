"""Runs the oracle of the scheduling plane on a vector and says in what it differs.

One function per kind of case; each answers a list of differences in words, empty if there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from tests.conformance.workload_aware_vectors import Json, Vector
from tests.oracle.scheduling import group, objects, preemption, units
from tests.oracle.scheduling.objects import Cluster, key_of, name_of


def differences(vector: Vector) -> list[str]:
    return CHECKS[vector.kind](vector)


def differing(expected: Json, got: Json) -> list[str]:
    return [
        f"{name}: expected {wanted!r}, got {got.get(name)!r}"
        for name, wanted in expected.items()
        if got.get(name) != wanted
    ]


def _preemptor_group(vector: Vector) -> objects.Object:
    found = Cluster.of(vector.case).one("podGroups", vector.case["preemptor"]["podGroup"])
    assert found is not None
    return found


def _preemptor_pod(vector: Vector) -> objects.Object:
    wanted = vector.case["preemptor"]["pod"]
    pod: objects.Object = next(p for p in vector.case["pending"] if name_of(p) == wanted)
    return pod


def effective_priority(vector: Vector) -> list[str]:
    cluster = Cluster.of(vector.case)
    pods = vector.case["pods"]
    return differing(vector.expect, {"priority": units.effective_priority(pods[0], cluster)})


def preemption_policy(vector: Vector) -> list[str]:
    groups = vector.case["podGroups"] or vector.case["compositePodGroups"]
    policy = preemption.group_policy(groups[0], vector.case["pending"], Cluster.of(vector.case))
    return differing(vector.expect, {"preemptionPolicy": policy})


def terminating(vector: Vector) -> list[str]:
    found = units.terminating_by_preemption(vector.case["pods"][0])
    return differing(vector.expect, {"terminatingByPreemption": found})


def victim_order(vector: Vector) -> list[str]:
    a, b = (_unit(vector.case[side]) for side in "ab")
    return differing(
        vector.expect, {"aMoreImportantThanB": units.importance(a) < units.importance(b)}
    )


def _unit(given: Json) -> units.Unit:
    pods = tuple({"metadata": {"uid": ""}} for _ in range(given["size"]))
    start = given["earliestStartTime"] or units.NOW
    return units.Unit(pods, given["priority"], given["type"], start)


def pdb_split(vector: Vector) -> list[str]:
    given = [units.Unit(tuple(u["pods"]), 0, "pod", "") for u in vector.case["units"]]
    violating, others = units.split_by_budget(given, vector.case["pdbs"])
    got = {
        "violating": [{"index": i, "violateCount": n} for i, n in violating.items()],
        "nonViolating": others,
    }
    return differing(vector.expect, got)


def victim_units(vector: Vector) -> list[str]:
    return _units(vector, units.cluster_units(Cluster.of(vector.case)))


def victim_units_on_node(vector: Vector) -> list[str]:
    cluster = Cluster.of(vector.case)
    node = cluster.one("nodes", vector.case["targetNode"])
    assert node is not None
    return _units(vector, units.node_units(node, cluster))


def _units(vector: Vector, found: list[units.Unit]) -> list[str]:
    def plain(given: Json) -> Json:
        lists: Json = {name: sorted(given[name]) for name in ("pods", "nodes") if name in given}
        return {**given, **lists}

    expected = [plain(u) for u in vector.expect["units"]]
    got = [
        plain(
            {
                "pods": [key_of(p) for p in u.pods],
                "nodes": list({p["spec"]["nodeName"] for p in u.pods}),
                "priority": u.priority,
                "type": u.type,
            }
        )
        for u in found
    ]
    shown = [
        {name: u[name] for name in e}
        for e, u in zip(expected, sorted_like(expected, got), strict=False)
    ]
    return [] if len(expected) == len(got) and shown == expected else [f"{expected} got {got}"]


def sorted_like(expected: list[Json], got: list[Json]) -> list[Json]:
    order = [e["pods"] for e in expected]
    return sorted(got, key=lambda u: order.index(u["pods"]) if u["pods"] in order else len(order))


def _choice(choice: preemption.Choice) -> Json:
    return {
        "status": {"code": choice.code, "message": choice.message},
        "victims": sorted(choice.victims),
        "victimsOrder": list(choice.victims),
        "nominated": choice.nominated,
        "numPDBViolations": choice.violations,
        "numPodGroupDisruptions": choice.disruptions,
    }


def podgroup_domain(vector: Vector) -> list[str]:
    return _group_choice(
        vector,
        preemption.select_in_cluster(
            _preemptor_group(vector),
            vector.case["pending"],
            Cluster.of(vector.case),
            vector.imposed,
        ),
    )


def podgroup_eligibility(vector: Vector) -> list[str]:
    found = preemption.without_simulation(
        _preemptor_group(vector), vector.case["pending"], Cluster.of(vector.case)
    )
    return _group_choice(vector, found) if found else ["nothing was decided"]


def _group_choice(vector: Vector, choice: preemption.Choice) -> list[str]:
    expected = {k: v for k, v in vector.expect.items() if k != "schedulingFuncCalled"}
    expected["victims"] = sorted(expected["victims"])
    if "victimsOrder" in expected:
        expected["victimsOrder"] = _by_unit(expected["victimsOrder"], vector)
    got = _choice(choice)
    got["victimsOrder"] = _by_unit(choice.victims, vector)
    got["nominated"] = got["nominated"] or {}
    if "message" not in expected["status"]:
        del got["status"]["message"]
    return differing(expected, got)


def pod_eligibility(vector: Vector) -> list[str]:
    codes = {"Unschedulable": "U", "UnschedulableAndUnresolvable": "X"}
    refusal = codes.get(vector.case.get("nominatedNodeStatus") or "")
    found = preemption.may_preempt(_preemptor_pod(vector), Cluster.of(vector.case), refusal)
    return differing(vector.expect, {"eligible": found is None})


def pod_victims_on_node(vector: Vector) -> list[str]:
    cluster = Cluster.of(vector.case)
    node = cluster.one("nodes", vector.case["targetNode"])
    assert node is not None
    found = preemption.victims_on_node(_preemptor_pod(vector), node, cluster)
    if isinstance(found, preemption.Candidate):
        victims = [key_of(p) for p in found.victims]
        got = {
            "status": {"code": "Success", "message": ""},
            "victims": sorted(victims),
            "victimsOrder": _by_unit(victims, vector),
            "numPDBViolations": found.violations,
        }
    else:
        got = {"status": {"code": found[0], "message": found[1]}, "victims": []}
    expected = {**vector.expect, "victims": sorted(vector.expect["victims"])}
    if "victimsOrder" in expected:
        expected["victimsOrder"] = _by_unit(expected["victimsOrder"], vector)
    return differing(expected, got)


def pod_dryrun(vector: Vector) -> list[str]:
    """With a scan start that is not described: each candidate is one of a full scan."""
    cluster = Cluster.of(vector.case)
    found, _ = preemption.dry_run(_preemptor_pod(vector), cluster.nodes, cluster)
    got = [_candidate(c, vector, ordered=False) for c in found]
    expected = [{**c, "victims": sorted(c["victims"])} for c in vector.expect["candidates"]]
    if not vector.case.get("sequentialScan"):
        return differing({"candidates": expected}, {"candidates": got})
    arguments = vector.case["args"]
    wanted = preemption.wanted_candidates(
        len(cluster.nodes),
        arguments["MinCandidateNodesPercentage"],
        arguments["MinCandidateNodesAbsolute"],
    )
    strangers = [c for c in expected if c not in got]
    violations_only = all(c["numPDBViolations"] for c in expected[:wanted])
    more_allowed = any(c["numPDBViolations"] for c in expected)
    if strangers or (len(expected) > wanted and not more_allowed) or violations_only:
        return [f"expected {expected}, full scan {got}, wanted {wanted}"]
    return []


def _candidate(candidate: preemption.Candidate, vector: Vector, ordered: bool = True) -> Json:
    victims = [key_of(p) for p in candidate.victims]
    shown = {"node": candidate.node, "numPDBViolations": candidate.violations}
    if ordered:
        return {**shown, "victimsOrder": _by_unit(victims, vector)}
    return {**shown, "victims": sorted(victims)}


def _expected_candidate(given: Json, vector: Vector) -> Json:
    # The real pod preemption never counts groups.
    kept = {k: v for k, v in given.items() if k != "numPodGroupDisruptions"}
    return {**kept, "victimsOrder": _by_unit(given["victimsOrder"], vector)}


def _by_unit(victims: Iterable[str], vector: Vector) -> list[str]:
    """The order of units; inside a unit of several pods the real order is random."""
    cluster = Cluster.of(vector.case)
    units_of = {
        key_of(p): number
        for number, unit in enumerate(units.cluster_units(cluster))
        for p in unit.pods
    }
    return [v for _, run in groupby(victims, units_of.__getitem__) for v in sorted(run)]


def pod_select_node(vector: Vector) -> list[str]:
    cluster = Cluster.of(vector.case)
    found, _ = preemption.dry_run(_preemptor_pod(vector), cluster.nodes, cluster)
    best = sorted(c.node for c in preemption.best_candidates(found))
    got = sorted((_candidate(c, vector) for c in found), key=lambda c: str(c["node"]))
    given = sorted(vector.expect["candidates"], key=lambda c: str(c["node"]))
    expected = [_expected_candidate(c, vector) for c in given]
    return differing(
        {"anyOfNodes": sorted(vector.expect["anyOfNodes"]), "candidates": expected},
        {"anyOfNodes": best, "candidates": got},
    )


def pod_preempt(vector: Vector) -> list[str]:
    cluster = Cluster.of(vector.case)
    every = {name_of(n): "U" for n in cluster.nodes}
    choice = preemption.preempt_for_pod(_preemptor_pod(vector), cluster, every)
    return differing(
        {**vector.expect, "victims": sorted(vector.expect["victims"])}, _choice(choice)
    )


def pod_postfilter(vector: Vector) -> list[str]:
    statuses = vector.case["filteredNodeStatuses"]
    codes = {n: "U" if s == "Unschedulable" else "X" for n, s in statuses.items()}
    choice = preemption.preempt_for_pod(_preemptor_pod(vector), Cluster.of(vector.case), codes)
    got = _choice(choice)
    got["status"]["message"] = f"preemption: {choice.message}"
    return differing(vector.expect, got)


def executed(vector: Vector) -> list[str]:
    """The first attempt of a case that was executed on the real scheduler."""
    if vector.id.startswith("integration_"):
        return integration(vector)
    return first_attempt(vector, group.cycle(vector.case, vector.imposed))


def first_attempt(vector: Vector, outcome: group.Outcome, *, ties: bool = True) -> list[str]:
    """The differences of an outcome; `ties`: it names every node that may win."""
    expect, choice = vector.expect, outcome.choice
    expected: dict[str, Any] = {"preemptionAttempted": expect["preemptionAttempted"]}
    got: dict[str, Any] = {"preemptionAttempted": choice is not None}
    if "podConditions" in expect:
        expected["podConditions"] = {
            n: (c["reason"], c["message"]) for n, c in expect["podConditions"].items()
        }
        got["podConditions"] = {k.split("/")[1]: c for k, c in outcome.pod_conditions.items()}
        expected["podGroupConditions"] = [
            (c["reason"], c["message"]) for c in expect["podGroupConditions"].values()
        ]
        got["podGroupConditions"] = [outcome.group_condition] if outcome.group_condition else []
    expected["victims"], got["victims"] = sorted(expect["victims"]), []
    if choice is None:
        return differing(expected, got)
    winners = expect.get("winners")
    if winners:
        # The real node is any of the winners; ours is the first of them by name.
        expected["winners"] = sorted(winners) if ties else [min(winners)]
        candidate = next(c for c in expect["candidates"] if c["node"] == min(winners))
        expected["victims"] = sorted(candidate["victimsOrder"])
        expected["nominated"] = {key_of(_preemptor_pod(vector)): min(winners)}
        got["winners"] = list(choice.winners)
    else:
        expected["status"] = expect["status"]
        # A simulated cycle that failed shows {}, one that was not tried None: no nomination either.
        expected["nominated"] = expect["nominated"] or None
    if "candidates" in expect:
        given = sorted(expect["candidates"], key=lambda c: str(c["node"]))
        expected["candidates"] = [_expected_candidate(c, vector) for c in given]
        found = sorted(choice.candidates, key=lambda c: c.node)
        got["candidates"] = [_candidate(c, vector) for c in found]
    if "nodeStatus" in expect:
        mine = {c["node"] for c in expect.get("candidates") or ()}
        expected["nodeStatus"] = {n: s for n, s in expect["nodeStatus"].items() if n not in mine}
        got["nodeStatus"] = {n: f"{c}|{t}" for n, (c, t) in choice.refused_nodes.items()}
    return differing(expected, {**_choice(choice), **got, "victims": sorted(choice.victims)})


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
    if len({a["status"]["code"] for a in attempts if a["status"]["code"] == "Success"}) <= 1:
        expected["victims"] = sorted(expect["victims"])
    return differing(expected, _choice(choice))


CHECKS: dict[str, Callable[[Vector], list[str]]] = {
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
