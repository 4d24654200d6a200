"""What the API server's audit log says of a run: who was deleted, on which record, who was bound.

Nothing here is taken from the operator's own records but that they were committed, and when. A
deletion has a record when the creation of a Preemption that names its uid was answered before the
deletion was received; where the API server died over that answer, when the record is stored.

A pod is on its node from when its binding was received until its end was, so that two pods that
overlap by less than a request are none: whoever binds has seen the end of the other before. Where
the API server died over the answer to a deletion, the pod ended with it if it is not seen again.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

__all__ = [
    "Entry",
    "Findings",
    "audit_flags",
    "evicts",
    "judge",
    "never_answered",
    "read",
    "told_to_go",
]

Object = dict[str, Any]
_DONE: Final = "ResponseComplete"
_OVER: Final = ("Succeeded", "Failed")
_NONE: Final[Object] = {}
_VICTIMS: Final = ("pods", "jobs", "deployments")
_NOT_DONE: Final = (403, 404, 409, 422, 429)

_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitManagedFields": True,
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": "", "resources": ["pods", "pods/binding", "pods/status"]}],
        },
        {
            "level": "Request",
            "verbs": ["create", "delete"],
            "resources": [
                {"group": "reprieve.dev"},
                {"group": "batch", "resources": ["jobs"]},
                {"group": "apps", "resources": ["deployments"]},
                {"group": "scheduling.k8s.io", "resources": ["podgroups"]},
                {"group": "", "resources": ["namespaces"]},
            ],
        },
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [
                {"group": "kueue.x-k8s.io", "resources": ["workloads", "workloads/status"]}
            ],
        },
        {"level": "None"},
    ],
}


def audit_flags(folder: Path) -> tuple[str, ...]:
    """Write the policy and return what the API server is started with."""
    policy = folder / "audit-policy.json"
    policy.write_bytes(msgspec.json.encode(_POLICY))
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=20000",
    )


class _Reference(msgspec.Struct, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _User(msgspec.Struct):
    username: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class Entry(msgspec.Struct, rename="camel"):
    """One line of the log."""

    stage: str
    verb: str
    audit_i_d: str = msgspec.field(name="auditID", default="")
    user: _User = msgspec.field(default_factory=_User)
    object_ref: _Reference | None = None
    response_status: _Status | None = None
    request_object: Any = None
    response_object: Any = None
    request_received_timestamp: str = ""
    stage_timestamp: str = ""

    @property
    def what(self) -> tuple[str, str, str]:
        """Return verb, resource and subresource."""
        ref = self.object_ref or _Reference()
        return self.verb, ref.resource, ref.subresource

    @property
    def code(self) -> int:
        """HTTP status of the answer, 0 without one."""
        return self.response_status.code if self.response_status else 0

    @property
    def done(self) -> bool:
        """Whether it was carried out and answered."""
        return self.stage == _DONE and 200 <= self.code < 300

    @property
    def received(self) -> float:
        """Unix seconds."""
        return _seconds(self.request_received_timestamp)

    @property
    def answered(self) -> float:
        """Unix seconds."""
        return _seconds(self.stage_timestamp)


def evicts(entry: Entry) -> bool:
    """Whether a victim was told to go: deleted, or evicted from its quota."""
    verb, resource, part = entry.what
    if resource == "workloads":
        shown = entry.response_object if isinstance(entry.response_object, dict) else _NONE
        return entry.done and _conditions(shown).get("Evicted") == ("True", "Preempted")
    return entry.done and verb == "delete" and not part and resource in _VICTIMS


def told_to_go(entries: Iterable[Entry], operator: str) -> set[str]:
    """Return the uids of all whom the operator has told to go, whoever else did."""
    found = set[str]()
    for entry in entries:
        if entry.stage == _DONE and entry.user.username == operator and evicts(entry):
            shown = entry.response_object if isinstance(entry.response_object, dict) else _NONE
            own = (
                (shown.get("metadata") or _NONE).get("uid")
                if shown.get("kind") == "Workload"
                else ""
            )
            found.add(own or _deleted_uid(entry))
    return found


def never_answered(entries: Iterable[Entry], operator: str) -> set[str]:
    """Return the names of all whose eviction the operator requested and nobody ever answered.

    An API server that is killed writes that a request was received, before it does anything, and no
    more: whether it was carried out is seen in what is stored.
    """
    asked = dict[str, str]()
    answered = set[str]()
    for entry in entries:
        verb, resource, part = entry.what
        deletes = verb == "delete" and not part and resource in _VICTIMS
        if entry.user.username != operator or not (deletes or resource == "workloads"):
            continue
        if entry.stage == _DONE:
            asked.pop(entry.audit_i_d, None)
            if evicts(entry):
                answered.add((entry.object_ref or _Reference()).name)
        elif entry.object_ref is not None:
            asked[entry.audit_i_d] = entry.object_ref.name
    return set(asked.values()) - answered


def read(log: Path) -> Iterator[Entry]:
    """Yield the entries, in the order in which they were written; a torn last line is none."""
    decoder = msgspec.json.Decoder(Entry)
    with log.open("rb") as lines:
        for line in lines:
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError:
                continue


@dataclass
class _Pod:
    """A pod as the log shows it; `bound`, `ended` and when it was seen last in Unix seconds."""

    uid: str
    name: str
    cpus: float
    gang: str
    node: str = ""
    bound: float | None = None
    ended: float | None = None
    seen: float = 0.0


@dataclass
class _Held:
    """Workloads of the quota plane: who holds how much since when, and evictions."""

    held: dict[str, _Pod] = field(default_factory=dict)  # by uid, as they are now
    ever: list[_Pod] = field(default_factory=list)
    going: set[str] = field(default_factory=set)  # who is evicted and not admitted again
    evictions: list[tuple[str, float]] = field(default_factory=list)

    def take(self, entry: Entry) -> None:
        shown = entry.response_object if isinstance(entry.response_object, dict) else _NONE
        if entry.verb == "delete":
            self._gives_back(_deleted_uid(entry), entry.received)
            return
        if shown.get("kind") != "Workload":
            return
        metadata, status = shown["metadata"], shown.get("status") or _NONE
        uid, conditions = metadata["uid"], _conditions(shown)
        evicted = conditions.get("Evicted") == ("True", "Preempted")
        if evicted and uid not in self.going:
            self.evictions.append((uid, entry.received))
        (self.going.add if evicted else self.going.discard)(uid)
        admission = status.get("admission")
        over = conditions.get("Finished", ("",))[0] == "True"
        # One that is being deleted is written once more, to let it go.
        if not admission or over or metadata.get("deletionTimestamp"):
            self._gives_back(uid, entry.received)
        elif uid not in self.held:
            cpus = sum(
                _amount(each.get("resourceUsage", _NONE).get("cpu", "0"))
                for each in admission.get("podSetAssignments") or ()
            )
            name, queue = metadata["name"], admission["clusterQueue"]
            self.held[uid] = _Pod(uid, name, cpus, "", queue, entry.received)
            self.ever.append(self.held[uid])

    def _gives_back(self, uid: str, at: float) -> None:
        pod = self.held.pop(uid, None)
        if pod is not None:
            pod.ended = at


@dataclass
class Findings:
    """What must be none stands in `wrong`; the rest says what was seen.

    `deletions` are those of pods and Jobs, `evictions` those of Workloads from their quota.
    `unanswered`: deletions whose answer was lost with the API server; `refused`: how often the
    operator was refused, by status code; `parts`: uids of the victims in each part of a record;
    `told_to_go`: uids of those that were deleted or evicted; `ended_by`: what began to end a pod
    where that is no deletion of the operator that was answered well.
    """

    deletions: int = 0
    evictions: int = 0
    records: int = 0
    unanswered: int = 0
    deleted_twice: list[str] = field(default_factory=list)
    without_record: list[str] = field(default_factory=list)
    overcommitted: list[str] = field(default_factory=list)
    gangs: int = 0
    gangs_lost: list[str] = field(default_factory=list)
    slowest_gang_s: float = 0.0
    refused: dict[int, int] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    told_to_go: set[str] = field(default_factory=set)
    ended_by: dict[str, str] = field(default_factory=dict)

    @property
    def wrong(self) -> dict[str, list[str]]:
        """Return what must not be, by its word."""
        return {
            "deleted_twice": self.deleted_twice,
            "without_record": self.without_record,
            "overcommitted": self.overcommitted,
            "gangs_lost": self.gangs_lost,
        }


class _Reading:
    """Everything that is counted, entry by entry."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self.pods: dict[str, _Pod] = {}
        self.deletions: list[tuple[str, float]] = []  # uid, received
        # victim's uid -> when each record that names it was answered
        self.recorded: defaultdict[str, list[float]] = defaultdict(list)
        self.quota = _Held()
        self.parts: dict[str, list[str]] = {}  # uids of the victims in a part, by its name
        self.subjects: dict[str, str] = {}  # of those whose subject is another object
        self.records = 0
        # Deletions of pods, by anybody, that are not answered: pod and when they were received.
        self.ending: dict[str, tuple[str, float]] = {}
        self.asked: dict[str, str] = {}  # deletions of the operator by audit id: name
        self.ended_by: dict[str, str] = {}  # the first that ended a pod, but for the operator
        self.refused: Counter[int] = Counter()
        self.gangs: dict[str, tuple[int, float, str]] = {}  # minimum, created, priority class
        self.gone: set[str] = set()  # namespaces that were deleted

    def take(self, entry: Entry) -> None:
        ref = entry.object_ref or _Reference()
        mine = entry.user.username == self._operator
        if entry.what == ("delete", "pods", ""):
            if entry.stage == "RequestReceived":
                self.ending[entry.audit_i_d] = f"{ref.namespace}/{ref.name}", entry.received
            else:
                self.ending.pop(entry.audit_i_d, None)
        deletes = entry.verb == "delete" and ref.resource in _VICTIMS
        if mine and deletes and not ref.subresource:
            if entry.stage == "RequestReceived":
                self.asked[entry.audit_i_d] = f"{ref.namespace}/{ref.name}"
            else:
                self.asked.pop(entry.audit_i_d, None)
                if entry.done:
                    self.deletions.append((_deleted_uid(entry), entry.received))
                elif (code := entry.code) not in _NOT_DONE:
                    # What was asked may have been done: the operator's end cancels its requests.
                    self.ended_by[_deleted_uid(entry)] = f"a deletion that was answered {code}"
        elif entry.verb == "delete" and ref.resource == "pods" and entry.done:
            by = f"a deletion of {entry.user.username}"
            self.ended_by.setdefault(_deleted_uid(entry), by)
        if not entry.done:
            if mine and entry.stage == _DONE and entry.response_status:
                self.refused[entry.response_status.code] += 1
            return
        if entry.what == ("create", "preemptions", ""):
            self.records += 1
            self.record((entry.request_object or _NONE).get("spec") or _NONE, entry.answered)
        elif entry.what == ("create", "preemptionparts", ""):
            made = entry.request_object
            lines = ((made.get("spec") or _NONE).get("victims") or "").split("\n")
            rows = [msgspec.json.decode(line) for line in lines if line]
            self.parts[made["metadata"]["name"]] = [uid for _, uid, *_ in rows]
            self.subjects |= {uid: rest[3] for _, uid, *rest in rows if len(rest) > 3}
        elif entry.what == ("create", "podgroups", ""):
            spec = entry.request_object["spec"]
            minimum = (spec.get("schedulingPolicy") or _NONE).get("gang", _NONE).get("minCount", 0)
            key = f"{ref.namespace}/{entry.request_object['metadata']['name']}"
            self.gangs[key] = minimum, entry.answered, spec.get("priorityClassName", "")
        elif entry.what == ("delete", "namespaces", ""):
            self.gone.add(ref.name)
        elif ref.resource == "workloads":
            self.quota.take(entry)
        elif ref.resource == "pods":
            self._pod(entry)

    def record(self, spec: Object, at: float) -> None:
        """Take in a record that was committed; one in parts counts from its head on."""
        if spec.get("dryRun"):
            return
        victims = [
            uid
            for victim in spec.get("victims") or ()
            for uid in {victim["root"]["uid"], victim["subject"]["uid"]}
        ]
        for part in spec.get("parts") or ():
            for uid in self.parts.get(part, ()):
                victims += {uid, self.subjects.get(uid, uid)}
        for uid in victims:
            self.recorded[uid].append(at)

    def _pod(self, entry: Entry) -> None:
        if entry.what == ("create", "pods", "binding"):
            uid = (entry.request_object.get("metadata") or _NONE).get("uid", "")
            if uid in self.pods:
                self._on_node(self.pods[uid], entry.request_object["target"]["name"], entry)
            return
        shown = entry.response_object
        if not isinstance(shown, dict) or shown.get("kind") != "Pod":
            if entry.verb == "delete" and (uid := _deleted_uid(entry)) in self.pods:
                self._ended(self.pods[uid], entry)
            return
        metadata, spec = shown["metadata"], shown["spec"]
        uid = metadata["uid"]
        pod = self.pods.get(uid)
        if pod is None:
            group = (spec.get("schedulingGroup") or _NONE).get("podGroupName", "")
            gang = f"{metadata['namespace']}/{group}" if group else ""
            name = f"{metadata['namespace']}/{metadata['name']}"
            pod = self.pods[uid] = _Pod(uid, name, _cpus(spec), gang)
        pod.seen = max(pod.seen, entry.received)
        if spec.get("nodeName"):
            self._on_node(pod, spec["nodeName"], entry)
        gone = entry.verb == "delete" and metadata.get("deletionGracePeriodSeconds", 0) == 0
        if gone or (shown.get("status") or _NONE).get("phase") in _OVER:
            self._ended(pod, entry)

    def end_unanswered(self) -> None:
        """Who was to be deleted when the API server died, and was never seen again, is gone."""
        asked: defaultdict[str, list[float]] = defaultdict(list)
        for name, at in self.ending.values():
            asked[name].append(at)
        for pod in self.pods.values():
            after = [at for at in asked.get(pod.name, ()) if at > pod.seen]
            if pod.ended is None and after:
                pod.ended = min(after)

    @staticmethod
    def _on_node(pod: _Pod, node: str, entry: Entry) -> None:
        if pod.bound is None:
            pod.node, pod.bound = node, entry.received

    @staticmethod
    def _ended(pod: _Pod, entry: Entry) -> None:
        if pod.ended is None:
            pod.ended = entry.received


