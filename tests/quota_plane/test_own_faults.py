"""Faults of ours about one Workload, in a running plane: it is told of, and the others go on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from reprieve.engine.plan_faults import PlanFault
from reprieve.engine.quota import evictions
from reprieve.engine.quota.nominations import Nominations
from reprieve.engine.quota.proofs.proof import Fault
from reprieve.intake.quota_workloads import workload_row
from reprieve.kube.resource import PREEMPTIONS
from reprieve.planes.quota import state
from reprieve.planes.quota.deciding import decisions
from reprieve.planes.quota.deciding.cycles import recorded_cycles
from reprieve.planes.quota.job_reconciler import jobs
from reprieve.planes.quota.queue_status import statuses
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve.telemetry.faults import FaultCounter
from tests.quota.test_faults import breaking
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    Site,
    TurnedClock,
    cluster_queue,
    job,
    local_queue,
    site,
)
from tests.quota_plane.test_jobs import base


async def _told(cluster: Site, name: str) -> bool:
    return any(
        (kind, type, reason) == ("Workload", "Warning", "DecisionFailed") and name in about
        for kind, about, type, reason, _ in await cluster.events()
    )


def _turn(cluster: Site, seconds: float) -> None:
    assert isinstance(cluster.clock, TurnedClock)
    cluster.clock.turn(seconds)


async def test_a_workload_that_cannot_be_decided_about_waits_alone_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    poisoned = breaking(Nominations.admit, lambda self, entry: "poisoned" in entry.workload.name)
    async with site(tmp_path, *base(6), clock=TurnedClock()) as cluster:
        with monkeypatch.context() as patched:
            patched.setattr(Nominations, "admit", poisoned)
            await cluster.create(job("poisoned", priority="high"), job("some", priority="low"))
            await cluster.until_admitted("some")

            async def told() -> bool:
                return await _told(cluster, "poisoned")

            await cluster.until("an event about it", told)
            await cluster.create(job("other", priority="low"))
            await cluster.until_admitted("some", "other")

            async def explained() -> bool:
                said = (await cluster.conditions("poisoned")).get("QuotaReserved", ("", "", ""))
                return said[0] == "False" and "A fault of the operator" in said[2]

            await cluster.until("its condition says so", explained)
        assert "Poison: the test says so" in caplog.text
        _turn(cluster, 601)
        await cluster.until_admitted("some", "other", "poisoned")


async def test_a_preemption_whose_proof_fails_evicts_nobody_and_is_told_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = (PlanFault(Fault.NOT_FEASIBLE, "ns/high"),)
    queue = base(2, preemption={"withinClusterQueue": "LowerPriority"})
    async with site(tmp_path, *queue, clock=TurnedClock()) as cluster:
        counter = FaultCounter(cluster.metrics.faults)
        logging.getLogger().addHandler(counter)
        try:
            await cluster.create(job("low", pods=2, priority="low"))
            await cluster.until_admitted("low")
            with monkeypatch.context() as patched:
                patched.setattr(evictions, "faults_of", lambda *_: refused)
                await cluster.create(job("high", pods=2, priority="high"))

                async def told() -> bool:
                    return await _told(cluster, "high")

                await cluster.until("an event about it", told)
        finally:
            logging.getLogger().removeHandler(counter)
        assert "PlanRefused: ns/high: the preemptor does not fit without the victims" in (
            caplog.text
        )
        counted = "reprieve_faults_total", {"logger": "reprieve.quota"}
        assert cluster.metrics.registry.get_sample_value(*counted) == 1
        assert await cluster.intents() == []
        assert "Evicted" not in await cluster.conditions("low")
        _turn(cluster, 601)
        await cluster.until_admitted("high")


async def test_a_workload_that_cannot_be_read_waits_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned = breaking(
        workload_row, lambda found, *rest, **more: "poisoned" in found.metadata.name
    )
    async with site(tmp_path, *base(4), clock=TurnedClock()) as cluster:
        with monkeypatch.context() as patched:
            patched.setattr(state, "workload_row", poisoned)
            await cluster.create(job("poisoned"), job("some"))
            await cluster.until_admitted("some")

            async def told() -> bool:
                return await _told(cluster, "poisoned")

            await cluster.until("an event about it", told)
        _turn(cluster, 601)
        await cluster.until_admitted("some", "poisoned")


async def test_quota_that_cannot_be_counted_is_given_to_nobody_in_its_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned = breaking(workload_row, lambda found, *rest, **more: "holder" in found.metadata.name)
    more = (cluster_queue("cq-2", 4), local_queue("q-2", "cq-2"))
    async with site(tmp_path, *base(4), *more, clock=TurnedClock()) as cluster:
        await cluster.create(job("holder"))
        await cluster.until_admitted("holder")
        await cluster.stop()
        with monkeypatch.context() as patched:
            patched.setattr(state, "workload_row", poisoned)
            await cluster.start()
            await cluster.create(job("beside"), job("elsewhere", queue="q-2"))
            await cluster.until_admitted("holder", "elsewhere")
            assert "Admitted" not in await cluster.conditions("beside")
        _turn(cluster, 601)
        await cluster.until_admitted("holder", "elsewhere", "beside")


@pytest.mark.parametrize("where", ["cycles", "statuses"])
async def test_a_fault_that_is_nobodys_own_ends_no_process(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def first(*args: Any, **kwargs: Any) -> bool:
        nonlocal calls
        calls += 1
        return calls <= 2

    if where == "cycles":
        broken = breaking(recorded_cycles, first)
        monkeypatch.setattr(decisions, "recorded_cycles", broken)
    else:
        broken = breaking(statuses.Statuses._decided, first)
        monkeypatch.setattr(statuses.Statuses, "_decided", broken)
    async with site(tmp_path, *base(4)) as cluster:
        await cluster.create(job("some"))
        await cluster.until_admitted("some")

        async def counted() -> bool:
            queue: Any = await cluster.client.get(CLUSTER_QUEUES, "", "cq", dict)
            return (queue.get("status") or {}).get("admittedWorkloads") == 1

        await cluster.until("its queue shows it", counted)
        assert calls > 2


def _wrong(name: str, **changes: Any) -> Any:
    made = job(name)
    for path, value in changes.items():
        *parents, last = path.split("__")
        part = made
        for each in parents:
            part = part[each]
        part[last] = value
    return made


#: Jobs that no API server would store, put past the embedded one's checks.
ODD: dict[str, dict[str, Any]] = {
    "spec": {"spec": "none"},
    "template": {"spec__template": ["none"]},
    "pods": {"spec__template__spec": None},
    "containers": {"spec__template__spec__containers": {"name": "c"}},
    "labels": {"metadata__labels": {"kueue.x-k8s.io/queue-name": "q", "more": 5}},
    "annotations": {"metadata__annotations": {"kueue.x-k8s.io/job-min-parallelism": "many"}},
    "parallelism": {"spec__parallelism": "two"},
    "negative": {"spec__parallelism": -3, "spec__completions": -3},
    "huge": {"spec__parallelism": 2**70},
    "suspend": {"spec__suspend": "perhaps"},
    "status": {"status": ["none"]},
    "owner": {"metadata__ownerReferences": [{"controller": True}]},
}


async def test_a_fault_in_looking_after_one_job_is_that_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = jobs.JobReconciler._reconcile_job
    broken = breaking(real, lambda self, kind, obj: obj["metadata"]["name"] == "poisoned")
    monkeypatch.setattr(jobs.JobReconciler, "_reconcile_job", broken)
    async with site(tmp_path, *base(4)) as cluster:
        await cluster.create(job("poisoned"), job("some"), job("other"))
        await cluster.until_admitted("some", "other")

        async def told() -> bool:
            return any(
                (kind, name, type, reason) == ("Job", "poisoned", "Warning", "ReconcileFailed")
                for kind, name, type, reason, _ in await cluster.events()
            )

        await cluster.until("an event about it", told)


async def test_odd_jobs_in_the_cache_cost_no_other_job_anything(tmp_path: Path) -> None:
    # Some of them can be read, and are given quota.
    async with site(tmp_path, *base(200)) as cluster:
        assert cluster.plane is not None
        await cluster.plane.synced()
        cache = cluster.plane.watches.jobs["Job.v1.batch"].cache
        for number, (name, changes) in enumerate(ODD.items()):
            made = _wrong(f"odd-{name}", **changes)
            made["metadata"] |= {"uid": f"odd-{number}", "resourceVersion": str(number + 1)}
            cache.applied(made)
        assert len(cache) == len(ODD)
        await cluster.create(job("some"), job("other"))

        async def run() -> bool:
            return {"some", "other"} <= await cluster.running()

        await cluster.until("the others run", run)


async def test_a_record_that_lost_its_parts_keeps_nobody_from_being_admitted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(tmp_path, *base(6)) as cluster:
        await cluster.stop()
        for phase in ("Completed", "Evicting"):
            await _leave_a_head(cluster, phase)
        await cluster.start()
        await cluster.create(job("some", priority="low"))
        await cluster.until_admitted("some")

        async def closed() -> bool:
            phases = [each["status"]["phase"] for each in await cluster.intents()]
            return sorted(phases) == ["Abandoned", "Completed"]

        await cluster.until("both records are closed", closed)
        assert "0 of 1 parts are there, with 0 of 5 victims" in caplog.text


async def _leave_a_head(cluster: Site, phase: str) -> None:
    name = f"quota-former-{phase.lower()}"
    metadata = {"name": name, "namespace": OPERATOR_NAMESPACE}
    spec = {
        "plane": "quota",
        "planId": name,
        "attempt": 1,
        "proof": {"level": "Quota", "need": {}, "freed": {}},
        "victims": [],
        "parts": [f"{name}-a"],
        "victimCount": 5,
        "decidedAt": "2026-03-04T10:00:00Z",
    }
    record = {"apiVersion": "reprieve.dev/v1alpha1", "kind": "Preemption", "metadata": metadata}
    await cluster.client.create(PREEMPTIONS, {**record, "spec": spec}, dict)
    status = {"status": {"phase": phase, "victimCount": 5, "numbersByState": {"Evicted": "0-4"}}}
    await cluster.client.patch(
        PREEMPTIONS, OPERATOR_NAMESPACE, name, status, dict, subresource="status"
    )
