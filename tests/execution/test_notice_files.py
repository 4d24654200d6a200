"""Notices in annotations: what a former leader wrote is withdrawn, and a refusal is its own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubeworld.units.durations import SECOND
from reprieve.api.core import ObjectMeta
from reprieve.api.reprieve import ObjectRef
from reprieve.engine.notice.states import Notice, State
from reprieve.execution.accounts.notice_files import NoticeFiles
from reprieve.execution.notices import Notified
from reprieve.kube.errors import ApiError, Conflict, Invalid, NotFound, ServerError

_DEADLINE = 1_800_000_000 * SECOND
_ASKS = {"reprieve.dev/notice-file": "true"}
_TOLD = "reprieve.dev/notice-told"


class Pods:
    """Pods by name, with their annotations; `refused` ones cannot be patched."""

    def __init__(self, **pods: dict[str, str]) -> None:
        self.pods = pods
        self.refused: set[str] = set()
        self.refusal: ApiError = ServerError("no", code=500)
        self.tries: list[str] = []

    def at(self, *_: Any, **__: Any) -> Pods:
        return self

    async def get(self, resource: Any, namespace: str, name: str, kind: Any) -> Any:
        metadata = ObjectMeta(uid=f"uid-{name}", annotations=dict(self.pods[name]))
        return SimpleNamespace(metadata=metadata)

    async def patch(self, resource: Any, namespace: str, name: str, patch: Any, kind: Any) -> Any:
        self.tries.append(name)
        if name in self.refused:
            raise self.refusal
        assert patch["metadata"]["uid"] == f"uid-{name}"
        self.pods[name] |= patch["metadata"]["annotations"]

    def state(self, name: str) -> str:
        text = self.pods[name].get(_TOLD)
        return json.loads(text)["state"] if text else ""


class Clock:
    """Pauses are over at once."""

    async def sleep(self, nanoseconds: int) -> None:
        await asyncio.sleep(0)


def told(name: str, state: State = State.NOTICED) -> Notified:
    """Return the notice of a unit of one pod."""
    root = ObjectRef("v1", "Pod", name, f"uid-{name}", "team")
    notice = replace(Notice(_DEADLINE, _DEADLINE, frozenset()), state=state)
    plan = SimpleNamespace(spec=SimpleNamespace(plane="scheduling"))
    victim = SimpleNamespace(root=root)
    found = Notified(name, cast("Any", plan), [cast("Any", victim)], notice, 0, 0)
    found.names = {f"uid-{name}": name}
    return found


async def written(pods: Pods, *units: Notified) -> None:
    """Let a process write these."""
    notices = SimpleNamespace(observers=[])
    fence = SimpleNamespace(open=True, check=None, request_timeout=None)
    files = NoticeFiles(
        cast("Any", notices), cast("Any", pods), cast("Any", fence), cast("Any", Clock())
    )
    for each in units:
        notices.observers[0](each)
    task = asyncio.create_task(files.run())
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()


async def test_a_pod_that_a_former_leader_told_reads_that_it_stays() -> None:
    pods = Pods(a=dict(_ASKS), b=dict(_ASKS))
    await written(pods, told("a"))
    assert [pods.state("a"), pods.state("b")] == ["Noticed", ""]

    await written(pods, told("a", State.PARDONED), told("b", State.PARDONED))

    assert [pods.state("a"), pods.state("b")] == ["Pardoned", ""], "b was never told"


@pytest.mark.parametrize("annotations", [{}, {"reprieve.dev/notice-file": "false"}])
async def test_who_asks_for_no_file_is_not_written(annotations: dict[str, str]) -> None:
    pods = Pods(a=annotations)
    await written(pods, told("a"))
    assert pods.tries == []


async def test_a_pod_that_cannot_be_written_holds_up_no_other() -> None:
    pods = Pods(a=dict(_ASKS), b=dict(_ASKS))
    pods.refused = {"a"}
    await written(pods, told("a"), told("b"))
    assert [pods.state("a"), pods.state("b")] == ["", "Noticed"]


@pytest.mark.parametrize("refusal", [NotFound, Conflict, Invalid])
async def test_a_pod_that_was_replaced_is_tried_once(refusal: type[ApiError]) -> None:
    """Another uid under its name is a conflict, or invalid, by the kind of write."""
    pods = Pods(a=dict(_ASKS))
    pods.refused, pods.refusal = {"a"}, refusal("no")
    await written(pods, told("a"))
    assert pods.tries == ["a"]


async def test_a_unit_that_is_evicted_meanwhile_is_not_told_any_more() -> None:
    pods = Pods(a=dict(_ASKS))
    await written(pods, told("a", State.RELEASED))
    assert pods.tries == []
