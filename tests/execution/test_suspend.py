"""Eviction by suspending: every kind of the one table of kinds, each at its own field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.api.reprieve import Action, ObjectRef, Victim
from reprieve.execution.fence import Fence
from reprieve.execution.writes.evict import Result, evict, obstacle
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.discovery import RestMapper
from reprieve.kube.transport import Request
from tests.execution.test_fence import Tenure
from tests.kube.fakes import FakeAnswer, FakeWire, client_over

SUSPENDED = sorted(
    {(kind.api_version, kind.kind, kind.suspend) for kind in BUILT_IN if kind.suspend}
    | {("batch/v1", "CronJob", "spec.suspend")}
)


class Cluster:
    """One object of any kind; keeps the patches that it is sent."""

    def __init__(self, api_version: str, kind: str) -> None:
        self.metadata = {"name": "x", "namespace": "team", "uid": "u", "resourceVersion": "7"}
        self.object: dict[str, Any] = {"apiVersion": api_version, "kind": kind, "spec": {}}
        self.patches: list[dict[str, Any]] = []
        self.kind = kind

    def answer(self, request: Request) -> FakeAnswer:
        if request.method == "POST":
            return FakeAnswer(201, {"status": {"allowed": True}})
        if request.method == "PATCH":
            self.patches.append(json.loads(request.body or b""))
        elif "/namespaces/" not in request.path:
            entry = {"name": "things", "kind": self.kind, "namespaced": True}
            return FakeAnswer(body={"kind": "APIResourceList", "resources": [entry]})
        return FakeAnswer(body={**self.object, "metadata": self.metadata})


@pytest.mark.parametrize(("api_version", "kind", "path"), SUSPENDED)
async def test_a_root_is_suspended_where_its_kind_has_the_field(
    api_version: str, kind: str, path: str
) -> None:
    clock, cluster = VirtualClock(), Cluster(api_version, kind)
    client = client_over(FakeWire(cluster.answer), clock)
    mapper = RestMapper(client, clock)
    ref = ObjectRef(api_version=api_version, kind=kind, namespace="team", name="x", uid="u")
    victim = Victim(subject=ref, root=ref, amounts={}, rule="Always", action=Action.SUSPEND)

    assert await obstacle(client, mapper, victim, ask=True) is None
    fence = Fence(Tenure(clock.monotonic() + 60 * SECOND), clock, 15 * SECOND)  # type: ignore[arg-type]
    eviction = await evict(client, mapper, fence, victim)

    assert eviction.result is Result.EVICTED, eviction.detail
    (patch,) = cluster.patches
    value: Any = patch
    for key in path.split("."):
        value = value[key]
    assert value is True
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "7"}


def test_the_kinds_that_quota_suspends_are_many() -> None:
    kinds = {kind for _, kind, _ in SUSPENDED}
    assert kinds >= {
        "XGBoostJob",
        "PaddleJob",
        "JAXJob",
        "RayService",
        "TrainJob",
        "SparkApplication",
        "PyTorchJob",
    }