def judge(
    entries: Iterable[Entry],
    operator: str,
    nodes: Mapping[str, float],
    stored: Iterable[Object] = (),
    wanted: str = "high",
    queues: Mapping[str, float] | None = None,
) -> Findings:
    """Return what the entries say.

    `nodes`: cpus by node; `queues`: quota by ClusterQueue. `stored`: the Preemptions that are there
    at the end. `wanted`: the priority class whose gangs all have to come to their nodes.
    """
    reading = _Reading(operator)
    for entry in entries:
        reading.take(entry)
    reading.end_unanswered()
    for record in stored:
        reading.record(record["spec"], _seconds(record["metadata"]["creationTimestamp"]))
    times = Counter(uid for uid, _ in reading.deletions)
    found = Findings(
        deletions=len(reading.deletions),
        evictions=len(reading.quota.evictions),
        records=reading.records,
        unanswered=len(reading.asked),
        deleted_twice=sorted(uid for uid, number in times.items() if number > 1),
        without_record=list(_without_record(reading)),
        refused=dict(sorted(reading.refused.items())),
        parts=reading.parts,
        told_to_go={*times, *(uid for uid, _ in reading.quota.evictions)},
        ended_by=reading.ended_by,
    )
    found.overcommitted = [
        *_overcommitted(reading.pods.values(), nodes),
        *_overcommitted(reading.quota.ever, queues or {}),
    ]
    _judge_gangs(found, reading, wanted)
    return found


