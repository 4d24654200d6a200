"""The plane in its own process, and beside a running Kueue; deaths are in `tests/crash`."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.kube.resource import LEASES
from reprieve.kube.writes import Priority
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve.scenarios.operator import OperatorProcesses
from tests.quota_plane.site import CLUSTER_QUEUES, NAMESPACE, job, site
from tests.quota_plane.test_jobs import LOWER, base

LEADS = "reprieve_quota_kueue_leads"
LEASE = "c1f6bfd2.kueue.x-k8s.io"
KUEUE = "kueue-system"
SPEC = {
    "holderIdentity": "kueue-controller-manager-0",
    "leaseDurationSeconds": 600,
    "renewTime": "2026-01-01T00:00:00.000000Z",
}


@pytest.mark.real_time
async def test_the_operator_queues_jobs_with_the_quota_plane_alone(tmp_path: Path) -> None:
    config = tmp_path / "values.yaml"
    config.write_text("quota: {preemptionPolicy: FairSharing}\n")
    async with site(tmp_path, *base(4, preemption=LOWER), start=False) as cluster:
        operator = OperatorProcesses(
            cluster.embedded.operator_kubeconfig,
            {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
            arguments=(
                "--controllers",
                "quota",
                "--metrics-port",
                "0",
                "--config",
                str(config),
            ),
        )
        await operator.start()
        try:
            await cluster.create(job("low-a", priority="low"), job("low-b", priority="low"))
            await cluster.until_admitted("low-a", "low-b")
            await cluster.create(job("high", priority="high", pods=4))
            await cluster.until_admitted("high")
        finally:
            await operator.stop()


async def test_nothing_is_written_while_kueue_itself_decides(tmp_path: Path) -> None:
    async with site(tmp_path, *base(4), start=False) as cluster:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": KUEUE},
            "spec": SPEC,
        }
        await cluster.create({"kind": "Namespace", "metadata": {"name": KUEUE}})
        await cluster.client.create(LEASES, lease, dict)
        plane = await cluster.start()
        await cluster.create(job("first"))

        async def said() -> bool:
            return "kueue-controller-manager-0 holds the lease" in plane.notice()

        await cluster.until("the plane says so", said)
        assert await cluster.workloads() == {}
        assert cluster.metrics.registry.get_sample_value(LEADS) == 1
        await cluster.client.delete(LEASES, KUEUE, LEASE)
        await cluster.until_admitted("first")
        assert cluster.metrics.registry.get_sample_value(LEADS) == 0
        # Kueue comes back while the plane works: it stops, until Kueue lets its lease go.
        await cluster.client.create(LEASES, lease, dict)
        await cluster.until("the plane says so again", said)
        await cluster.create(job("second"))

        async def seen() -> bool:
            return len(plane.watches.jobs["Job.v1.batch"].cache) == 2

        await cluster.until("the plane has seen the job", seen)
        assert (await cluster.workloads()).keys() == {"first"}
        released = {"spec": {"holderIdentity": ""}}
        await cluster.client.patch(LEASES, KUEUE, LEASE, released, dict)
        await cluster.until_admitted("first", "second")


async def test_a_tenant_who_makes_kueues_lease_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """He says that it is held for 68 years, by somebody with a long name, and was just renewed."""
    spec = {
        "holderIdentity": "x" * 5_000,
        "leaseDurationSeconds": 2**31 - 1,
        "renewTime": "9999-12-31T23:59:59.000000Z",
    }
    async with site(tmp_path, *base(4), start=False) as cluster:
        metadata = {"name": LEASE, "namespace": NAMESPACE}
        await cluster.client.create(LEASES, {"metadata": metadata, "spec": spec}, dict)
        plane = await cluster.start()
        await cluster.create(job("first"))
        await cluster.until_admitted("first")
        assert plane.notice() == ""
        [told] = [each.getMessage() for each in caplog.records if LEASE in each.getMessage()]
        assert told.endswith(
            f"... holds a lease {LEASE} in the namespace {NAMESPACE} and writes no "
            "ClusterQueue: it does not count as Kueue"
        )
        assert len(told) < 300
        # Nor does it hide Kueue's own.
        await cluster.create({"kind": "Namespace", "metadata": {"name": KUEUE}})
        lease = {"metadata": {"name": LEASE, "namespace": KUEUE}, "spec": SPEC}
        await cluster.client.create(LEASES, lease, dict)

        async def said() -> bool:
            return "kueue-controller-manager-0 holds the lease" in plane.notice()

        await cluster.until("the plane says so", said)


async def test_kueue_in_a_namespace_of_another_name_is_known_by_what_it_writes(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, *base(4), start=False) as cluster:
        metadata = {"name": LEASE, "namespace": NAMESPACE}
        await cluster.client.create(LEASES, {"metadata": metadata, "spec": SPEC}, dict)
        plane = await cluster.start()
        await cluster.create(job("first"))
        await cluster.until_admitted("first")
        [queue] = (await cluster.client.list(CLUSTER_QUEUES, dict)).items
        name = queue["metadata"]["name"]
        kueue = cluster.client.at(Priority.STATUS, field_manager="kueue")
        written = {"status": {"pendingWorkloads": 7}}
        await kueue.patch(CLUSTER_QUEUES, "", name, written, dict, subresource="status")

        async def said() -> bool:
            return "kueue-controller-manager-0 holds the lease" in plane.notice()

        await cluster.until("the plane says so", said)
