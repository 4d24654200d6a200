"""What the engine finds for a vector of workload-aware preemption, in the types of the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from reprieve.engine.cluster.arrays import Mask
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Flag, Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.group_preemption import preempt_for_group, select_victims
from reprieve.engine.scheduling.nodes.domains import GroupPlacing
from reprieve.engine.scheduling.nodes.placing import best_node
from reprieve.engine.scheduling.outcome import Attempt, Member, Nominate, Preemption, Sentence, Unit
from reprieve.engine.scheduling.plans import plan_of
from reprieve.engine.scheduling.pod_preemption import choose_node, preempt_after
from reprieve.engine.scheduling.victims.budget_matches import budget_matches
from reprieve.engine.scheduling.victims.budgets import violating_pods
from reprieve.engine.scheduling.victims.hierarchy import as_preemptor, effective_priority
from reprieve.engine.scheduling.victims.importance import importance_order
from reprieve.engine.scheduling.victims.units import Units, potential_units
from tests.conformance.workload_aware_comparison import COMPARED, preemptor_pod
from tests.conformance.workload_aware_vectors import Json, Vector
from tests.engine.api_objects import cluster_of, key_of, policy_of
from tests.engine.scheduling import engine_cycle
from tests.oracle.scheduling import units
from tests.oracle.scheduling.group import Outcome
from tests.oracle.scheduling.preemption import Candidate, Choice

_TYPES = ("pod", "podgroup", "compositepodgroup")
_CODES = {"Unschedulable": Rejection.RESOURCES, "UnschedulableAndUnresolvable": Rejection.TAINT}


def differences(vector: Vector) -> list[str]:
    return COMPARED[vector.kind](vector, FOUND[vector.kind](vector))


# Units, their order and their budgets.


def priority(vector: Vector) -> int:
    snapshot = _placed(vector)
    return int(effective_priority(snapshot, policy_of(vector.case))[snapshot.pod_node >= 0][0])


def terminating(vector: Vector) -> bool:
    snapshot = _placed(vector)
    return bool((snapshot.pod_flags[snapshot.pod_node >= 0][0]) & Flag.PREEMPTED)


def _placed(vector: Vector) -> Snapshot:
    """The snapshot with the case's pods on some node."""
    pods = [{**pod, "spec": {**pod["spec"], "nodeName": "node"}} for pod in vector.case["pods"]]
    node = {"metadata": {"name": "node"}, "spec": {}, "status": {}}
    return cluster_of({**vector.case, "pods": pods, "nodes": [node]}).snapshot()


def victim_order(vector: Vector) -> bool:
    seconds = {
        each["earliestStartTime"]: place
        for place, each in enumerate(
            sorted((vector.case[side] for side in "ab"), key=lambda u: str(u["earliestStartTime"]))
        )
    }
    a, b = vector.case["a"], vector.case["b"]
    return (
        int(
            importance_order(
                np.array([a["priority"], b["priority"]], np.int64),
                np.array([_TYPES.index(a["type"]), _TYPES.index(b["type"])], np.int64),
                np.array([a["size"], b["size"]], np.int64),
                np.array([seconds[a["earliestStartTime"]], seconds[b["earliestStartTime"]]]),
                lambda unit: "ba"[unit],  # equal in all that is given: a is not more important
            )[0]
        )
        == 0
    )


def pdb_split(vector: Vector) -> tuple[dict[int, int], list[int]]:
    """Each unit of the case becomes a group that goes as a whole."""
    case: Json = {"nodes": [{"metadata": {"name": "node"}}], "pods": [], "podGroups": []}
    case["pdbs"] = vector.case["pdbs"]
    for number, unit in enumerate(vector.case["units"]):
        spec: Json = {"disruptionMode": {"all": {}}, "schedulingPolicy": {"basic": {}}}
        case["podGroups"].append({"metadata": {"name": f"unit-{number}"}, "spec": spec})
        for pod in unit["pods"]:
            group = {"podGroupName": f"unit-{number}"}
            spec = {**pod["spec"], "nodeName": "node", "schedulingGroup": group}
            case["pods"].append({**pod, "spec": spec})
    snapshot = cluster_of(case).snapshot()
    found = all_units(snapshot, Policy())
    slots = [snapshot.pod_keys.index(key_of(unit["pods"][0])) for unit in vector.case["units"]]
    order = found.of_slot[np.array(slots, np.int64)]
    policy = policy_of(vector.case)
    simulation = Simulation(snapshot, policy, policy.profiles[0])
    violating = violating_pods(found, order, budget_matches(simulation)).tolist()
    return {i: n for i, n in enumerate(violating) if n}, [
        i for i, n in enumerate(violating) if not n
    ]


