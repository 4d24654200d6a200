"""The reader of audit logs finds what must not be, and nothing else."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.reliability.audit import Findings, judge, never_answered, read, told_to_go

Object = dict[str, Any]
_IDS = itertools.count()


def entry(
    at: float,
    verb: str,
    resource: str,
    name: str,
    *,
    user: str = "operator",
    asked: Object | None = None,
    shown: Object | None = None,
    answered: bool = True,
) -> list[Object]:
    """Return the lines of a request that was received `at` that second and took 0.1 s."""
    plural, _, part = resource.partition("/")
    moment = f"2026-01-01T00:00:{at:09.6f}Z"
    both = {
        "auditID": str(next(_IDS)),
        "verb": verb,
        "user": {"username": user},
        "objectRef": {
            "resource": plural,
            "namespace": "team",
            "name": name,
            "subresource": part,
        },
        "requestReceivedTimestamp": moment,
    }
    received = {**both, "stage": "RequestReceived", "stageTimestamp": moment}
    done = {
        **both,
        "stage": "ResponseComplete",
        "stageTimestamp": f"2026-01-01T00:00:{at + 0.1:09.6f}Z",
        "responseStatus": {"code": 200},
        "requestObject": asked,
        "responseObject": shown,
    }
    return [received, done] if answered else [received]


def pod(name: str, node: str = "", group: str = "", grace: int = 1) -> Object:
    requests = {"requests": {"cpu": "4"}}
    spec: Object = {"containers": [{"resources": requests}], "nodeName": node}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "deletionGracePeriodSeconds": grace,
    }
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def created(at: float, name: str, group: str = "") -> list[Object]:
    return entry(at, "create", "pods", name, user="admin", shown=pod(name, group=group))


def bound(at: float, name: str, node: str) -> list[Object]:
    asked = {"metadata": {"uid": f"uid-{name}"}, "target": {"name": node}}
    return entry(at, "create", "pods/binding", name, asked=asked)


def recorded(at: float, *names: str, dry_run: bool = False) -> list[Object]:
    refs = [{"uid": f"uid-{name}"} for name in names]
    spec = {"victims": [{"root": ref, "subject": ref} for ref in refs], "dryRun": dry_run}
    return entry(at, "create", "preemptions", "", asked={"spec": spec})


def recorded_in_parts(at: float, *names: str, subject: str = "") -> list[Object]:
    """Return the lines of a record whose victims stand in a part, which is written before.

    `subject`: what is marked for each of them, where that is another object.
    """
    more = f',null,null,"uid-{subject}"' if subject else ""
    lines = "\n".join(f'["{name}","uid-{name}",0{more}]' for name in names)
    asked = {"metadata": {"name": "n-1"}, "spec": {"victims": lines}}
    part = entry(at, "create", "preemptionparts", "n-1", asked=asked)
    head = entry(at + 0.2, "create", "preemptions", "n", asked={"spec": {"parts": ["n-1"]}})
    return part + head


def deleted(at: float, name: str, *, answered: bool = True) -> list[Object]:
    asked = {"preconditions": {"uid": f"uid-{name}"}}
    return entry(at, "delete", "pods", name, asked=asked, shown=pod(name), answered=answered)


def ended(at: float, name: str, *, answered: bool = True) -> list[Object]:
    """The kubelet takes the pod away."""
    shown = pod(name, grace=0)
    return entry(at, "delete", "pods", name, user="admin", shown=shown, answered=answered)


def gang(at: float, name: str, minimum: int) -> list[Object]:
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}, "priorityClassName": "high"}
    asked = {"metadata": {"name": name}, "spec": spec}
    return entry(at, "create", "podgroups", name, user="admin", asked=asked)


def found(folder: Path, *requests: list[Object]) -> Findings:
    lines = [msgspec.json.encode(line) for request in requests for line in request]
    (folder / "audit.log").write_bytes(b"\n".join(lines) + b'\n{"torn":')
    return judge(read(folder / "audit.log"), "operator", {"node-0": 4.0, "node-1": 4.0})


def test_a_preemption_as_it_should_be_is_found_right(tmp_path: Path) -> None:
    said = found(
        tmp_path,
        gang(0, "g", 1),
        created(1, "low"),
        created(1, "high", "g"),
        bound(2, "low", "node-0"),
        recorded(3, "low"),
        deleted(4, "low"),
        ended(5, "low"),
        bound(6, "high", "node-0"),
    )
    assert (said.deletions, said.records, said.gangs) == (1, 1, 1)
    assert not any(said.wrong.values())


def test_who_stands_in_a_part_is_recorded_once_the_head_is_there(tmp_path: Path) -> None:
    after = deleted(2, "a"), deleted(2, "b"), deleted(2, "c")
    assert found(tmp_path, recorded_in_parts(1, "a", "b"), *after).without_record == ["uid-c"]
    marked = recorded_in_parts(1, "root", subject="a")
    assert found(tmp_path, marked, *after).without_record == ["uid-b", "uid-c"]
    headless = recorded_in_parts(1, "a", "b")[:2]
    assert set(found(tmp_path, headless, *after).without_record) == {"uid-a", "uid-b", "uid-c"}


@pytest.mark.parametrize(
    ("word", "requests"),
    [
        ("deleted_twice", [recorded(1, "low"), deleted(2, "low"), deleted(3, "low")]),
        ("without_record", [deleted(2, "low")]),
        ("without_record", [deleted(2, "low"), recorded(3, "low")]),
        ("without_record", [recorded(1, "other"), deleted(2, "low")]),
        ("without_record", [recorded(1, "low", dry_run=True), deleted(2, "low")]),
        (
            "overcommitted",
            [created(0, "a"), created(0, "b"), bound(1, "a", "node-0"), bound(2, "b", "node-0")],
        ),
        (
            "gangs_lost",
            [
                gang(0, "g", 2),
                created(1, "a", "g"),
                created(1, "b", "g"),
                bound(2, "a", "node-0"),
            ],
        ),
    ],
)
def test_what_must_not_be_is_found(tmp_path: Path, word: str, requests: list[list[Object]]) -> None:
    wrong = {word: which for word, which in found(tmp_path, *requests).wrong.items() if which}
    assert word in wrong
    assert wrong.keys() <= {word, "without_record"}


def test_a_gang_is_lost_only_where_all_of_it_was_made_and_its_namespace_stays(
    tmp_path: Path,
) -> None:
    both = [created(1, "a", "g"), created(1, "b", "g")]
    assert found(tmp_path, gang(0, "g", 2), *both).gangs_lost == ["team/g: 0 of 2 bound"]
    assert not found(tmp_path, gang(0, "g", 2), both[0]).gangs_lost
    ends = entry(2, "delete", "namespaces", "team", user="admin")
    assert not found(tmp_path, gang(0, "g", 2), *both, ends).gangs_lost


def test_who_ended_with_an_answer_that_was_lost_holds_no_room(tmp_path: Path) -> None:
    both = [created(0, "a"), created(0, "b"), bound(1, "a", "node-0")]
    lost = ended(2, "a", answered=False)
    assert not found(tmp_path, *both, lost, bound(3, "b", "node-0")).overcommitted
    # Seen again, it had not ended.
    seen = entry(2.5, "patch", "pods/status", "a", user="admin", shown=pod("a", "node-0"))
    assert found(tmp_path, *both, lost, seen, bound(3, "b", "node-0")).overcommitted


def test_who_is_deleted_and_bound_in_one_moment_holds_no_room(tmp_path: Path) -> None:
    both = [created(0, "a"), created(0, "b")]
    crossed = [ended(1.95, "a"), bound(2, "a", "node-0")]
    assert not found(tmp_path, *both, *crossed, bound(3, "b", "node-0")).overcommitted


def test_a_workload_is_evicted_on_a_record_of_its_own_each_time(tmp_path: Path) -> None:
    def workload(at: float, *, evicted: bool, cpus: str = "4") -> list[Object]:
        reason = {"type": "Evicted", "status": "True", "reason": "Preempted"}
        usage = {"resourceUsage": {"cpu": cpus}}
        admission = {"clusterQueue": "cq", "podSetAssignments": [usage]}
        status = {"conditions": [reason]} if evicted else {"admission": admission}
        shown = {"kind": "Workload", "metadata": {"name": "w", "uid": "uid-w"}, "status": status}
        return entry(at, "patch", "workloads/status", "w", shown=shown)

    first = [workload(1, evicted=False), recorded(2, "w"), workload(3, evicted=True)]
    again = [workload(4, evicted=False), workload(6, evicted=True)]
    assert found(tmp_path, *first).evictions == 1
    assert not found(tmp_path, *first).without_record
    assert found(tmp_path, *first, *again).without_record == ["uid-w"]
    assert not found(tmp_path, *first, recorded(5, "w"), *again).without_record


def test_who_was_told_to_go_is_counted_once_and_only_by_the_operator(tmp_path: Path) -> None:
    reason = {"type": "Evicted", "status": "True", "reason": "Preempted"}
    metadata = {"name": "w", "uid": "uid-w"}
    shown = {"kind": "Workload", "metadata": metadata, "status": {"conditions": [reason]}}
    details = {"kind": "Status", "details": {"uid": "uid-job"}}
    requests = [
        *(entry(at, "patch", "workloads/status", "w", shown=shown) for at in (1, 2)),
        entry(3, "delete", "jobs", "job", shown=details),
        deleted(4, "victim"),
        deleted(5, "unanswered", answered=False),
        ended(6, "victim"),
        entry(7, "delete", "pods", "by-hand", user="admin", shown=pod("by-hand")),
    ]
    lines = [msgspec.json.encode(line) for request in requests for line in request]
    (tmp_path / "audit.log").write_bytes(b"\n".join(lines))
    found = told_to_go(read(tmp_path / "audit.log"), "operator")
    assert found == {"uid-w", "uid-job", "uid-victim"}


def test_whose_eviction_was_requested_and_not_answered_is_named_once_it_never_was(
    tmp_path: Path,
) -> None:
    requests = [
        deleted(1, "lost", answered=False),
        deleted(2, "again", answered=False),
        deleted(3, "again"),
        ended(4, "by-hand", answered=False),
        entry(5, "patch", "workloads/status", "job-held", answered=False),
    ]
    lines = [msgspec.json.encode(line) for request in requests for line in request]
    (tmp_path / "audit.log").write_bytes(b"\n".join(lines))
    found = never_answered(read(tmp_path / "audit.log"), "operator")
    assert found == {"lost", "job-held"}


def test_a_workload_that_is_being_deleted_holds_no_quota(tmp_path: Path) -> None:
    def workload(at: float, name: str, deletion: str = "") -> list[Object]:
        usage = {"resourceUsage": {"cpu": "4"}}
        status = {"admission": {"clusterQueue": "cq", "podSetAssignments": [usage]}}
        metadata = {"name": name, "uid": name, "deletionTimestamp": deletion}
        shown = {"kind": "Workload", "metadata": metadata, "status": status}
        return entry(at, "patch", "workloads", name, shown=shown)

    gone = entry(2, "delete", "workloads", "a", shown={"details": {"uid": "a"}})
    lines = [*workload(1, "a"), *gone, *workload(3, "a", "2026-01-01T00:00:02Z")]
    lines += workload(4, "b")
    (tmp_path / "audit.log").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    queues = {"cq": 4.0}
    assert not judge(read(tmp_path / "audit.log"), "operator", {}, queues=queues).overcommitted
    lines += workload(5, "c")
    (tmp_path / "audit.log").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    assert judge(read(tmp_path / "audit.log"), "operator", {}, queues=queues).overcommitted
