"""Vectors that are whole runs: the integration tables, and flows given step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from reprieve.engine.scheduling.nodes import domains
from reprieve.wording.kube_scheduler import ConditionText
from tests.conformance.workload_aware_comparison import differing
from tests.conformance.workload_aware_play import Play, preferred_placement, preferring
from tests.conformance.workload_aware_reserve import reserve_plugin
from tests.conformance.workload_aware_vectors import Json, Vector
from tests.engine.api_objects import policy_of
from tests.oracle.scheduling import units
from tests.oracle.scheduling.objects import Cluster

_LONG_ENOUGH = 10  # seconds: three attempts with their backoff, and no grace period of a pod
_HELD = {"gated", "unschedulable"}


def played(case: Json, placement: dict[str, str], seconds: int = _LONG_ENOUGH) -> Play:
    """A run with all objects there from its beginning."""
    scores = case.get("nodeScores") or {}
    plugin = case.get("mockReservePlugin")
    # The plugin stands where claims do, and these are judged anew only if they are simulated.
    policy = replace(policy_of(case), simulate_claims=plugin is not None)
    play = Play(policy, preferring(scores, placement))
    removed = case.get("removedCompositePodGroup")
    for kind in ("nodes", "compositePodGroups", "podGroups", "pdbs", "pods", "pending"):
        for given in case[kind]:
            if kind != "compositePodGroups" or given["metadata"]["name"] != removed:
                play.put(kind, given)
    best = patch.object(domains, "best_placement", preferred_placement(scores))
    with best, reserve_plugin(plugin):
        play.run(seconds)
    return play


def first_cycle(vector: Vector) -> list[str]:
    """What people see after the first cycle: conditions, events, marks on the victims."""
    case, expect = vector.case, vector.expect
    play = played(case, vector.imposed or {}, seconds=0)
    expected: Json = {}
    got: Json = {}
    if len(expect.get("winners") or ()) < 2:  # else the real choice was one of several
        expected["disruptionTarget"] = expect.get("disruptionTarget") or {}
        got["disruptionTarget"] = play.disrupted
    if "events" in expect:
        expected["events"], got["events"] = _sorted(expect["events"]), _sorted(play.events)
    if "podConditions" in expect:
        expected["podConditions"] = _triples(expect["podConditions"])
        got["podConditions"] = _told(play.pod_conditions)
        expected["podGroupConditions"] = _triples(expect["podGroupConditions"])
        got["podGroupConditions"] = _told(play.group_conditions)
    return differing(expected, got)


def _told(conditions: dict[str, ConditionText]) -> dict[str, tuple[str, str, str]]:
    return {
        key.partition("/")[2]: (each.status, each.reason, each.message)
        for key, each in conditions.items()
    }


def integration_under_our_placement(vector: Vector) -> list[str]:
    """The attempts end alike, and as many pods have a node and as many wait."""
    case, expect = vector.case, vector.expect
    play = played(case, {})
    codes = [each["status"]["code"] for each in expect["attempts"]]
    everybody = {pod["metadata"]["name"] for pod in case["pending"]}
    waiting = {key.partition("/")[2] for key, pod in play.objects.items() if not _node(pod)}
    expected: Json = {"codes": codes}
    if expect["scheduled"]:
        expected["bound"] = len(set(expect["scheduled"]) & everybody)
    found = [each["status"]["code"] for each in play.attempts]
    got = {"codes": found[: len(codes)], "bound": len(everybody - waiting)}
    return differing(expected, got)


def _node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


def integration(vector: Vector) -> list[str]:
    """A run under the placements that the real scheduler had."""
    case, expect = vector.case, vector.expect
    placement: dict[str, str] = {}
    for attempt in expect["attempts"]:
        placement |= attempt.get("placement") or {}
    play = played(case, placement)
    shown: list[Json] = [
        {"status": each["status"], "nominated": each.get("nominated") or None}
        for each in expect["attempts"]
    ]
    expected: Json = {
        "victims": sorted(expect["victims"]),
        "missing": [],
        "unschedulable": [],
        "podsWithNomination": [],
        "attempts": shown,
        "events": _sorted(expect["events"]),
        "disruptionTarget": expect["disruptionTarget"] or {},
        "podGroupConditions": _triples(expect["podGroupConditions"]),
    }
    conditions = _told(play.group_conditions)
    got: Json = {
        "victims": sorted(play.disrupted),
        "missing": sorted(set(expect["scheduled"]) - play.bound()),
        "unschedulable": sorted(set(expect["unschedulable"]) - play.unschedulable()),
        "podsWithNomination": sorted(
            set(expect["podsWithNomination"]) - {key.partition("/")[2] for key in play.nominated}
        ),
        "attempts": play.attempts[: len(shown)] if len(shown) == 3 else play.attempts,
        "events": _sorted(each for each in play.events if each["reason"] == "Preempted"),
        "disruptionTarget": play.disrupted,
        # What the last cycle said; groups whose pods were bound from the beginning had theirs.
        "podGroupConditions": {
            name: each
            for name, each in {**_of_bound(case), **conditions}.items()
            if name in (expect["podGroupConditions"] or {})
        },
    }
    if "eventOrder" in expect:
        expected["eventOrder"], got["eventOrder"] = expect["eventOrder"], play.order
    return differing(expected, got)


def _sorted(events: Iterable[Json]) -> list[Json]:
    """Victims end in any order; a pod as preemptor is not related on the real scheduler (9.2)."""
    kept = [
        {k: v for k, v in event.items() if k != "related" or "PodGroup:" in str(v)}
        for event in events
    ]
    return sorted(kept, key=str)


def _triples(conditions: Json) -> dict[str, tuple[str, str, str]]:
    return {
        name: (each["status"], each["reason"], each["message"])
        for name, each in (conditions or {}).items()
    }


def _of_bound(case: Json) -> dict[str, tuple[str, str, str]]:
    cluster = Cluster.of(case)
    groups = [units.group_of(pod, cluster) for pod in case["pods"]]
    return {
        group["metadata"]["name"]: ("True", "Scheduled", "")
        for group in groups
        if group is not None
    }


def steps(vector: Vector, topology_aware: bool) -> list[str]:
    """A flow: what is done and what is then seen, one step after the other."""
    case = vector.case
    features = {**case["features"], "TopologyAwareWorkloadScheduling": topology_aware}
    play = Play(policy_of({"features": features}))
    wrong = []
    for step in case["steps"]:
        for what, given in step.items():
            if what in _DONE:
                for each in given if isinstance(given, list) else [given]:
                    _do(play, what, each)
            elif what != "name":
                play.run(_LONG_ENOUGH)
                difference = _SEEN[what](play, given)
                if difference:
                    wrong.append(f"{step['name']}: {what}: {difference}")
    return wrong


_DONE = {
    "createNodes": "nodes",
    "createWorkloads": "",
    "createPodGroup": "podGroups",
    "updatePodGroup": "podGroups",
    "createPods": "pending",
    "createPodsInOrder": "pending",
    "deletePods": "",
}


def _do(play: Play, what: str, given: Any) -> None:
    if what == "deletePods":
        play.delete(f"default/{given}")
    elif what.startswith("update"):
        play.run(_LONG_ENOUGH)
        play.put(_DONE[what], given)
    elif _DONE[what]:
        play.put(_DONE[what], given)


def _scheduled(play: Play, names: list[str]) -> str:
    missing = sorted(set(names) - play.bound())
    return f"{missing} are not scheduled" if missing else ""


def _unschedulable(play: Play, names: list[str]) -> str:
    missing = sorted(set(names) - play.unschedulable())
    return f"{missing} are not unschedulable" if missing else ""


def _removed(play: Play, names: list[str]) -> str:
    there = [name for name in names if f"default/{name}" in play.objects]
    return f"{there} are there" if there else ""


def _incomplete(play: Play, names: list[str]) -> str:
    places = play.places(names)
    return "" if places == {"incomplete"} else f"places {places}"


def _held(play: Play, names: list[str]) -> str:
    places = play.places(names)
    return "" if places <= _HELD else f"places {places}"


def _any_scheduled(play: Play, given: Json) -> str:
    names = {pod["metadata"]["name"] for pod in given["pods"]}
    got = (len(names & play.bound()), len(names & play.unschedulable()))
    expected = (given["numScheduled"], given["numUnschedulable"])
    return "" if got == expected else f"expected {expected}, got {got}"


def _condition(play: Play, given: Json) -> str:
    found = play.group_conditions.get(f"default/{given['podGroupName']}")
    got = (found.status, found.reason) if found is not None else None
    expected = (given["conditionStatus"], given["reason"])
    return "" if got == expected else f"expected {expected}, got {got}"


def _tries(play: Play, given: Json) -> str:
    got = {play.tries.get(f"default/{name}", 0) for name in given["podNames"]}
    return "" if got == {given["attempts"]} else f"cycles {got}"


_SEEN: dict[str, Callable[[Play, Any], str]] = {
    "waitForPodsScheduled": _scheduled,
    "waitForPodsUnschedulable": _unschedulable,
    "waitForPodsRemoved": _removed,
    "waitForPodsInIncompletePodGroupPods": _incomplete,
    "waitForPodsInUnschedulableEntities": _held,
    "waitForAnyPodsScheduled": _any_scheduled,
    "waitForPodGroupCondition": _condition,
    "verifyPodSchedulingAttempts": _tries,
}
