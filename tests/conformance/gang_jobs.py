"""Runs the cases of gangs and job preemption on the engine; answers what differs, in words.

The literal modes are in force: first fit, pods as units, no budgets, the code's spelling. Where a
job key has pods of several priorities on a node, the reference pays whichever its node cache lists
first, so that any of these costs is accepted; a case in which that, or the order of members,
decides is held against invariants instead of the stored outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from reprieve.api.gangs import PodGroup
from reprieve.engine.cluster.snapshot import Flag, Pending, Snapshot
from reprieve.engine.placement.profile import FilterName, Policy, Profile
from reprieve.engine.placement.reasons import Code, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.gangs.gate import enqueue_barrier, permit
from reprieve.engine.scheduling.gangs.job import (
    Budgets,
    Job,
    JobPolicy,
    JobPreemption,
    JobReason,
    Placement,
    VictimGangs,
)
from reprieve.engine.scheduling.gangs.job_preemption import preempt_for_job, respect_others
from reprieve.engine.scheduling.gangs.phases import PhasePod, PodGroupStatus, next_status
from reprieve.engine.scheduling.gangs.possible import JOB_KEY, protected_labels
from reprieve.engine.scheduling.gangs.records import Defaults, Gang, GangPod, Gangs
from reprieve.intake.gangs import gang_name, group_spec, pod_member
from reprieve.units.ids import Uid
from reprieve.wording import koordinator as wording
from tests.engine.api_objects import cluster_of, key_of
from tests.gangs.proofs import faults_of_job

Json = dict[str, Any]

LITERAL = JobPolicy(Placement.FIRST_FIT, Budgets.IGNORE, VictimGangs.POD)
_FILTERS = (
    FilterName.NODE_UNSCHEDULABLE,
    FilterName.TAINT_TOLERATION,
    FilterName.NODE_AFFINITY,
    FilterName.NODE_RESOURCES_FIT,
)
ENGINE_POLICY = Policy(profiles=(Profile(scheduler_name="koord-scheduler", filters=_FILTERS),))
_CODES = {"Unschedulable": Rejection.RESOURCES, "UnschedulableAndUnresolvable": Rejection.TAINT}
_CODE_TEXTS = {Code.UNSCHEDULABLE: "Unschedulable", Code.ERROR: "Error", Code.SUCCESS: "Success"}


def differences(case: Json) -> list[str]:
    return RUNNERS[case["kind"]](case)


def _unequal(expected: Json, got: Json) -> list[str]:
    return [
        f"{name}: expected {wanted!r}, got {got.get(name)!r}"
        for name, wanted in expected.items()
        if got.get(name) != wanted
    ]


# Job preemption.


class Played:
    """One case on the engine."""

    def __init__(
        self, case: Json, policy: JobPolicy = LITERAL, order: Sequence[str] | None = None
    ) -> None:
        self.case = case
        self.trigger = str(case["triggerPod"])
        pods = [dict(each) for each in case["pods"]]
        if case.get("triggerPodObject"):
            pods = [each for each in pods if key_of(each) != self.trigger]
            pods.append(dict(case["triggerPodObject"]))
        self.waiting: dict[str, str] = case.get("waitingPods") or {}
        given = []
        for pod in pods:
            spec = {**pod["spec"], "containers": pod["spec"].get("containers") or []}
            if key_of(pod) in self.waiting:
                spec["nodeName"] = self.waiting[key_of(pod)]
            spec.setdefault("schedulerName", "koord-scheduler")
            metadata = {**pod["metadata"], "uid": key_of(pod)}
            if "deletionTimestamp" in metadata and metadata["deletionTimestamp"] is None:
                metadata["deletionTimestamp"] = "0001-01-01T00:00:00Z"  # Go's zero time
            given.append({**pod, "metadata": metadata, "spec": spec})
        self.pods = {key_of(pod): pod for pod in given}
        self.snapshot = cluster_of({"nodes": case["nodes"], "pods": given}).snapshot()
        profile = ENGINE_POLICY.profiles[0]
        self.simulation = Simulation(self.snapshot, ENGINE_POLICY, profile)
        group = case.get("gangGroup")
        wanted = case["pendingPods"] if group is not None or case["pendingPods"] else [self.trigger]
        pending = [self.pending(key) for key in (order or wanted or [])]
        self.members = set(self._members(group or ()))
        own = [(Uid(k), node) for k, node in self.waiting.items() if k in self.members]
        self.job = Job(
            ",".join(sorted(group)) if group else self.trigger,
            self.pending(self.trigger),
            tuple(pending),
            tuple(own),
            attempted=str(case.get("earlierPreemptionMessage") or self._attempted()),
        )
        respect_others(self.simulation, self.job)
        self.found = preempt_for_job(
            self.simulation, self.job, policy, statuses=self._statuses(), explain=True
        )
        if self.found.reason is JobReason.SUCCESS and self.found.slots:
            assert faults_of_job(self.snapshot, ENGINE_POLICY, self.job, self.found) == ()

    def _attempted(self) -> str:
        """The table keeps the message of the earlier attempt only in what it expects."""
        expected = self.case["expect"]
        return str(expected["message"]) if "%s" in expected["reason"] else ""

    def _members(self, group: Iterable[str]) -> list[str]:
        found = []
        for key, pod in self.pods.items():
            metadata = pod["metadata"]
            name = gang_name(metadata.get("labels") or {}, metadata.get("annotations") or {})
            if f"{metadata.get('namespace', 'default')}/{name}" in set(group):
                found.append(key)
        return found

    def pending(self, key: str) -> Pending:
        return self.snapshot.pending[Uid(key)]

    def _statuses(self) -> Any:
        codes = np.full(len(self.snapshot.nodes), Rejection.TAINT, np.uint8)
        for name, status in self.case["nodeStatusForTrigger"].items():
            codes[self.snapshot.node_index[name]] = _CODES[status["code"]]
        return codes

    # The outcome in the words of the case.

    @property
    def message(self) -> str:
        own = len(self.job.waiting)
        return wording.job_message(self.found, own, own + len(self.job.pending), self.job.attempted)

    def keys(self, slots: Iterable[int]) -> list[str]:
        return [self.snapshot.pod_keys[slot] for slot in slots]

    def nominated(self) -> dict[str, str]:
        return {str(uid): node for uid, node in self.found.nominated}

    def nominated_before(self) -> dict[str, str]:
        return {
            key: node
            for key, pod in self.pods.items()
            if (node := (pod.get("status") or {}).get("nominatedNodeName"))
        }

    def in_api(self) -> dict[str, str]:
        before = self.nominated_before()
        if self.found.reason is JobReason.SUCCESS:
            return {**before, **self.nominated(), **{str(u): n for u, n in self.job.waiting}}
        if self.found.reason is JobReason.NOT_HELPFUL:
            own = {*(str(p.row.uid) for p in self.job.pending), *map(str, dict(self.job.waiting))}
            return {key: node for key, node in before.items() if key not in own}
        return before

    def outcome(self, *, takes_back: bool = True) -> Json:
        """The outcome; `takes_back`: lower pods lose their nominations to victims' nodes."""
        found, snapshot = self.found, self.snapshot
        code = _CODE_TEXTS[found.code]
        message = self.message
        result: Json | None = None
        if found.reason is JobReason.SUCCESS:
            result = {"nominatedNodeName": self.nominated()[self.trigger], "mode": "Override"}
        elif found.reason is JobReason.NOT_HELPFUL:
            result = {"nominatedNodeName": "", "mode": "Override"}
        success = found.reason is JobReason.SUCCESS
        spoken = "" if success else message
        status = {"code": code, "message": spoken, "reasons": [spoken] if spoken else None}
        reason = wording.job_reason(found.reason)
        in_api = self.in_api()
        by_node: dict[str, list[str]] = {}
        for key, node in sorted(in_api.items()):
            by_node.setdefault(node, []).append(key)
        if takes_back:
            # In the API first; the scheduler's own list follows when it sees the pod again.
            in_api = {k: node for k, node in in_api.items() if Uid(k) not in found.lower}
        told = message
        if self.case.get("gangGroup") is None:
            cycle = None
        elif found.reason is JobReason.ALREADY_ATTEMPTED:
            cycle = message
        else:
            cycle = wording.attempted_message(self.trigger, told)
        victims = {node: self.keys(slots) for node, slots in found.victims}
        return {
            "status": status,
            "postFilterResult": result,
            "reason": reason,
            "message": message,
            "triggerPodKey": self.trigger,
            "preemptorKey": "" if self.job.attempted else self.job.key,
            "podToNominatedNode": self.nominated() if success else None,
            "possibleVictims": {
                node: sorted(self.keys(slots)) for node, slots in found.possible.items()
            },
            "possibleVictimNames": sorted(
                key for slots in found.possible.values() for key in self.keys(slots)
            ),
            "preemptionCostByNode": dict(found.cost),
            "victims": victims,
            "victimNames": sorted(k for v in victims.values() for k in v),
            "unschedulablePods": sorted(str(uid) for uid in found.unplaced),
            "dryRunNodeStatus": {
                name: sorted({wording.node_text(each) for each in said})
                for name, said in found.statuses.items()
            },
            "terminatingPodOnNominatedNode": dict(found.terminating),
            "nominatedNodeNameInAPI": in_api,
            "schedulerNominatedPods": by_node,
            "gangCyclePreemptionMessage": cycle,
            "rejectedWaitingPods": self._rejected(message, victims),
            "apiCalls": self._calls(victims, in_api),
            "events": sorted(
                self._event(snapshot, slot) for slot in found.slots if not self._ending(slot)
            ),
        }

    def _ending(self, slot: int) -> bool:
        return bool(self.snapshot.pod_flags[slot] & Flag.DELETING)

    def _event(self, snapshot: Snapshot, slot: int) -> str:
        uid = self.case_uid(self.trigger)
        text = wording.preempted(uid, snapshot.nodes[int(snapshot.pod_node[slot])].name)
        return str(text)

    def case_uid(self, key: str) -> str:
        for each in self.case["pods"]:
            if key_of(each) == key:
                return str(each["metadata"].get("uid", ""))
        return ""

    def _rejected(self, message: str, victims: dict[str, list[str]]) -> Json:
        found: Json = {}
        own = [str(uid) for uid, _ in self.job.waiting]
        plugin = {
            JobReason.SUCCESS: wording.SUCCESS_PLUGIN,
            JobReason.NOT_HELPFUL: wording.FAILURE_PLUGIN,
        }.get(self.found.reason)
        rejected = {key: (plugin, message) for key in own if plugin}
        for key in (k for v in victims.values() for k in v if k in self.waiting):
            rejected[key] = (wording.REJECT_PLUGIN, wording.PREEMPTED)
        for key, (name, text) in rejected.items():
            found[key] = {"code": "Unschedulable", "message": text, "plugin": name}
        return found

    def _calls(self, victims: dict[str, list[str]], in_api: dict[str, str]) -> Json:
        calls: Json = {}
        for slot, key in zip(
            self.found.slots, (k for v in victims.values() for k in v), strict=True
        ):
            if key in self.waiting or self._ending(slot):
                continue
            name = self.pods[self.trigger]["spec"]["schedulerName"]
            message = wording.disruption_message(
                name, self.job.key, self.trigger, wording.TriggerSpelling.CODE
            )
            calls[key] = ["condition", message, "delete"]
        for key, pod in self.pods.items():
            before = (pod.get("status") or {}).get("nominatedNodeName", "")
            if in_api.get(key, "") != before:
                calls[key] = ["nominate", in_api.get(key, "")]
        return calls


