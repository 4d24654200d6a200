"""Traces in other people's forms: what becomes a job, and that all else is counted."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.simulation.readers import READERS
from reprieve.simulation.trace import Job, Trace
from reprieve.units.errors import UsageError
from tests.simulation.building import SECOND

HELIOS = """\
job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u1,8,64,1,COMPLETED,2020-04-01 00:10:00,2020-04-01 00:10:30,2020-04-01 01:10:30,3600,30
8,u1,0,4,1,COMPLETED,2020-04-01 00:11:00,2020-04-01 00:11:00,2020-04-01 00:12:00,60,0
9,u2,1,4,1,CANCELLED,2020-04-01 00:12:00,,2020-04-01 00:13:00,,
10,u2,1,4,1,FAILED,2020-04-01 08:12:00+08:00,2020-04-01 00:12:00,2020-04-01 00:12:10,10,0
"""
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
scheduled_time
openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,100,4000,150
openb-pod-0022,4000,15258,0,0,,BE,Running,110,4000,110
openb-pod-0035,4000,15258,1,220,,LS,Running,120,620,120
openb-pod-0036,4000,15258,1,220,,LS,Pending,130,620,
"""
OPENB_2025 = """\
instance_sn,role,app_name,cpu_request,gpu_request,creation_time,scheduled_time,deletion_time
instance_1,HN,app_0,12,1,50.0,60.0,360.0
instance_2,CN,app_1,64,0,51.0,51.0,60.0
instance_3,HN,app_0,12,1,,,
"""
PAI = """\
j1,worker,4.0,Terminated,1000.0,1500.0,600.0,29.3,50.0,V100
j2,tensorflow,1.0,Terminated,1100.0,1200.0,600.0,29.3,,
j3,worker,1.0,Running,1200.0,,600.0,29.3,100.0,T4
"""
SWF = """\
; Version: 2.2
1 0 5 3600 8 -1 -1 8 7200 -1 1 3 1 1 1 -1 -1 -1
2 60 5 100 -1 -1 -1 16 7200 -1 1 3 1 1 1 -1 -1 -1
3 70 -1 -1 4 -1 -1 4 7200 -1 5 3 1 1 1 -1 -1 -1
4 80 1
"""
SACCT = """\
JobID|Submit|ElapsedRaw|AllocTRES|State
11|2024-05-01T10:00:00|600|billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,node=1|COMPLETED
11.batch|2024-05-01T10:00:05|600|cpu=8,gres/gpu=4,node=1|COMPLETED
12|2024-05-01T10:00:30|60|cpu=8,node=1|COMPLETED
13|2024-05-01T10:01:00|0|cpu=8,gres/gpu=1,node=1|CANCELLED
14|Unknown|5|gres/gpu=1|FAILED
"""
PHILLY = json.dumps(
    [
        {
            "status": "Pass",
            "vc": "ee9e8c",
            "jobid": "application_1",
            "attempts": [
                {
                    "start_time": "2017-10-07 02:00:00",
                    "end_time": "2017-10-07 02:10:00",
                    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["g"]}],
                },
                {"start_time": "2017-10-07 02:20:00", "end_time": "None", "detail": []},
            ],
            "submitted_time": "2017-10-07 01:59:00",
            "user": "ce2f4c",
        },
        {"jobid": "application_2", "attempts": [], "submitted_time": "2017-10-07 01:59:00"},
        "nonsense",
    ]
)


def job(name: str, arrival: int, devices: int, duration: int, tenant: str = "") -> Job:
    return Job(name, arrival * SECOND, devices, duration * SECOND, tenant=tenant)


CASES = {
    "helios": (HELIOS, [job("7", 0, 8, 3_600), job("10", 120, 1, 10)], 1, [4]),
    "acme": (HELIOS, [job("7", 0, 8, 3_600), job("10", 120, 1, 10)], 1, [4]),
    "openb": (
        OPENB,
        [job("openb-pod-0017", 0, 8, 3_850), job("openb-pod-0035", 20, 1, 500)],
        1,
        [5],
    ),
    "openb-2025": (OPENB_2025, [job("instance_1", 0, 1, 300)], 1, [4]),
    "pai": (PAI, [job("j1/worker", 0, 2, 500)], 1, [3]),
    "swf": (SWF, [job("1", 0, 8, 3_600), job("2", 60, 16, 100)], 0, [4, 5]),
    "sacct": (SACCT, [job("11", 0, 4, 600)], 2, [5, 6]),
    "philly": (PHILLY, [job("application_1", 0, 3, 600, "ee9e8c")], 0, [2, 3]),
}

