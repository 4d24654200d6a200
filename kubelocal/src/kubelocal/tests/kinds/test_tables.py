"""Tables: what `kubectl get` prints."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.server.printing.ages import human_duration
from kubelocal.server.printing.tables import table
from kubelocal.server.types.jsonpath import InvalidPath, find
from kubelocal.server.types.registry import Registry
from kubelocal.tests.kinds.objects import (
    Object,
    deployment,
    job,
    kind_of,
    pod,
    stored,
    task,
    with_tasks,
)
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant

NOW = parse_instant("2026-01-01T01:00:00Z")


def rows(obj: Object, registry: Registry | None = None) -> dict[str, Any]:
    """Return column -> cell of the one row of `obj`."""
    obj["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    made = table(kind_of(obj, registry), [obj], NOW, "None", "7")
    names = [column["name"] for column in made["columnDefinitions"]]
    return dict(zip(names, made["rows"][0]["cells"], strict=True))


def test_a_row_carries_what_was_asked_for() -> None:
    obj = stored(pod())
    kind = kind_of(obj)
    carried = {
        word: table(kind, [obj], NOW, word, "7", "next")["rows"][0]["object"]
        for word in ("Metadata", "Object", "None")
    }
    assert carried["Object"] == obj
    assert carried["None"] is None
    assert carried["Metadata"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
    made = table(kind, [obj], NOW, "None", "7", "next", columns=False)
    assert made["metadata"] == {"resourceVersion": "7", "continue": "next"}
    assert made["columnDefinitions"] is None


def test_a_waiting_pod() -> None:
    assert rows(stored(pod())) == {
        "Name": "p",
        "Ready": "0/1",
        "Status": "Pending",
        "Restarts": "0",
        "Age": "60m",
        "IP": "<none>",
        "Node": "<none>",
        "Nominated Node": "<none>",
        "Readiness Gates": "<none>",
    }


def _container(state: Object, **status: Any) -> Object:
    return {"name": "main", "state": state, "ready": False, "restartCount": 0, **status}


@pytest.mark.parametrize(
    ("status", "deleted", "word"),
    [
        (
            {"phase": "Running", "containerStatuses": [_container({"running": {}})]},
            False,
            "Running",
        ),
        ({"phase": "Running"}, True, "Terminating"),
        ({"phase": "Succeeded"}, True, "Succeeded"),
        ({"phase": "Failed", "reason": "Evicted"}, False, "Evicted"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [_container({"waiting": {"reason": "ErrImagePull"}})],
            },
            False,
            "ErrImagePull",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [_container({"terminated": {"exitCode": 3}})],
            },
            False,
            "ExitCode:3",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}],
            },
            False,
            "SchedulingGated",
        ),
    ],
)
def test_the_status_word_of_a_pod(status: Object, deleted: bool, word: str) -> None:
    obj = stored(pod())
    obj["status"] = status
    if deleted:
        obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:30:00Z"
    assert rows(obj)["Status"] == word


def test_restarts_say_when() -> None:
    obj = stored(pod())
    last = {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}
    obj["status"]["containerStatuses"] = [
        _container({"running": {}}, restartCount=2, lastState=last, ready=True)
    ]
    cells = rows(obj)
    assert (cells["Ready"], cells["Restarts"]) == ("1/1", "2 (5m ago)")


def test_a_running_job_and_a_finished_one() -> None:
    obj = stored(job(completions=2, parallelism=2))
    obj["status"] = {"startTime": "2026-01-01T00:58:00Z", "active": 2}
    cells = rows(obj)
    assert (cells["Status"], cells["Completions"], cells["Duration"]) == ("Running", "0/2", "2m")
    assert (cells["Containers"], cells["Images"]) == ("main", "example.org/a:1")
    obj["status"] = {
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:00:30Z",
        "succeeded": 2,
        "conditions": [{"type": "Complete", "status": "True"}],
    }
    cells = rows(obj)
    assert (cells["Status"], cells["Completions"], cells["Duration"]) == ("Complete", "2/2", "30s")


def test_a_deployment() -> None:
    obj = stored(deployment(replicas=3))
    obj["status"] = {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}
    assert rows(obj) == {
        "Name": "d",
        "Ready": "1/3",
        "Up-to-date": 2,
        "Available": 1,
        "Age": "60m",
        "Containers": "main",
        "Images": "example.org/a:1",
        "Selector": "app=d",
    }


def test_a_cordoned_node() -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    cells = rows(node)
    assert (cells["Status"], cells["Roles"]) == ("Ready,SchedulingDisabled", "worker")


def test_events_have_their_name_last() -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p"},
        "type": "Warning",
        "reason": "Preempted",
        "message": "gone \n",
        "lastTimestamp": "2026-01-01T00:59:00Z",
    }
    cells = rows(event)
    assert next(iter(cells)) == "Last Seen"
    assert list(cells)[-1] == "Name"
    assert (cells["Last Seen"], cells["Object"], cells["Message"]) == ("60s", "pod/p", "gone")


def test_columns_of_a_definition_are_found_by_path() -> None:
    status = {
        "phase": "Idle",
        "idleSince": "2026-01-01T00:48:00Z",
        "conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "False"}],
    }
    registry = with_tasks()
    cells = rows(stored(task(status), registry), registry)
    assert cells == {
        "Name": "t",
        "Phase": "Idle",
        "Replicas": 1,
        "Idle Since": "12m",
        "Ready": "False",
    }
    empty = rows(stored(task(), registry), registry)
    assert (empty["Phase"], empty["Idle Since"], empty["Ready"]) == (None, None, None)


def test_a_scale_has_columns_of_its_own() -> None:
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "d"},
        "spec": {"replicas": 3},
        "status": {"replicas": 2},
    }
    made = table(kind_of(deployment()), [scale], NOW, "None", "1")
    assert [each["name"] for each in made["columnDefinitions"]] == [
        "Name",
        "Desired",
        "Available",
        "Age",
    ]
    assert made["rows"][0]["cells"] == ["d", 3, 2, "<unknown>"]


def test_every_built_in_kind_has_a_table() -> None:
    registry = Registry()
    for kind in registry.all():
        bare = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}}
        assert table(kind, [bare], NOW, "None", "1")["rows"], kind.kind


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 12 * 60, "5h12m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (51 * 3600, "2d3h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (2 * 365 * 86400, "2y"),
        ((2 * 365 + 30) * 86400, "2y30d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_grow_coarser(seconds: int, text: str) -> None:
    assert human_duration(seconds * SECOND) == text


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        (r".a.x\.y", [2]),
        (".a['x.y']", [2]),
        (".l[0].n", ["p"]),
        (".l[-1].n", ["q"]),
        (".l[*].n", ["p", "q"]),
        ('.l[?(@.n=="q")].v', [5]),
        (".l[?(@.v>4)].n", ["q"]),
        (".l[?(@.v)].n", ["p", "q"]),
        (".nothing.here", []),
        (".l[7]", []),
    ],
)
def test_paths_of_columns(path: str, found: list[Any]) -> None:
    obj = {"a": {"b": 1, "x.y": 2}, "l": [{"n": "p", "v": 4}, {"n": "q", "v": 5}]}
    assert find(path, obj) == found


def test_what_is_no_path_is_refused() -> None:
    with pytest.raises(InvalidPath):
        find(".a[", {})