def all_units(snapshot: Snapshot, policy: Policy, on: Mask | None = None) -> Units:
    """All units, whatever their priority."""
    return potential_units(snapshot, snapshot.pod_node >= 0, 2**62, policy, on=on)


def victim_units(vector: Vector) -> list[units.Unit]:
    snapshot = cluster_of(vector.case).snapshot()
    return _units(vector, all_units(snapshot, policy_of(vector.case)))


def victim_units_on_node(vector: Vector) -> list[units.Unit]:
    snapshot = cluster_of(vector.case).snapshot()
    on = np.zeros(len(snapshot.nodes), np.bool_)
    on[snapshot.node_index[vector.case["targetNode"]]] = True
    return _units(vector, all_units(snapshot, policy_of(vector.case), on=on))


def _units(vector: Vector, found: Units) -> list[units.Unit]:
    pods = {key_of(pod): pod for pod in vector.case["pods"]}
    keys = found.snapshot.pod_keys
    return [
        units.Unit(
            tuple(pods[keys[slot]] for slot in found.pods(unit).tolist()),
            int(found.priority[unit]),
            _TYPES[found.grouped[unit]],
            "",
        )
        for unit in range(len(found))
    ]


# Groups.


def preemption_policy(vector: Vector) -> str:
    """The root of a tree answers as a group does."""
    (root,) = vector.case["podGroups"] or vector.case["compositePodGroups"]
    group = {"podGroupName": root["metadata"]["name"]}
    pending = [
        {**pod, "spec": {**pod["spec"], "schedulingGroup": group}} for pod in vector.case["pending"]
    ]
    found, _ = _for_group({**vector.case, "podGroups": [root], "pending": pending}, None)
    never = found.explanation.sentence is Sentence.NOT_ELIGIBLE_POLICY
    return "Never" if never else "PreemptLowerPriority"


def podgroup_eligibility(vector: Vector) -> Choice:
    return _group_choice(vector.case, *_for_group(vector.case, vector.imposed))


def podgroup_domain(vector: Vector) -> Choice:
    """What these cases ask for comes after eligibility."""
    found = _for_group(vector.case, vector.imposed, may_preempt=True)
    return _group_choice(vector.case, *found)


def _for_group(
    case: Json, imposed: Mapping[str, str] | None, *, may_preempt: bool = False
) -> tuple[Preemption, Snapshot]:
    """Preemption alone, as these cases ask for it whether or not the group fits without."""
    snapshot = cluster_of(case).snapshot()
    policy = policy_of(case)
    choose = best_node if imposed is None else engine_cycle.imposed_by(imposed)
    group = snapshot.group_rows[snapshot.group_index[f"default/{_group_name(case)}"]]
    assert group is not None
    by_key = {f"{p.row.namespace}/{p.row.name}": p for p in snapshot.pending.values()}
    queued = [by_key[key_of(pod)] for pod in case["pending"]]
    simulation = Simulation(snapshot, policy, policy.profiles[0])
    if may_preempt:
        return select_victims(simulation, group, queued, policy, choose), snapshot
    nowhere = GroupPlacing((-1,) * len(queued), (None,) * len(queued), None)
    return preempt_for_group(simulation, group, queued, policy, choose, nowhere), snapshot


def _group_name(case: Json) -> str:
    named = (case.get("preemptor") or {}).get("podGroup")
    return str(named or case["podGroups"][0]["metadata"]["name"])


def _group_choice(case: Json, found: Preemption, snapshot: Snapshot) -> Choice:
    by_key = {f"{p.row.namespace}/{p.row.name}": p.row.uid for p in snapshot.pending.values()}
    members = tuple(Member(by_key[key_of(pod)]) for pod in case["pending"])
    unit = Unit(tuple(member.uid for member in members), f"default/{_group_name(case)}")
    attempt = Attempt(unit, Code.UNSCHEDULABLE, members, preemption=found)
    choice = engine_cycle.told(case, snapshot, policy_of(case), attempt).choice
    assert choice is not None
    group = snapshot.group_rows[snapshot.group_index[unit.group]]
    assert group is not None
    queued = [snapshot.pending[uid] for uid in unit.pods]
    _assert_proven(case, snapshot, attempt, as_preemptor(snapshot, policy_of(case), group, queued))
    return choice._replace(message=choice.message.removeprefix("pod group preemption: "))


def _assert_proven(
    case: Json, snapshot: Snapshot, attempt: Attempt, preemptor: GroupRow | Pending
) -> None:
    """Fail where the plan that is made of a preemption does not pass its proof."""
    found = attempt.preemption
    if found is not None and found.code is Code.SUCCESS and found.evaluated:
        queued = [snapshot.pending[uid] for uid in attempt.unit.pods]
        plan = plan_of(snapshot, preemptor, queued, found, "")
        engine_cycle.assert_proven(snapshot, policy_of(case), replace(attempt, plan=plan))