def _told_calls(given: Json) -> Json:
    """The stored calls in the same short form."""
    found: Json = {}
    for key, calls in given.items():
        short: list[str] = []
        for call in calls:
            if call["verb"] == "delete":
                short.append("delete")
                continue
            status = call["body"]["status"]
            for condition in status.get("conditions") or ():
                short += ["condition", condition["message"]]
            if "nominatedNodeName" in status:
                short += ["nominate", status["nominatedNodeName"] or ""]
        found[key] = short
    return found


def _job_preemption(case: Json) -> list[str]:
    played = Played(case)
    expected = dict(case["expect"])
    found, takes_back = _taken_back(played, expected)
    got = played.outcome(takes_back=takes_back)
    if "orderSensitive" not in case and played.found.reason is not JobReason.SUCCESS:
        del expected["nominatedNodeNameInAPI"]  # the upstream table creates its pods without it
    if "apiCalls" in expected:
        expected["apiCalls"] = _told_calls(expected["apiCalls"])
    if "events" in expected:
        expected["events"] = sorted(expected["events"])
    for field in ("possibleVictims", "unschedulablePods"):
        if field in expected and isinstance(expected[field], dict):
            expected[field] = {node: sorted(keys) for node, keys in expected[field].items()}
        elif field in expected:
            expected[field] = sorted(expected[field])
    if "dryRunNodeStatus" in expected:
        expected["dryRunNodeStatus"] = {
            name: sorted(set(status["reasons"] or ()))
            for name, status in expected["dryRunNodeStatus"].items()
        }
    if "preemptionCostByNode" in expected:
        ambiguous = _ambiguous(played)
        for node, cost in expected["preemptionCostByNode"].items():
            least, most = ambiguous.get(node, (got["preemptionCostByNode"].get(node),) * 2)
            if least is None or most is None or not least <= cost <= most:
                found.append(f"cost of {node}: expected {cost}, got {least}..{most}")
        del expected["preemptionCostByNode"]
        if ambiguous and _placement(expected) != _placement(got):
            return found + invariants(played)
    if case.get("orderSensitive"):
        if _unequal(expected, got):
            return found + invariants(played)
        return found
    if expected.get("podToNominatedNode", 0) is None:
        got["podToNominatedNode"] = got["podToNominatedNode"] or None
    return found + _unequal(expected, got)