def _without_record(reading: _Reading) -> Iterator[str]:
    """Yield who was deleted or evicted without a record since the last time that it was."""
    before: dict[str, float] = {}
    for uid, at in sorted((*reading.deletions, *reading.quota.evictions), key=lambda each: each[1]):
        last = before.get(uid, 0.0)
        if not any(last < record <= at for record in reading.recorded.get(uid, ())):
            yield uid
        before[uid] = at


def _judge_gangs(found: Findings, reading: _Reading, wanted: str) -> None:
    """Judge those that were made as a whole and whose namespace stays."""
    members: defaultdict[str, list[float]] = defaultdict(list)
    made = Counter(pod.gang for pod in reading.pods.values())
    for pod in reading.pods.values():
        if pod.gang and pod.bound is not None:
            members[pod.gang].append(pod.bound)
    for key, (minimum, created, priority) in reading.gangs.items():
        if priority != wanted or not minimum or key.partition("/")[0] in reading.gone:
            continue
        if made[key] < minimum:
            continue
        found.gangs += 1
        bound = sorted(members[key])
        if len(bound) < minimum:
            found.gangs_lost.append(f"{key}: {len(bound)} of {minimum} bound")
        else:
            found.slowest_gang_s = max(found.slowest_gang_s, bound[minimum - 1] - created)


