"""Reported saves are written to the pod and to its Workload; the newest instant stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.core import ObjectMeta
from reprieve.execution.accounts.reported_checkpoints import ReportedCheckpoints, SavedPod
from reprieve.kube.errors import Conflict, Forbidden, NotFound

_AT = Nanos(1_800_000_000 * SECOND)
_KEY = "reprieve.dev/last-checkpoint"


def said(seconds: int = 0) -> dict[str, str]:
    """The annotation with an instant so long after the one that is reported."""
    return {_KEY: format_instant(Nanos(_AT + seconds * SECOND))}


class Server:
    """Pods and Workloads by name: annotations and version; those of `refused` are not written.

    `between` is called before each patch, as somebody else who writes.
    """

    def __init__(
        self,
        objects: dict[str, dict[str, str]],
        refused: dict[str, type[Exception]] | None = None,
        between: Callable[[Server], None] = lambda server: None,
    ) -> None:
        self.objects, self.refused, self.between = objects, refused or {}, between
        self.versions = dict.fromkeys(objects, 1)
        self.patched: list[str] = []

    def at(self, *_: Any, **__: Any) -> Server:
        return self

    def annotate(self, name: str, notes: dict[str, str]) -> None:
        self.objects[name] |= notes
        self.versions[name] += 1

    async def get(self, resource: Any, namespace: str, name: str, kind: Any) -> Any:
        if name not in self.objects:
            raise NotFound("no")
        version = str(self.versions[name])
        notes = dict(self.objects[name])
        metadata = ObjectMeta(uid=f"uid-{name}", resource_version=version, annotations=notes)
        return SimpleNamespace(metadata=metadata)

    async def patch(self, resource: Any, namespace: str, name: str, patch: Any, kind: Any) -> Any:
        if name in self.refused:
            raise self.refused[name]("no")
        self.between(self)
        metadata = patch["metadata"]
        if metadata["resourceVersion"] != str(self.versions[name]):
            raise Conflict("changed")
        self.patched.append(f"{resource.plural}/{name}")
        self.annotate(name, metadata["annotations"])
        return await self.get(resource, namespace, name, kind)


class Clock:
    """Ends the run with the third look."""

    looks = 0

    def monotonic(self) -> int:
        return 0

    async def sleep(self, nanoseconds: int) -> None:
        self.looks += 1
        if self.looks > 2:
            raise asyncio.CancelledError


async def reported(server: Server, *pods: str, uid: str = "") -> list[str]:
    """Report a save of each pod; what was patched. `uid`: of the one pod, another than it has."""
    fence = SimpleNamespace(open=True, check=None, request_timeout=None)
    found = ReportedCheckpoints(cast("Any", server), cast("Any", fence), cast("Any", Clock()))
    for name in pods:
        assert found.saved(SavedPod(uid or f"uid-{name}", "team", name), _AT)
    task = asyncio.create_task(found.run())
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()
    return server.patched


async def test_the_workload_of_a_queued_pod_knows_it_too() -> None:
    queued = {"kueue.x-k8s.io/workload": "job-a"}
    server = Server({"a": dict(queued), "b": {}, "job-a": {}})
    assert await reported(server, "a", "b") == ["pods/a", "workloads/job-a", "pods/b"]
    assert server.objects == {"a": queued | said(), "b": said(), "job-a": said()}


async def test_who_is_gone_or_may_not_be_written_keeps_nobody_else_from_it() -> None:
    objects: dict[str, dict[str, str]] = {"forbidden": {}, "odd": {}, "b": {}}
    server = Server(objects, {"forbidden": Forbidden, "odd": ValueError})
    assert await reported(server, "gone", "forbidden", "odd", "b") == ["pods/b"]


async def test_another_pod_under_the_name_is_not_annotated() -> None:
    queued = {"kueue.x-k8s.io/workload": "job-a"}
    server = Server({"a": dict(queued), "job-a": {}})
    assert await reported(server, "a", uid="uid-of-another") == []


@pytest.mark.parametrize(
    ("own", "stands"),
    [(said(60), said(60)), (said(-60), said()), ({_KEY: "yesterday"}, said())],
    ids=["newer", "older", "unreadable"],
)
async def test_the_newest_instant_stands_whoever_wrote_it(
    own: dict[str, str], stands: dict[str, str]
) -> None:
    queued = {"kueue.x-k8s.io/workload": "job-a"}
    server = Server({"a": queued | own, "job-a": dict(own)})
    await reported(server, "a")
    assert server.objects == {"a": queued | stands, "job-a": stands}


@pytest.mark.parametrize("seconds", [60, -60])
async def test_a_tenant_who_writes_at_the_same_time_is_not_overwritten_with_less(
    seconds: int,
) -> None:
    once = [said(seconds)]

    def tenant(server: Server) -> None:
        if once:
            server.annotate("a", once.pop())

    server = Server({"a": {}}, between=tenant)
    await reported(server, "a")
    assert server.objects == {"a": max(said(), said(seconds), key=lambda each: each[_KEY])}