def _taken_back(played: Played, expected: Json) -> tuple[list[str], bool]:
    """What is wrong about the nominations that are taken back, and whether the case has them so.

    Lower pods lose their nominations to victims' nodes. The reference takes back none of them when
    it comes to a victim's node to which nobody is nominated: there either outcome is right.
    """
    if played.found.reason is not JobReason.SUCCESS:
        return [], True
    before, nodes = played.nominated_before(), {node for node, _ in played.found.victims}
    own = {*played.nominated(), *(str(uid) for uid, _ in played.job.waiting)}
    below = played.job.trigger.row.priority
    lower = {
        key
        for key, node in before.items()
        if node in nodes
        and key not in own
        and (played.pods[key]["spec"].get("priority") or 0) < below
    }
    wrong = []
    if {str(uid) for uid in played.found.lower} != lower:
        wrong = [f"taken back: expected {sorted(lower)}, got {sorted(played.found.lower)}"]
    stops = bool(nodes - set(before.values()))
    left = lower <= (expected.get("nominatedNodeNameInAPI") or {}).keys()
    return wrong, not (stops and left)


def _placement(outcome: Json) -> object:
    return outcome["status"]["code"], outcome.get("podToNominatedNode")


def _ambiguous(played: Played) -> dict[str, tuple[int, int]]:
    """Nodes where a job key has pods of several priorities, with the least and most they cost."""
    snapshot, found = played.snapshot, {}
    every = [slot for slots in played.found.possible.values() for slot in slots]
    ranks = sorted({int(snapshot.pod_priority[slot]) for slot in every})
    for node, slots in played.found.possible.items():
        by_key: dict[str, list[int]] = {}
        for slot in slots:
            labels = snapshot.labels[int(snapshot.pod_labels[slot])]
            assert labels is not None
            rank = ranks.index(int(snapshot.pod_priority[slot]))
            by_key.setdefault(dict(labels.labels).get(JOB_KEY, ""), []).append(rank)
        if any(len(set(each)) > 1 for each in by_key.values()):
            found[node] = (sum(map(min, by_key.values())), sum(map(max, by_key.values())))
    return found