GAVEL_TABLE = json.dumps(
    {
        "v100": {
            "('ResNet-18 (batch size 32)', 1)": {"null": 10.0, "('LM', 1)": [1.0, 1.0]},
            "('ResNet-18 (batch size 32)', 2)": {"null": 16.0},
            "('LM (batch size 5)', 1)": {"null": 4},
            "('A3C', 1)": {"null": 0.0},
        },
        "k80": {"('A3C', 1)": {"null": 5.0}},
    }
)
GAVEL = """\
ResNet-18 (batch size 32)\tpython3 main.py\t--num_steps\t1\t1600\t2\t1\t-1.0\t100
LM (batch size 5)\tpython main.py\t/data\t--steps\t1\t400\t8\t1\t-1\t130.5
A3C\tpython3 main.py\t--max-steps\t0\t400\t1\t1\t-1\t140
LM (batch size 5)\tpython main.py\t--steps\t1\t0\t1\t1\t-1\t150
ResNet-18\tcd x && python3 main.py\t--num_steps\t101792\t10\t1
"""
CASES["gavel"] = (
    GAVEL,
    [
        replace(job("L1", 0, 2, 100), model="ResNet-18 (batch size 32)"),
        replace(job("L2", 0, 8, 100), model="LM (batch size 5)", arrival=30 * SECOND + SECOND // 2),
    ],
    0,
    [3, 4, 5],
)


def workload(name: str, **changed: object) -> dict[str, object]:
    """A Workload of ten minutes on four devices, as kubectl prints it."""
    usage = {"cpu": "8", "nvidia.com/gpu": "4"}
    conditions = [
        {"type": "QuotaReserved", "status": "False", "lastTransitionTime": "2026-01-01T00:20:00Z"},
        {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-01T00:10:00Z"},
        {"type": "Finished", "status": "True", "lastTransitionTime": "2026-01-01T00:20:00Z"},
    ]
    assigned = [{"name": "main", "resourceUsage": usage}]
    status = {
        "conditions": conditions,
        "admission": {"clusterQueue": "research", "podSetAssignments": assigned},
    }
    metadata = {"name": name, "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "kind": "Workload",
        "metadata": metadata,
        "spec": {"priority": 100},
        "status": {**status, **changed},
    }


def on_cpus() -> dict[str, object]:
    assigned = [{"name": "main", "resourceUsage": {"cpu": "8"}}]
    return workload("cpus", admission={"clusterQueue": "q", "podSetAssignments": assigned})


KUEUE = json.dumps(
    {
        "kind": "List",
        "items": [
            workload("train"),
            on_cpus(),
            {"kind": "Pod", "metadata": {}},
            workload("waits", conditions=[]),
            workload("odd", admission=["no"]),
            workload("odder", conditions=[1]),
            7,
        ],
    }
)
CASES["kueue"] = (
    KUEUE,
    [replace(job("team/train", 0, 4, 600, "research"), priority=100)],
    1,
    [3, 4, 5, 6, 7],
)


def kwok(at: float, method: str, name: str, template: Any = None, **more: Any) -> str:
    """Return one document of a recording; `at`: seconds since its beginning."""
    document = {
        "apiVersion": "action.kwok.x-k8s.io/v1alpha1",
        "kind": "ResourcePatch",
        "resource": {"version": "v1", "resource": "pods"},
        "target": {"namespace": "research", "name": name},
        "durationNanosecond": round(at * SECOND),
        "method": method,
        **({} if template is None else {"template": template}),
        **more,
    }
    return yaml.safe_dump(document, sort_keys=False)


def kwok_pod(name: str, gpus: int, owner: str = "", node: str = "", **spec: Any) -> dict[str, Any]:
    """Return a pod as it is recorded."""
    metadata: dict[str, Any] = {"namespace": "research", "name": name}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Job", "name": owner, "controller": True}]
    resources = {"requests": {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}}
    spec = {"containers": [{"name": "main", "resources": resources}], **spec}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


BOUND = {"spec": {"nodeName": "node-0"}}
DONE = {"status": {"phase": "Succeeded"}}
KWOK = "---\n".join(
    (
        # What was there, and a node, which is passed over.
        yaml.safe_dump({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}}),
        yaml.safe_dump(kwok_pod("there", 2, node="node-0", priority=7)),
        kwok(3, "create", "node-1", {}, resource={"version": "v1", "resource": "nodes"}),
        # Two pods of one Job; one is lost and made anew, so that three held four devices for 100,
        # 40 and 60 seconds.
        kwok(10, "create", "train-0", kwok_pod("train-0", 4, "train", priority=100)),
        kwok(10, "create", "train-1", kwok_pod("train-1", 4, "train", priority=100)),
        kwok(20, "patch", "train-0", BOUND),
        kwok(20, "patch", "train-1", BOUND),
        kwok(60, "delete", "train-1"),
        kwok(60, "create", "train-2", kwok_pod("train-2", 4, "train", priority=100)),
        kwok(60, "patch", "train-2", BOUND),
        kwok(120, "patch", "train-0", DONE),
        kwok(120, "patch", "train-2", DONE),
        kwok(121, "delete", "train-2"),
        # A member of a group, and one without devices.
        kwok(30, "create", "m", kwok_pod("m", 1, schedulingGroup={"podGroupName": "gang"})),
        kwok(31, "patch", "m", BOUND),
        kwok(35, "patch", "m", BOUND),
        kwok(41, "delete", "m"),
        kwok(32, "create", "small", kwok_pod("small", 0)),
        kwok(50, "patch", "there", DONE),
        # What is left out: never bound, not ended, and what says nothing.
        kwok(33, "create", "waits", kwok_pod("waits", 1)),
        kwok(34, "delete", "waits"),
        kwok(35, "create", "runs", kwok_pod("runs", 1, node="node-0")),
        kwok(36, "patch", "unknown", BOUND),
        kwok(37, "delete", "unknown"),
        kwok(-1, "patch", "there", DONE),
        kwok(38, "rename", "there"),
        kwok(38, "create", "odd", {"metadata": {}, "spec": {"containers": 7}}),
        kwok(38, "create", "there", kwok_pod("there", 1)),
        kwok(38, "create", "odder", kwok_pod("odder", 1, priority=2**40)),
        "7",
    )
)
CASES["kwok"] = (
    KWOK,
    [
        replace(job("research/there", 0, 2, 50, "research"), priority=7),
        replace(job("research/train", 10, 8, 100, "research"), priority=100),
        job("research/gang", 30, 1, 10, "research"),
    ],
    1,
    [20, 22, 23, 24, 25, 26, 27, 28, 29, 30],
)


def read(form: str, content: str, folder: Path) -> Trace:
    path = folder / "trace"
    path.write_text(content)
    (folder / "simulation_throughputs.json").write_text(GAVEL_TABLE)
    return READERS[form](path, "trace")


@pytest.mark.parametrize("form", CASES)
def test_each_line_is_a_job_or_counted(form: str, tmp_path: Path) -> None:
    content, jobs, without, malformed = CASES[form]
    found = read(form, content, tmp_path)
    assert list(found.jobs) == jobs
    assert found.without == without
    assert [each.line for each in found.malformed] == malformed
    assert all(each.why for each in found.malformed)


def test_every_form_has_a_case() -> None:
    assert {*CASES, "csv"} == set(READERS)


@pytest.mark.parametrize("form", sorted(set(READERS) - {"pai", "swf"}))
def test_a_file_of_another_form_is_refused_with_what_is_accepted(form: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"trace(:1)?(:1)?: .*; accepted: "):
        read(form, "hello,world\n1,2\n", tmp_path)


@pytest.mark.parametrize("form", ["pai", "swf"])
def test_a_file_without_a_header_of_another_form_has_no_jobs(form: str, tmp_path: Path) -> None:
    found = read(form, "hello,world\n1,2\n", tmp_path)
    assert not found.jobs
    assert [each.line for each in found.malformed] == [1, 2]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (None, "without a simulation_throughputs.json; accepted: one in its folder"),
        ("[]", "accepted: Gavel's table with rates of a v100"),
        ('{"k80": {}}', "accepted: Gavel's table with rates of a v100"),
        ('{"v100": 7}', "v100 is no mapping"),
        ("{", "accepted: Gavel's table with rates of a v100"),
    ],
)
def test_a_trace_of_gavel_without_its_table_is_refused(
    table: str | None, said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "b" / "c" / "d"
    folder.mkdir(parents=True)
    (folder / "t.trace").write_text(GAVEL)
    if table is not None:
        (folder.parents[2] / "simulation_throughputs.json").write_text(table)
    with pytest.raises(UsageError) as refused:
        READERS["gavel"](folder / "t.trace", "t")
    assert said in str(refused.value)


def _workload(**said: Any) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": said.get("gpus", "1")}
    named = {"namespace": "team", "name": said.get("name", "w")}
    return {
        "kind": "Workload",
        "metadata": {**named, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"priority": said.get("priority", 5)},
        "status": {
            "admission": {
                "clusterQueue": said.get("queue", "cq"),
                "podSetAssignments": [{"resourceUsage": amounts}],
            },
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": f"2026-01-01T0{hour}:00:00Z"}
                for kind, hour in (("Admitted", 1), ("Finished", 2))
            ],
        },
    }


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"priority": 10**30}, "priority '1000"),
        ({"priority": True}, "priority 'True'"),
        ({"gpus": "-5"}, "devices: '-5'; accepted: 0 to"),
        ({"gpus": "9000000000"}, "devices: '9000000000'; accepted: 0 to"),
        ({"gpus": "1e40"}, "exponent beyond"),
        ({"name": "\ud800"}, "no text"),
        ({"queue": "\ud800"}, "no text"),
    ],
)
def test_values_that_no_cluster_has_cost_their_workload_alone(
    said: dict[str, Any], why: str, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"items": [_workload(**said), _workload(name="good")]}))
    trace = READERS["kueue"](file, "t")
    assert [job.id for job in trace.jobs] == ["team/good"]
    assert [(each.line, why in each.why) for each in trace.malformed] == [(1, True)], (
        trace.malformed
    )


