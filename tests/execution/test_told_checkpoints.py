"""Reported saves are written to the pod and to its Workload, and a refusal harms nobody else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.core import ObjectMeta
from reprieve.execution.accounts.told_checkpoints import SavedPod, ToldCheckpoints
from reprieve.kube.errors import Forbidden, NotFound

_AT = Nanos(1_800_000_000 * SECOND)
_SAID = {"reprieve.dev/last-checkpoint": format_instant(_AT)}


class Writer:
    """Takes patches down. Pods of `queued` have a Workload, those of `refused` are not written."""

    def __init__(self, queued: dict[str, str], refused: dict[str, type[Exception]]) -> None:
        self.queued, self.refused = queued, refused
        self.patches: list[tuple[str, str, Any]] = []

    def at(self, *_: Any, **__: Any) -> Writer:
        return self

    async def patch(self, resource: Any, namespace: str, name: str, patch: Any, kind: Any) -> Any:
        if name in self.refused:
            raise self.refused[name]("no")
        self.patches.append((resource.plural, name, patch["metadata"]))
        workload = self.queued.get(name)
        notes = {"kueue.x-k8s.io/workload": workload} if workload else None
        return SimpleNamespace(metadata=ObjectMeta(annotations=notes))


class Clock:
    """Ends the run with the second look."""

    looks = 0

    def monotonic(self) -> int:
        return 0

    async def sleep(self, nanoseconds: int) -> None:
        self.looks += 1
        if self.looks > 1:
            raise asyncio.CancelledError


async def written(writer: Writer, *pods: str) -> list[tuple[str, str, Any]]:
    fence = SimpleNamespace(open=True, check=None, request_timeout=None)
    found = ToldCheckpoints(cast("Any", writer), cast("Any", fence), cast("Any", Clock()))
    for name in pods:
        assert found.saved(SavedPod(f"uid-{name}", "team", name), _AT)
    found._changed.set()
    task = asyncio.create_task(found.run())
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()
    return writer.patches


async def test_the_workload_of_a_queued_pod_knows_it_too() -> None:
    assert await written(Writer({"a": "job-a"}, {}), "a", "b") == [
        ("pods", "a", {"uid": "uid-a", "annotations": _SAID}),
        ("workloads", "job-a", {"annotations": _SAID}),
        ("pods", "b", {"uid": "uid-b", "annotations": _SAID}),
    ]


async def test_who_is_gone_or_may_not_be_written_keeps_nobody_else_from_it() -> None:
    writer = Writer({}, {"gone": NotFound, "forbidden": Forbidden, "odd": ValueError})
    found = await written(writer, "gone", "forbidden", "odd", "b")
    assert [name for _, name, _ in found] == ["b"]