def invariants(played: Played) -> list[str]:
    """What holds for any outcome: all or nobody, no node overfilled, nothing to be returned."""
    found, snapshot = played.found, played.snapshot
    wrong = []
    if found.reason is not JobReason.SUCCESS:
        return ["somebody is evicted all the same"] if found.victims else []
    nominated = {uid: snapshot.node_index[node] for uid, node in found.nominated}
    missing = [p.row.name for p in played.job.pending if p.row.uid not in nominated]
    if missing:
        wrong.append(f"without a node: {missing}")
    if not _fits(snapshot, played.job.pending, nominated, set(found.slots)):
        wrong.append("a node is overfilled")
    for slot in found.slots:
        if _fits(snapshot, played.job.pending, nominated, set(found.slots) - {slot}):
            wrong.append(f"evicted in vain: {snapshot.pod_keys[slot]}")
    shielded = protected_labels(snapshot, LITERAL)[snapshot.pod_labels]
    for slot in found.slots:
        if shielded[slot] or snapshot.pod_priority[slot] >= played.job.trigger.row.priority:
            wrong.append(f"no possible victim: {snapshot.pod_keys[slot]}")
    return wrong


def _fits(
    snapshot: Snapshot, members: Sequence[Pending], nodes: dict[Uid, int], gone: set[int]
) -> bool:
    """Whether every node that a member gets holds all that is then on it."""
    room = snapshot.allocatable - snapshot.used
    for slot in gone:
        room[snapshot.pod_node[slot]] += snapshot.pod_requests[slot]
    index = {name: column for column, name in enumerate(snapshot.resources)}
    asked = np.zeros_like(room)
    for member in members:
        entry = snapshot.classes[member.pod_class]
        assert entry is not None
        for name, amount in (("pods", 1), *entry.requests):
            asked[nodes[member.row.uid], index[name]] += amount
    return bool(((room >= asked) | (asked == 0)).all())


