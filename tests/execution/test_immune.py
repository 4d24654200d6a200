"""An object that somebody changes all the time is evicted by its uid, in whatever way it goes.

The API server of these tests refuses every write that names a resourceVersion, as one does where
somebody else is faster each time.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import Action, ObjectRef, Victim
from reprieve.execution.fence import Fence
from reprieve.execution.not_evictable import NotEvictable
from reprieve.execution.unanswered import Unanswered
from reprieve.execution.writes.evict import Result, evict
from reprieve.execution.writes.jobs import JobWriter
from reprieve.execution.writes.pods import PodWriter
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.discovery import RestMapper
from reprieve.kube.errors import ApiError, Call, Forbidden, TooManyRequests
from reprieve.kube.transport import Request
from reprieve.units.ids import Uid
from tests.execution.test_fence import Tenure
from tests.kube.fakes import FakeAnswer, FakeWire, client_over, refusal


class Hurried(VirtualClock):
    """A clock on which whoever waits has waited."""

    async def sleep(self, nanoseconds: int) -> None:
        await self.advance(nanoseconds, settle=1)


class Contested:
    """One object; keeps the writes that were taken. Its uid is another one after `replace`."""

    def __init__(self, api_version: str, kind: str, spec: dict[str, Any]) -> None:
        self.object = {"apiVersion": api_version, "kind": kind, "spec": spec, "status": {}}
        self.uid, self.version = "u", 7
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.another_after = 1_000
        self.clock = Hurried()
        self.client = client_over(FakeWire(self.answer), self.clock)
        tenure = Tenure(Nanos(self.clock.monotonic() + 60 * HOUR))
        self.fence = Fence(tenure, self.clock, 15 * SECOND)

    @property
    def current(self) -> dict[str, Any]:
        metadata = {"name": "x", "namespace": "team", "uid": self.uid}
        return {**self.object, "metadata": {**metadata, "resourceVersion": str(self.version)}}

    def answer(self, request: Request) -> FakeAnswer:
        if "/namespaces/" not in request.path:
            entry = {"name": "things", "kind": self.object["kind"], "namespaced": True}
            scale = {**entry, "name": "things/scale"}
            return FakeAnswer(body={"kind": "APIResourceList", "resources": [entry, scale]})
        if request.method == "GET":
            if request.path.endswith("/scale"):
                return FakeAnswer(body={**self.current, "spec": {"replicas": 3}})
            return FakeAnswer(body=self.current)
        body = json.loads(request.body or b"{}")
        asked = body.get("preconditions") or body.get("metadata") or {}
        if asked.get("resourceVersion") or asked.get("uid", self.uid) != self.uid:
            self.version += 1
            if self.version >= self.another_after:
                self.uid = "another"
            return refusal(409, "Conflict", "the object has been modified")
        self.taken.append((request.method, body))
        return FakeAnswer(body=self.current)


def victim(kind: str, action: Action) -> Victim:
    ref = ObjectRef(api_version="apps/v1", kind=kind, namespace="team", name="x", uid="u")
    return Victim(subject=ref, root=ref, amounts={}, rule="Always", action=action)


@pytest.mark.parametrize(
    ("kind", "action"),
    [("Deployment", Action.DELETE), ("Deployment", Action.SCALE_TO_ZERO)],
)
async def test_a_root_that_changes_all_the_time_is_evicted(kind: str, action: Action) -> None:
    server = Contested("apps/v1", kind, {"replicas": 3})
    mapper = RestMapper(server.client, server.clock)
    found = await evict(server.client, mapper, server.fence, victim(kind, action))
    assert found.result is Result.EVICTED, found.detail
    method, body = server.taken[-1]
    if action is Action.DELETE:
        assert (method, body["preconditions"]) == ("DELETE", {"uid": "u"})
    else:
        assert (method, body["spec"]) == ("PATCH", {"replicas": 0})


async def test_a_root_that_is_another_one_meanwhile_is_left_alone() -> None:
    server = Contested("apps/v1", "Deployment", {})
    server.another_after = server.version + 1
    mapper = RestMapper(server.client, server.clock)
    found = await evict(server.client, mapper, server.fence, victim("Deployment", Action.DELETE))
    assert found.result is Result.REPLACED and not server.taken


async def test_a_job_that_changes_all_the_time_is_suspended() -> None:
    kind = next(each for each in BUILT_IN if each.kind == "Job")
    server = Contested(kind.api_version, kind.kind, {"suspend": False})
    assert await JobWriter(server.client, server.fence).stop(kind, server.current)
    assert server.taken == [("PATCH", {"spec": {"suspend": True}, "metadata": {"uid": "u"}})]


async def test_a_job_that_is_another_one_meanwhile_is_left_running() -> None:
    kind = next(each for each in BUILT_IN if each.kind == "Job")
    server = Contested(kind.api_version, kind.kind, {"suspend": False})
    job, server.another_after = server.current, server.version + 3
    assert not await JobWriter(server.client, server.fence).stop(kind, job)
    assert not server.taken


async def test_a_queued_pod_that_changes_all_the_time_is_ended() -> None:
    server = Contested("v1", "Pod", {})
    writer = PodWriter(server.client, server.fence, server.clock)
    assert await writer.terminate(server.current, "Preempted", "it is preempted")
    assert server.taken[-1] == (
        "DELETE",
        {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"}},
    )


def test_who_is_refused_is_left_alone_for_a_growing_time_until_it_is_evicted() -> None:
    known, now, times = NotEvictable(), Nanos(0), []
    for _ in range(8):
        until = known.refused("u", now)
        assert known.held(Nanos(until - 1)).keys() == {Uid("u")} and not known.held(until)
        times.append((until - now) // MINUTE)
        now = until
    assert times == [2, 4, 8, 16, 32, 60, 60, 60]
    known.forget("u")
    assert known.refused("u", now) == now + 2 * MINUTE


def test_who_is_refused_is_left_alone_for_no_longer_when_the_clock_is_set_back() -> None:
    known, now = NotEvictable(), Nanos(100 * HOUR)
    until = known.refused("u", now)
    assert not known.held(Nanos(now - 2 * HOUR))
    # Set right again, it is held as before.
    assert known.held(now).keys() == {Uid("u")} and not known.held(until)


def test_of_those_who_were_refused_a_bounded_number_is_known() -> None:
    known = NotEvictable()
    for number in range(10_500):
        known.refused(str(number), Nanos(0))
    assert len(known) == 10_000 and "10499" in known.held(Nanos(1))


def _failure(verb: str) -> ApiError:
    return TooManyRequests("not now", code=429, call=Call(verb, "pods", "", "team", "x"))


def _fail(unanswered: Unanswered, uid: str, times: int) -> None:
    for _ in range(times):
        unanswered.failed(uid, _failure("delete"))


def test_writes_to_one_object_that_fail_while_it_can_be_read_are_refusals_in_the_end() -> None:
    unanswered = Unanswered()
    _fail(unanswered, "u", 7)
    assert not unanswered.is_refused("u")
    unanswered.failed("u", _failure("get"))  # the server is away
    _fail(unanswered, "u", 7)
    unanswered.failed("u", Forbidden("no", code=403, call=Call("delete", "pods")))
    assert not unanswered.is_refused("u")
    _fail(unanswered, "u", 1)
    assert unanswered.is_refused("u") and not unanswered.is_refused("u")


def test_a_server_that_fails_all_writes_makes_ever_fewer_immune_until_one_is_evicted() -> None:
    unanswered, refused = Unanswered(), []
    for tries in range(1, 1_001):
        for uid in map(str, range(200)):
            _fail(unanswered, uid, 1)
            if uid not in refused and unanswered.is_refused(uid):
                refused.append(uid)
        assert len(refused) <= (tries // 8).bit_length()
    assert len(refused) == 7
    unanswered.evicted("199")
    _fail(unanswered, "199", 8)
    assert unanswered.is_refused("199")
