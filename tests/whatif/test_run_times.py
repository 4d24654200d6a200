"""What waits is not one of those whose end lets it start."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeworld.units.instants import format_instant, parse_instant
from reprieve.engine.diagnosis.estimates import Basis
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.questions.estimating import by_run_times
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot

JOBS = Resource("batch", "v1", "jobs", "Job")
NOW = parse_instant("2026-01-01T00:10:00Z")


def job(name: str, seconds: int) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": name}
    spec = {"activeDeadlineSeconds": seconds}
    return {"metadata": metadata, "spec": spec, "status": {"startTime": "2026-01-01T00:00:00Z"}}


def pod_of(owner: str, node: str = "") -> dict[str, Any]:
    reference = {"kind": "Job", "name": owner, "uid": owner, "controller": True}
    name = f"{owner}-0"
    metadata = {"name": name, "namespace": "team", "uid": name, "ownerReferences": [reference]}
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}}


def listed(resource: Resource, *objects: dict[str, Any]) -> Listed:
    found = {("team", each["metadata"]["name"]): msgspec.json.encode(each) for each in objects}
    return Listed(resource, found, 1)


async def test_a_job_that_waits_with_a_deadline_of_its_own_starts_when_another_has_ended() -> None:
    jobs = listed(JOBS, job("runs", 3_600), job("waits", 7_200))
    pods = listed(PODS, pod_of("runs", "node-0"), pod_of("waits"))
    snapshot = Snapshot(NOW, {("batch", "jobs"): jobs, ("", "pods"): pods})

    async def starts(other: Snapshot) -> bool:
        """It is there still, and the one that runs is not."""
        left = {name for _, name in other.kinds["", "pods"].objects}
        return left == {"waits-0"}

    own = frozenset({"waits", "waits-0"})
    found = await by_run_times(snapshot, starts, lambda: False, own)
    assert found is not None
    assert (found.basis, found.holder) == (Basis.RUN_TIME, "Job team/runs")
    assert found.at is not None and format_instant(found.at) >= "2026-01-01T01:00:00Z"
    assert await by_run_times(snapshot, starts, lambda: False) is None