# Gangs.


def _pod(given: Json, defaults: Defaults, *, bound: bool | None = None) -> GangPod | None:
    metadata = given["metadata"]
    on_node = bool(given["spec"].get("nodeName")) if bound is None else bound
    return pod_member(
        Uid(metadata.get("uid") or key_of(given)),
        metadata.get("namespace") or "default",
        metadata["name"],
        metadata.get("labels") or {},
        metadata.get("annotations") or {},
        bound=on_node,
        defaults=defaults,
    )


def _put_group(gangs: Gangs, given: Json, defaults: Defaults) -> Gang:
    group = msgspec.convert(given, PodGroup)
    return gangs.apply_group(
        f"{group.metadata.namespace}/{group.metadata.name}", group_spec(group, defaults)
    )


def _summary(gangs: Gangs, gang: Gang) -> Json:
    spec = gang.spec
    return {
        "name": gang.id,
        "children": sorted(gang.children),
        "pendingChildren": gang.pending,
        "waitingForBindChildren": sorted(gang.waiting),
        "boundChildren": sorted(gang.bound),
        "gangFrom": str(gang.origin),
        "gangGroup": list(gang.group),
        "gangGroupId": gang.group_id,
        "gangMatchPolicy": str(gang.policy) if spec else "once-satisfied",
        "hasGangInit": spec is not None,
        "minRequiredNumber": gang.minimum,
        "mode": str(spec.mode) if spec else "Strict",
        "onceResourceSatisfied": gangs.satisfied(gang),
        "representativePod": gangs.representative.get(gang.group_id, ""),
        "totalChildrenNum": spec.total if spec else 0,
        "waitTimeSeconds": spec.wait // SECOND if spec else 0,
        "waitingGangs": [],
    }


def _gang_init(case: Json) -> list[str]:
    given = case["defaults"]
    defaults = Defaults(given["timeoutSeconds"] * SECOND, given["matchPolicy"])
    gangs = Gangs()
    for group in case["podGroups"]:
        _put_group(gangs, group, defaults)
    for pod in case["pods"]:
        member = _pod(pod, defaults)
        if member is not None:
            gangs.apply_pod(member)
    for group in case.get("latePodGroups") or ():
        _put_group(gangs, group, defaults)
    return _unequal(case["expect"]["gangs"], {g.id: _summary(gangs, g) for g in gangs})


def _gang_name(case: Json) -> list[str]:
    metadata = case["pods"][0]["metadata"]
    name = gang_name(metadata.get("labels") or {}, metadata.get("annotations") or {})
    return _unequal(case["expect"], {"gangName": name})


