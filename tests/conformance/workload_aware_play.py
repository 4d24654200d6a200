"""A scheduler and its cluster in memory: whole runs of vectors, from objects to events.

The state, the queue, the session and the wording are the plane's own; what is played here is the
rest of the world: pods are bound, nominated and deleted at once, and pods that are given time end
when it is over. Time is moved by hand, to the next moment at which the queue has something to do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeworld.units.durations import MILLISECOND, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.scheduling import PodObject
from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.forest import Forest
from reprieve.engine.cluster.rows import COMPOSITE, Gone, Kind, PodRow
from reprieve.engine.cluster.snapshot import Flag, Pending, Snapshot
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.scores.placements import FeasiblePlacement, best_placement
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.placing import Choose, best_node
from reprieve.engine.scheduling.outcome import Attempt, Member, Nominate, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.queueing.queue import Outcome, Queue
from reprieve.engine.scheduling.queueing.rejecting import rejecting_plugins
from reprieve.engine.scheduling.session import Session
from reprieve.intake.cluster.pods import pod_row
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid
from reprieve.wording import kube_scheduler as wording
from reprieve.wording.events import EventText
from tests.engine.api_objects import ROWS, Json, key_of
from tests.engine.scheduling import engine_cycle

_START = 1_800_000_000 * SECOND
_GRACE = 30  # seconds, where a pod does not say


class Time:
    """A clock that stands still until `now` is set."""

    now = 0

    def wall(self) -> Nanos:
        return Nanos(_START + self.now)

    def monotonic(self) -> Nanos:
        return Nanos(self.now)

    async def sleep(self, nanoseconds: int) -> None:
        raise AssertionError("nobody sleeps here")


def preferring(scores: dict[str, int], placement: dict[str, str]) -> Choose:
    """An imposed placement, else the best node by our scores and those of an extra plugin."""
    imposed = engine_cycle.imposed_by(placement)

    def choose(simulation: Simulation, pending: Pending, nodes: I64) -> int:
        if f"{pending.row.namespace}/{pending.row.name}" in placement or not scores:
            return imposed(simulation, pending, nodes)
        names = [simulation.snapshot.nodes[node].name for node in nodes.tolist()]
        totals = simulation.totals(pending, nodes).tolist()
        both = [total + scores.get(name, 0) for total, name in zip(totals, names, strict=True)]
        return int(nodes[both.index(max(both))])

    return choose


def preferred_placement(scores: dict[str, int]) -> Callable[..., FeasiblePlacement]:
    """The best placement by our scores and those of an extra plugin, which adds them up."""

    def best(view: View, placements: Sequence[FeasiblePlacement]) -> FeasiblePlacement:
        names = [node.name for node in view.snapshot.nodes]
        extra = [sum(scores.get(names[n], 0) for n in p.nodes.tolist()) for p in placements]
        wanted = [p for p, total in zip(placements, extra, strict=True) if total == max(extra)]
        return best_placement(view, wanted)

    return best


class _State(ClusterState):
    """The state, of a cluster without extended resources that a DeviceClass stands for."""

    def device_class(self, resource: str) -> str:
        del resource
        return ""


@dataclass
class Play:
    """What happens, and a record of it: `order`, `attempts`, `events`, `conditions`."""

    policy: Policy
    choose: Choose = best_node
    time: Time = field(default_factory=Time)
    objects: dict[str, Json] = field(default_factory=dict)  # pods, by key
    order: list[str] = field(default_factory=list)
    attempts: list[Json] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=dict)  # cycles, by pod key
    events: list[Json] = field(default_factory=list)
    disrupted: dict[str, str] = field(default_factory=dict)
    nominated: set[str] = field(default_factory=set)
    pod_conditions: dict[str, wording.ConditionText] = field(default_factory=dict)
    group_conditions: dict[str, wording.ConditionText] = field(default_factory=dict)
    _version: int = 0
    _ending: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = frozenset(profile.scheduler_name for profile in self.policy.profiles)
        self.state = _State(Cluster(), self.time, names, changed=lambda: None)
        self.state.forest = Forest(trees=self.policy.gates.composite_pod_group)
        groups = self.policy.gates.generic_workload
        self.state.queue = Queue(self.state, groups=groups)

    # The world.

    def put(self, kind: str, given: Json) -> None:
        """Create or update an object; `kind` as the lists of a case are called."""
        self._version += 1
        metadata = {**given["metadata"], "resourceVersion": str(self._version)}
        given = {**given, "metadata": metadata}
        if kind in ("pods", "pending"):
            self.objects[key_of(given)] = given
        self.state.apply(ROWS[kind](given))
        self.time.now += MILLISECOND

    def delete(self, key: str) -> None:
        """Ask a pod to end; it does when its grace period is over."""
        pod = self.objects.get(key)
        if pod is None:
            return
        grace = pod["spec"].get("terminationGracePeriodSeconds", _GRACE)
        if not grace or not pod["spec"].get("nodeName"):
            self._end(key)
            return
        self._ending.append((self.time.now + grace * SECOND, key))
        instant = format_instant(self.time.wall())
        self.put("pods", {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": instant}})

    def _end(self, key: str) -> None:
        row = self._row(key)
        del self.objects[key]
        self.state.apply(Gone(Kind.POD, row.uid, row.namespace, row.name))

    def _row(self, key: str) -> PodRow:
        given = copy.deepcopy(self.objects[key])
        given["metadata"].setdefault("namespace", "default")
        return pod_row(msgspec.convert(given, PodObject))

    def _change(self, key: str, **status: Any) -> None:
        pod = self.objects[key]
        self.put("pods", {**pod, "status": {**pod.get("status", {}), **status}})

    # The scheduler.

    def run(self, seconds: int) -> None:
        """Schedule for so long."""
        queue, end = self.state.queue, self.time.now + seconds * SECOND
        while True:
            queue.flush(self.time.now)
            unit = queue.pop(self.time.now)
            if unit is not None:
                self._cycle(unit)
                continue
            due = [moment for moment, _ in self._ending]
            if (flush := queue.next_flush(self.time.now)) is not None:
                due.append(max(flush, self.time.now + MILLISECOND))
            if not due or min(due) > end:
                self.time.now = end
                return
            self.time.now = min(due)
            for moment, key in [each for each in self._ending if each[0] <= self.time.now]:
                self._ending.remove((moment, key))
                if key in self.objects:
                    self._end(key)

    def _cycle(self, unit: Unit) -> None:
        snapshot = self.state.cluster.snapshot()
        keys = {uid: _key(row) for uid in unit.pods if (row := self.state.pod(uid)) is not None}
        for key in keys.values():
            self.tries[key] = self.tries.get(key, 0) + 1
        attempt = Session(snapshot, self.policy, choose=self.choose).attempt(unit)
        assert attempt is not None, "a session of one unit has placed nobody before"
        if attempt.plan is not None:
            assert faults_of(snapshot, self.policy, attempt) == ()
        if attempt.preemption is not None:
            self._record(attempt, snapshot)
        for part in attempt.parts:
            kind = part.key.startswith(COMPOSITE) and wording.COMPOSITE_SCHEDULED
            text = wording.group_condition(attempt, kind or wording.GROUP_SCHEDULED, part)
            self.group_conditions[part.key] = text
        if unit.group and not attempt.parts and (attempt.code is Code.SUCCESS or attempt.status):
            self.group_conditions[unit.group] = wording.group_condition(attempt)
        if any(member.bind for member in attempt.members):
            self._place(attempt, keys)
            return
        self._refuse(attempt, snapshot, keys)

    def _place(self, attempt: Attempt, keys: dict[Uid, str]) -> None:
        rest = [member for member in attempt.members if not member.bind]
        placed = {member.uid for member in attempt.members if member.bind}
        self.state.queue.done(
            attempt.unit,
            Outcome.PLACED,
            self.time.now,
            placed=placed,
            rejected_by=rejecting_plugins(attempt),
        )
        for member in attempt.members:
            if member.bind:
                self._bind(keys[member.uid], member.bind)
        for member in rest:
            self._tell(attempt, member, keys)

    def _bind(self, key: str, node: str) -> None:
        self.order.append(f"Bind:{key.partition('/')[2]}")
        pod = self.objects[key]
        status = {"startTime": format_instant(self.time.wall())}
        self.put("pods", {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status})
        self.pod_conditions.pop(key, None)

    def _refuse(self, attempt: Attempt, snapshot: Snapshot, keys: dict[Uid, str]) -> None:
        unit, queue = attempt.unit, self.state.queue
        outcome = Outcome.ERROR if attempt.code is Code.ERROR else Outcome.REJECTED
        for member in attempt.members:
            self._tell(attempt, member, keys)
        found = attempt.preemption
        if attempt.plan is None or found is None:
            queue.done(unit, outcome, self.time.now, rejected_by=rejecting_plugins(attempt))
            return
        queue.hold(unit.group or unit.pods[0])
        queue.done(unit, outcome, self.time.now, rejected_by=rejecting_plugins(attempt))
        slots = [slot for victim in found.victims for slot in victim.pods]
        for slot in slots:
            if not snapshot.pod_flags[slot] & Flag.DELETING:
                self._evict(snapshot.pod_keys[slot], attempt)
        queue.release(unit.group or unit.pods[0], self.time.now)

    def _evict(self, key: str, attempt: Attempt) -> None:
        first = self.state.pod(attempt.unit.pods[0])
        assert first is not None
        group = self.state.group(attempt.unit.group) if attempt.unit.group else None
        scheduler = first.pod_class.scheduler_name
        if group is not None:
            word, uid, target = wording.PreemptorKind.GROUP, group.uid, wording.CLUSTER
            version = "v1beta1"
            if group.composite:
                word, version = wording.PreemptorKind.COMPOSITE, "v1alpha3"
            related = f"{version}.{group.kind}:{group.namespace}/{group.name}"
        else:
            word, uid = wording.PreemptorKind.POD, first.uid
            target, related = str(attempt.members[0].nominate), f"v1.Pod:{_key(first)}"
        message = wording.disruption_message(scheduler, word)
        self.disrupted[key] = f"True|{wording.DISRUPTION_REASON}|{message}"
        condition = {
            "type": wording.DISRUPTION_TARGET,
            "status": "True",
            "reason": wording.DISRUPTION_REASON,
            "message": message,
        }
        self._change(key, conditions=[condition])
        self._record_event(key, related, wording.preempted(word, uid, target))
        self.delete(key)

    def _record_event(self, key: str, related: str, text: EventText) -> None:
        event = {"object": f"v1.Pod:{key}", "related": related, "type": text.type}
        event |= {"reason": text.reason, "action": text.action, "note": text.message}
        self.events.append(event)

    def _tell(self, attempt: Attempt, member: Member, keys: dict[Uid, str]) -> None:
        key = keys[member.uid]
        condition = wording.pod_condition(attempt, member)
        if condition.message:
            self.pod_conditions[key] = condition
            self._record_event(key, "", wording.failed_scheduling(condition.message))
        if member.nominate is Nominate.KEEP:
            return
        node = "" if member.nominate is Nominate.CLEAR else str(member.nominate)
        if node:
            self.nominated.add(key)
        self._change(key, nominatedNodeName=node)

    def _record(self, attempt: Attempt, snapshot: Snapshot) -> None:
        grouped = attempt.unit.group
        name = (grouped or _key(snapshot.pending[attempt.unit.pods[0]].row)).partition("/")[2]
        self.order.append(f"{'PodGroupPostFilter' if grouped else 'PostFilter'}:{name}")
        case = {"pods": list(self.objects.values())}
        choice = engine_cycle.told(case, snapshot, self.policy, attempt).choice
        assert choice is not None
        status = {"code": choice.code, "message": choice.message}
        self.attempts.append({"status": status, "nominated": choice.nominated or None})

    # Looking.

    def bound(self) -> set[str]:
        """The names of the pods that have a node and stay."""
        return {
            pod["metadata"]["name"]
            for pod in self.objects.values()
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        }

    def unschedulable(self) -> set[str]:
        """The names of the pods that wait and were told that they do not fit."""
        return {
            key.partition("/")[2]
            for key, condition in self.pod_conditions.items()
            if key in self.objects
            and not self.objects[key]["spec"].get("nodeName")
            and condition.reason == wording.UNSCHEDULABLE
        }

    def places(self, names: Iterable[str]) -> set[str]:
        """The places of these pods in the queue."""
        return {self.state.queue.place(self._row(f"default/{name}").uid) for name in names}


def _key(row: PodRow) -> str:
    return f"{row.namespace}/{row.name}"