def _overcommitted(pods: Iterable[_Pod], nodes: Mapping[str, float]) -> Iterator[str]:
    """Yield each node that held more than it has, once, with the moment and its pods."""
    by_node: defaultdict[str, list[_Pod]] = defaultdict(list)
    for pod in pods:
        # Deleted and bound in one moment, it was gone as soon as it was there.
        if pod.bound is not None and (pod.ended is None or pod.ended > pod.bound):
            by_node[pod.node].append(pod)
    for node, here in sorted(by_node.items()):
        # Of one moment the end comes first.
        steps = sorted(
            itertools.chain(
                ((pod.bound or 0.0, 1, pod) for pod in here),
                ((pod.ended, 0, pod) for pod in here if pod.ended is not None),
            ),
            key=lambda step: step[:2],
        )
        held: dict[str, _Pod] = {}
        for at, comes, pod in steps:
            if comes:
                held[pod.uid] = pod
            else:
                held.pop(pod.uid, None)
            used = sum(each.cpus for each in held.values())
            if used > nodes.get(node, 0.0) + 1e-9:
                names = ", ".join(sorted(each.name for each in held.values()))
                yield f"{node} at {at:.3f}: {used:g} of {nodes.get(node, 0.0):g} cpus: {names}"
                break


def _conditions(shown: Object) -> dict[str, tuple[str, str]]:
    """Return status and reason by type."""
    listed = (shown.get("status") or _NONE).get("conditions") or ()
    return {each["type"]: (each["status"], each.get("reason", "")) for each in listed}


def _deleted_uid(entry: Entry) -> str:
    """Return whom a deletion was about: what the request asked for, or what the answer says."""
    asked = entry.request_object if isinstance(entry.request_object, dict) else _NONE
    shown = entry.response_object if isinstance(entry.response_object, dict) else _NONE
    details = shown.get("details") or _NONE
    return str(
        (asked.get("preconditions") or _NONE).get("uid")
        or (shown.get("metadata") or _NONE).get("uid")
        or details.get("uid")
        or ""
    )


def _cpus(spec: Object) -> float:
    total = 0.0
    for container in spec.get("containers") or ():
        text = (container.get("resources") or _NONE).get("requests", _NONE).get("cpu", "0")
        total += _amount(text)
    return total


def _amount(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0