def _pre_enqueue(case: Json) -> list[str]:
    defaults = Defaults(600 * SECOND)
    gangs = Gangs()
    for group in case["podGroups"]:
        _put_group(gangs, group, defaults)
    for pod in case["pods"]:
        member = _pod(pod, defaults)
        if member is not None:
            gangs.apply_pod(member)
            enqueue_barrier(gangs, member)
    member = _pod(case["pod"], defaults)
    if member is None:
        return _unequal(case["expect"], {"error": "", "gangAfter": None})
    gang = gangs.apply_pod(member)
    if case["gangOnceSatisfied"]:
        gangs.satisfy(gang)
    found = enqueue_barrier(gangs, member)
    error = "" if found is None else wording.barrier_text(found)
    after = _summary(gangs, gang) if gang.spec is not None else None
    return _unequal(case["expect"], {"error": error, "gangAfter": after})


def _permit(case: Json) -> list[str]:
    defaults = Defaults(case["defaultTimeoutSeconds"] * SECOND)
    gangs = Gangs()
    for group in case["podGroups"]:
        gang = _put_group(gangs, group, defaults)
        if case["gangOnceSatisfied"]:
            gangs.satisfy(gang)
        if case["matchPolicyOverride"] and gang.spec is not None:
            gang.spec = replace(gang.spec, policy=case["matchPolicyOverride"])
    for pod in case["pods"]:
        member = _pod(pod, defaults)
        assert member is not None
        gangs.apply_pod(member)
        gangs.wait(member.uid)
        permit(gangs, member)
    for pod in case.get("runningPods") or ():
        member = _pod(pod, defaults, bound=True)
        assert member is not None
        gangs.apply_pod(member)
    member = _pod(case["pod"], defaults)
    if member is not None:
        gangs.apply_pod(member)
        gangs.wait(member.uid)
    permission, wait = permit(gangs, member)
    return _unequal(case["expect"], {"status": str(permission), "waitSeconds": wait // SECOND})


def _phase(case: Json) -> list[str]:
    group = msgspec.convert(case["podGroups"][0], PodGroup)
    status, now = group.status, 1_000_000
    before = PodGroupStatus(
        status.phase,
        status.occupied_by,
        status.scheduled,
        status.running,
        status.succeeded,
        status.failed,
        parse_instant(status.schedule_start_time) // SECOND if status.schedule_start_time else None,
    )
    pods = [
        PhasePod(
            (pod.get("status") or {}).get("phase", ""),
            pod["spec"].get("nodeName") or "",
            tuple(
                f"{pod['metadata'].get('namespace', 'default')}/{owner['name']}"
                for owner in pod["metadata"].get("ownerReferences") or ()
            ),
        )
        for pod in case["pods"]
    ]
    after = next_status(before, group.spec.min_member, pods, now)
    return _unequal(
        case["expect"]["status"],
        {
            "phase": str(after.phase),
            "occupiedBy": after.occupied_by,
            "scheduled": after.scheduled,
            "running": after.running,
            "succeeded": after.succeeded,
            "failed": after.failed,
            "scheduleStartTimeSet": after.started is not None,
        },
    )


def _eligible(case: Json) -> list[str]:
    pod = case["pods"][0]
    spec = {**pod["spec"], "containers": [], "nodeName": "n"}
    node = {"metadata": {"name": "n"}, "status": {}}
    metadata = {**pod["metadata"], "uid": "v"}
    given = {**pod, "metadata": metadata, "spec": spec}
    snapshot = cluster_of({"nodes": [node], "pods": [given]}).snapshot()
    slot = snapshot.pod_keys.index(key_of(pod))
    shielded = bool(protected_labels(snapshot, LITERAL)[snapshot.pod_labels[slot]])
    return _unequal(case["expect"], {"eligible": not shielded})


RUNNERS: dict[str, Callable[[Json], list[str]]] = {
    "JobPreemption": _job_preemption,
    "GangInit": _gang_init,
    "GangName": _gang_name,
    "PreEnqueue": _pre_enqueue,
    "Permit": _permit,
    "PodGroupPhase": _phase,
    "VictimEligibility": _eligible,
}

__all__ = ["LITERAL", "RUNNERS", "JobPreemption", "Played", "differences", "invariants"]