# Pods.


def pod_eligibility(vector: Vector) -> bool:
    nominated = preemptor_pod(vector).get("status", {}).get("nominatedNodeName", "")
    status = vector.case.get("nominatedNodeStatus") or ""
    return _after(vector, {nominated: status}).evaluated


def pod_victims_on_node(vector: Vector) -> Candidate | tuple[str, str]:
    """A preemptor that fits beside all others is no candidate here, and needs no victims."""
    snapshot, policy, pending = _pod(vector)
    refused = {vector.case["targetNode"]: "Unschedulable"}
    found = engine_cycle.candidates_of(snapshot, policy, pending, refused)
    told = engine_cycle.candidates_told(vector.case, snapshot, found)
    if told:
        return told[0]
    refusals = engine_cycle.refusals_told(snapshot, pending, found.statuses())
    refusal = refusals[vector.case["targetNode"]]
    if refusal[1].startswith("expected at least one victim"):
        return Candidate(vector.case["targetNode"], (), 0, 0)
    return refusal


def pod_dryrun(vector: Vector) -> list[Candidate]:
    snapshot, policy, pending = _pod(vector)
    every = {node.name: "Unschedulable" for node in snapshot.nodes}
    found = engine_cycle.candidates_of(snapshot, policy, pending, every)
    return list(engine_cycle.candidates_told(vector.case, snapshot, found))


def pod_select_node(vector: Vector) -> tuple[list[Candidate], str]:
    snapshot, policy, pending = _pod(vector)
    every = {node.name: "Unschedulable" for node in snapshot.nodes}
    found = engine_cycle.candidates_of(snapshot, policy, pending, every)
    told = engine_cycle.candidates_told(vector.case, snapshot, found)
    return list(told), snapshot.nodes[int(found.nodes[choose_node(found)])].name


def pod_preempt(vector: Vector) -> Choice:
    every = {node["metadata"]["name"]: "Unschedulable" for node in vector.case["nodes"]}
    return _pod_choice(vector, every)


def pod_postfilter(vector: Vector) -> Choice:
    return _pod_choice(vector, vector.case["filteredNodeStatuses"])


def _pod(vector: Vector) -> tuple[Snapshot, Policy, Pending]:
    """A pod that waits for its resize is looked at as if it were not on its node yet."""
    wanted = preemptor_pod(vector)
    spec = {name: value for name, value in wanted["spec"].items() if name != "nodeName"}
    others = [pod for pod in vector.case["pods"] if key_of(pod) != key_of(wanted)]
    case = {**vector.case, "pods": others, "pending": [{**wanted, "spec": spec}]}
    snapshot = cluster_of(case).snapshot()
    (pending,) = (p for p in snapshot.pending.values() if p.row.name == wanted["metadata"]["name"])
    return snapshot, policy_of(vector.case), pending


def _after(vector: Vector, statuses: Mapping[str, str]) -> Preemption:
    snapshot, policy, pending = _pod(vector)
    simulation = Simulation(snapshot, policy, policy.profiles[0])
    names = [node.name for node in snapshot.nodes]
    given = [_CODES.get(statuses.get(name, ""), 0) for name in names]
    return preempt_after(simulation, pending, policy, np.array(given, np.uint8))


def _pod_choice(vector: Vector, statuses: Mapping[str, str]) -> Choice:
    found = _after(vector, statuses)
    snapshot, policy, pending = _pod(vector)
    keep = Nominate.KEEP if found.keep_nominations else Nominate.CLEAR
    unit = Unit((pending.row.uid,))
    attempt = Attempt(
        unit, Code.UNSCHEDULABLE, (Member(pending.row.uid, nominate=keep),), preemption=found
    )
    choice = engine_cycle.told(vector.case, snapshot, policy, attempt).choice
    assert choice is not None
    _assert_proven(vector.case, snapshot, attempt, pending)
    return choice._replace(message=choice.message.removeprefix("preemption: "))


# Executed cases.


def executed(vector: Vector) -> Outcome:
    snapshot, policy = cluster_of(vector.case).snapshot(), policy_of(vector.case)
    choose = best_node if vector.imposed is None else engine_cycle.imposed_by(vector.imposed)
    attempt = engine_cycle.attempt_of(vector.case, snapshot, policy, choose)
    if attempt is not None and attempt.plan is not None:
        engine_cycle.assert_proven(snapshot, policy, attempt)
    return engine_cycle.cycle(vector.case, vector.imposed)


FOUND: dict[str, Callable[[Vector], Any]] = {
    "effective-priority": priority,
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