@pytest.mark.parametrize("deep", ["[" * 200_000, "- " * 200_000, "{a: " * 200_000])
def test_a_recording_that_is_nested_without_end_is_refused(deep: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"trace:1: .*; accepted: what kwokctl snapshot record"):
        read("kwok", deep, tmp_path)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ("a: &a [1]\nb: *a\n", "trace:1: an anchor"),
        ('x: !!int ""\n', "trace:1: a tag"),
        ("x: !!timestamp foo\n", "trace:1: a tag"),
    ],
)
def test_a_recording_with_what_none_has_is_refused(odd: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{said}; accepted: what kwokctl snapshot record"):
        read("kwok", odd, tmp_path)


@pytest.mark.parametrize("part", ["metadata", "spec", "status"])
@pytest.mark.parametrize("value", [[1], 5, "a", True, {"name": [1]}, {"phase": {}}])
def test_a_pod_of_another_shape_costs_its_document(part: str, value: Any, tmp_path: Path) -> None:
    odd = {**kwok_pod("odd", 1, node="node-0"), part: value}
    good = kwok(3, "create", "good", kwok_pod("good", 1, node="node-0"))
    documents = (
        kwok(1, "create", "odd", odd),
        kwok(2, "patch", "odd", {part: value}),
        good,
        kwok(4, "delete", "good"),
    )
    found = read("kwok", "---\n".join(documents), tmp_path)
    assert [job.id for job in found.jobs] == ["research/good"]
    assert {each.line for each in found.malformed} <= {1, 2}
    assert found.malformed or found.without


@pytest.mark.parametrize("owners", [5, "abc", {"a": 1}, [7], [{"controller": True}]])
def test_owners_of_another_shape_cost_their_pod(owners: Any, tmp_path: Path) -> None:
    odd = kwok_pod("odd", 1)
    odd["metadata"]["ownerReferences"] = owners
    found = read("kwok", kwok(1, "create", "odd", odd), tmp_path)
    assert [each.line for each in found.malformed] == [1] and not found.jobs


def test_numbers_without_end_cost_their_document(tmp_path: Path) -> None:
    long = "0x" + "f" * 5_000
    documents = (
        kwok(1, "create", "a", kwok_pod("a", 1)).replace("1000000000", long),
        kwok(1, "create", "b", kwok_pod("b", 1, priority=77)).replace("77", long),
    )
    found = read("kwok", "---\n".join(documents), tmp_path)
    assert [each.line for each in found.malformed] == [1, 2]
    assert all(len(each.why) < 200 for each in found.malformed)


def test_work_that_comes_again_under_its_name_is_another_job(tmp_path: Path) -> None:
    def owned(name: str, uid: str) -> dict[str, Any]:
        pod = kwok_pod(name, 1, "nightly", "node-0")
        pod["metadata"]["ownerReferences"][0]["uid"] = uid
        return pod

    group = {"podGroupName": "x"}
    documents = [
        # A pod without an owner, twice; beside it a Job and a group of its name.
        kwok(0, "create", "x", kwok_pod("x", 1, node="node-0")),
        kwok(1, "create", "y", kwok_pod("y", 1, "x", "node-0")),
        kwok(2, "create", "z", kwok_pod("z", 1, "", "node-0", schedulingGroup=group)),
        *(kwok(4, "delete", name) for name in "xyz"),
        kwok(6, "create", "x", kwok_pod("x", 1, node="node-0")),
        kwok(9, "delete", "x"),
        # A Job of every night, whose first night has a second pod after the first one failed.
        kwok(10, "create", "a", owned("a", "first")),
        kwok(12, "delete", "a"),
        kwok(13, "create", "b", owned("b", "first")),
        kwok(14, "delete", "b"),
        kwok(20, "create", "c", owned("c", "second")),
        kwok(25, "delete", "c"),
    ]
    found = read("kwok", "---\n".join(documents), tmp_path)
    assert not found.malformed
    told = [(each.id, each.arrival // SECOND, each.duration // SECOND) for each in found.jobs]
    assert told == [
        ("research/x", 0, 4),
        ("research/x#2", 1, 3),
        ("research/x#3", 2, 2),
        ("research/x#4", 6, 3),
        ("research/nightly", 10, 3),
        ("research/nightly#2", 20, 5),
    ]


@pytest.mark.parametrize("form", ["philly", "kueue"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ":1:1: it is empty; accepted: "),
        (b'[{"jobid": 1,\n oops}]', ":2:2: no JSON from here on; accepted: "),
        (b'["\xff"]', ": bytes that are no UTF-8; accepted: "),
        (b"[" * 200_000, ": it is nested too deeply; accepted: "),
        (gzip.compress(b"[]" * 99, mtime=0)[:-9], ": it ends in the midst of what is packed"),
        (
            b"\x1f\x8b" + b"no gzip at all",
            ": it begins as gzip does, and is none or damaged; accepted: ",
        ),
    ],
    ids=["empty", "broken off", "no UTF-8", "nested", "cut off", "damaged"],
)
def test_what_is_no_json_is_told_in_peoples_words(
    form: str, content: bytes, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    file.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        READERS[form](file, "t")
    assert str(refused.value).startswith(f"{file}{said}")


@pytest.mark.parametrize("form", READERS)
def test_a_compressed_file_that_is_damaged_is_refused(form: str, tmp_path: Path) -> None:
    packed = gzip.compress(b'{"items": []}')
    file = tmp_path / "trace.gz"
    file.write_bytes(packed[:10] + b"\xff" * 8 + packed[18:])
    with pytest.raises(UsageError, match="accepted: "):
        READERS[form](file, "t")
