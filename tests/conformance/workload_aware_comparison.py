"""What was found for a vector of workload-aware preemption, against what the vector expects.

One function per kind of case; each takes the vector and what somebody found, in the types of the
oracle, and answers a list of differences in words, empty if there is none. The oracle and the
engine are compared by the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from tests.conformance.workload_aware_vectors import Json, Vector
from tests.oracle.scheduling import objects, preemption, units
from tests.oracle.scheduling.group import Outcome
from tests.oracle.scheduling.objects import Cluster, key_of, name_of
from tests.oracle.scheduling.preemption import Candidate, Choice

Failure = tuple[str, str]  # code and text


def differing(expected: Json, got: Json) -> list[str]:
    return [
        f"{name}: expected {wanted!r}, got {got.get(name)!r}"
        for name, wanted in expected.items()
        if got.get(name) != wanted
    ]


def preemptor_group(vector: Vector) -> objects.Object:
    found = Cluster.of(vector.case).one("podGroups", vector.case["preemptor"]["podGroup"])
    assert found is not None
    return found


def preemptor_pod(vector: Vector) -> objects.Object:
    wanted = vector.case["preemptor"]["pod"]
    pod: objects.Object = next(p for p in vector.case["pending"] if name_of(p) == wanted)
    return pod


def target_node(vector: Vector) -> objects.Object:
    node = Cluster.of(vector.case).one("nodes", vector.case["targetNode"])
    assert node is not None
    return node


def effective_priority(vector: Vector, found: int) -> list[str]:
    return differing(vector.expect, {"priority": found})


def preemption_policy(vector: Vector, found: str) -> list[str]:
    return differing(vector.expect, {"preemptionPolicy": found})


def terminating(vector: Vector, found: bool) -> list[str]:
    return differing(vector.expect, {"terminatingByPreemption": found})


def victim_order(vector: Vector, found: bool) -> list[str]:
    return differing(vector.expect, {"aMoreImportantThanB": found})


def pdb_split(vector: Vector, found: tuple[dict[int, int], list[int]]) -> list[str]:
    violating, others = found
    got = {
        "violating": [{"index": i, "violateCount": n} for i, n in violating.items()],
        "nonViolating": others,
    }
    return differing(vector.expect, got)


def victim_units(vector: Vector, found: list[units.Unit]) -> list[str]:
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
        for e, u in zip(expected, _sorted_like(expected, got), strict=False)
    ]
    return [] if len(expected) == len(got) and shown == expected else [f"{expected} got {got}"]


def _sorted_like(expected: list[Json], got: list[Json]) -> list[Json]:
    order = [e["pods"] for e in expected]
    return sorted(got, key=lambda u: order.index(u["pods"]) if u["pods"] in order else len(order))


def _choice(choice: Choice) -> Json:
    return {
        "status": {"code": choice.code, "message": choice.message},
        "victims": sorted(choice.victims),
        "victimsOrder": list(choice.victims),
        "nominated": choice.nominated,
        "numPDBViolations": choice.violations,
        "numPodGroupDisruptions": choice.disruptions,
    }


def group_choice(vector: Vector, found: Choice | None) -> list[str]:
    if found is None:
        return ["nothing was decided"]
    expected = {k: v for k, v in vector.expect.items() if k != "schedulingFuncCalled"}
    expected["victims"] = sorted(expected["victims"])
    if "victimsOrder" in expected:
        expected["victimsOrder"] = _by_unit(expected["victimsOrder"], vector)
    got = _choice(found)
    got["victimsOrder"] = _by_unit(found.victims, vector)
    got["nominated"] = got["nominated"] or {}
    if "message" not in expected["status"]:
        del got["status"]["message"]
    return differing(expected, got)


def pod_eligibility(vector: Vector, found: bool) -> list[str]:
    return differing(vector.expect, {"eligible": found})


def pod_victims_on_node(vector: Vector, found: Candidate | Failure) -> list[str]:
    if isinstance(found, Candidate):
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


def pod_dryrun(vector: Vector, found: list[Candidate]) -> list[str]:
    """With a scan start that is not described: each candidate is one of a full scan."""
    got = [_candidate(c, vector, ordered=False) for c in found]
    expected = [{**c, "victims": sorted(c["victims"])} for c in vector.expect["candidates"]]
    if not vector.case.get("sequentialScan"):
        by_node = {name: sorted(each, key=_node_of) for name, each in (("e", expected), ("g", got))}
        return differing({"candidates": by_node["e"]}, {"candidates": by_node["g"]})
    arguments = vector.case["args"]
    wanted = preemption.wanted_candidates(
        len(vector.case["nodes"]),
        arguments["MinCandidateNodesPercentage"],
        arguments["MinCandidateNodesAbsolute"],
    )
    strangers = [c for c in expected if c not in got]
    violations_only = all(c["numPDBViolations"] for c in expected[:wanted])
    more_allowed = any(c["numPDBViolations"] for c in expected)
    if strangers or (len(expected) > wanted and not more_allowed) or violations_only:
        return [f"expected {expected}, full scan {got}, wanted {wanted}"]
    return []


def _node_of(candidate: Json) -> str:
    return str(candidate["node"])


def _candidate(candidate: Candidate, vector: Vector, ordered: bool = True) -> Json:
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


def pod_select_node(vector: Vector, found: tuple[list[Candidate], list[str] | str]) -> list[str]:
    """`found`: candidates, and the nodes that may win, or the one that does: the first by name."""
    candidates, best = found
    any_of = sorted(vector.expect["anyOfNodes"])
    got = sorted((_candidate(c, vector) for c in candidates), key=_node_of)
    given = sorted(vector.expect["candidates"], key=_node_of)
    expected = [_expected_candidate(c, vector) for c in given]
    return differing(
        {"anyOfNodes": any_of[0] if isinstance(best, str) else any_of, "candidates": expected},
        {"anyOfNodes": best, "candidates": got},
    )


def pod_preempt(vector: Vector, found: Choice) -> list[str]:
    return differing({**vector.expect, "victims": sorted(vector.expect["victims"])}, _choice(found))


def pod_postfilter(vector: Vector, found: Choice) -> list[str]:
    got = _choice(found)
    got["status"]["message"] = f"preemption: {found.message}"
    return differing(vector.expect, got)


def executed(vector: Vector, found: Outcome) -> list[str]:
    """The first attempt of a case that was executed on the real scheduler."""
    expect, choice = vector.expect, found.choice
    expected: dict[str, Any] = {"preemptionAttempted": expect["preemptionAttempted"]}
    got: dict[str, Any] = {"preemptionAttempted": choice is not None}
    if "podConditions" in expect:
        expected["podConditions"] = {
            n: (c["reason"], c["message"]) for n, c in expect["podConditions"].items()
        }
        got["podConditions"] = {k.split("/")[1]: c for k, c in found.pod_conditions.items()}
        expected["podGroupConditions"] = [
            (c["reason"], c["message"]) for c in expect["podGroupConditions"].values()
        ]
        got["podGroupConditions"] = [found.group_condition] if found.group_condition else []
    expected["victims"], got["victims"] = sorted(expect["victims"]), []
    if choice is None:
        return differing(expected, got)
    winners = expect.get("winners")
    if winners:
        # The real node is any of the winners; ours is the first of them by name.
        if choice.winners:  # who names them all is held to it
            expected["winners"] = sorted(winners)
        candidate = next(c for c in expect["candidates"] if c["node"] == min(winners))
        expected["victims"] = sorted(candidate["victimsOrder"])
        expected["nominated"] = {key_of(preemptor_pod(vector)): min(winners)}
        got["winners"] = list(choice.winners)
    else:
        expected["status"] = expect["status"]
        # A simulated cycle that failed shows {}, one that was not tried None: no nomination either.
        expected["nominated"] = expect["nominated"] or None
    if "candidates" in expect:
        given = sorted(expect["candidates"], key=_node_of)
        expected["candidates"] = [_expected_candidate(c, vector) for c in given]
        got["candidates"] = [
            _candidate(c, vector) for c in sorted(choice.candidates, key=lambda c: c.node)
        ]
    if "nodeStatus" in expect:
        mine = {c["node"] for c in expect.get("candidates") or ()}
        expected["nodeStatus"] = {n: s for n, s in expect["nodeStatus"].items() if n not in mine}
        got["nodeStatus"] = {n: f"{c}|{t}" for n, (c, t) in choice.refused_nodes.items()}
    return differing(expected, {**_choice(choice), **got, "victims": sorted(choice.victims)})


COMPARED: dict[str, Callable[[Vector, Any], list[str]]] = {
    "effective-priority": effective_priority,
    "preemption-policy": preemption_policy,
    "terminating-by-preemption": terminating,
    "victim-order": victim_order,
    "pdb-split": pdb_split,
    "victim-units": victim_units,
    "victim-units-on-node": victim_units,
    "podgroup-domain": group_choice,
    "podgroup-eligibility": group_choice,
    "pod-eligibility": pod_eligibility,
    "pod-victims-on-node": pod_victims_on_node,
    "pod-dryrun": pod_dryrun,
    "pod-select-node": pod_select_node,
    "pod-preempt": pod_preempt,
    "pod-postfilter": pod_postfilter,
    "executed": executed,
    "executed-status": executed,
}
