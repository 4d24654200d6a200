"""The webhooks of the operator's own process, against the embedded cluster."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from reprieve.api.kueue import RESOURCE_IN_USE
from reprieve.execution.writes.jobs import resource_of
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, LEASES, SECRETS, Resource
from reprieve.planes.quota.webhooks.registration import VALIDATING
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve.scenarios.operator import OperatorProcesses
from tests.ports import free_ports
from tests.quota_plane.kind_stories import ROWS, manifest
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    NAMESPACE,
    Object,
    Site,
    cluster_queue,
    job,
    site,
)
from tests.quota_plane.test_jobs import base

CONFIGURATION = "reprieve-quota"
JOB_SET = ROWS["JobSet"]
SECRET = "reprieve-webhook-certificates"
QUEUE = "kueue.x-k8s.io/queue-name"
SERVICES = Resource("", "v1", "services", "Service")
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
OLD_QUEUES = Resource("kueue.x-k8s.io", "v1beta1", "clusterqueues", "ClusterQueue", False)


def operator(
    cluster: Site, folder: Path, name: str, *frameworks: str, **webhooks: object
) -> OperatorProcesses:
    """Return one process of a deployment, with its own settings of webhooks."""
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": ["batch/job", *frameworks]},
    }
    section = {"webhooks": webhooks, "configuration": configuration}
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump({"quota": section}))
    return OperatorProcesses(
        cluster.embedded.operator_kubeconfig,
        {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
        arguments=(
            *("--controllers", "quota", "--metrics-port", "0", "--lease-duration", "10s"),
            *("--config", str(config)),
        ),
    )


@asynccontextmanager
async def running(processes: OperatorProcesses) -> AsyncIterator[OperatorProcesses]:
    await processes.start()
    try:
        yield processes
    except BaseException:
        print(*processes.tail(), sep="\n")
        raise
    finally:
        await processes.stop()


async def bundle(cluster: Site) -> str:
    """Return whom the API server trusts, empty before the registration."""
    listed = await cluster.client.list(VALIDATING, dict)
    found = [each for each in listed.items if each["metadata"]["name"] == CONFIGURATION]
    return found[0]["webhooks"][0]["clientConfig"].get("caBundle", "") if found else ""


async def until_registered(cluster: Site, before: str = "") -> str:
    async def registered() -> bool:
        return await bundle(cluster) not in ("", before)

    await cluster.until("the webhooks are registered", registered, 60)
    return await bundle(cluster)


async def test_a_process_judges_fills_in_converts_and_renews(tmp_path: Path) -> None:
    async with site(tmp_path, *base(4), start=False) as cluster:
        client = cluster.client
        processes = operator(cluster, tmp_path, "one", JOB_SET.framework, url="https://127.0.0.1:0")
        async with running(processes):
            trusted = await until_registered(cluster)

            # Suspended by the answer to its creation already, and run once there is quota.
            made: Object = await client.create(JOBS, job("first", suspend=False), dict)
            assert made["spec"]["suspend"] is True
            plain = job("plain", suspend=False)
            del plain["metadata"]["labels"][QUEUE]
            free: Object = await client.create(JOBS, plain, dict)
            assert not free["spec"].get("suspend")
            await cluster.until("the job runs", lambda: is_running(cluster, "first"), 60)
            moved = {"metadata": {"labels": {QUEUE: "other"}}}
            with pytest.raises(ApiError) as raised:
                await client.patch(JOBS, NAMESPACE, "first", moved, dict)
            assert raised.value.message == (
                'admission webhook "vjob.kb.io" denied the request: '
                f'metadata.labels[{QUEUE}]: Invalid value: "other": field is immutable'
            )

            # A job below one that is queued runs with that one, also with a queue of its own.
            wanted = manifest("JobSet", "set")
            wanted["metadata"]["labels"] = {QUEUE: "q", "kueue.x-k8s.io/priority-class": "low"}
            above: Object = await client.create(resource_of(JOB_SET), wanted, dict)
            assert above["spec"]["suspend"] is True

            async def queued() -> bool:
                return "set" in await cluster.workloads()

            await cluster.until("the JobSet is queued", queued, 60)
            below = job("below", suspend=False)
            below["metadata"]["ownerReferences"] = [
                {
                    "apiVersion": JOB_SET.api_version,
                    "kind": JOB_SET.kind,
                    "name": "set",
                    "uid": above["metadata"]["uid"],
                    "controller": True,
                }
            ]
            inner: Object = await client.create(JOBS, below, dict)
            assert inner["spec"]["suspend"] is False

            bad = cluster_queue("bad", 1, cohort="all")
            bad["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] = "2"
            with pytest.raises(ApiError) as raised:
                await client.create(CLUSTER_QUEUES, bad, dict)
            assert raised.value.message == (
                'admission webhook "vclusterqueue.kb.io" denied the request: '
                "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: "
                'Invalid value: "2": must be less than or equal to the nominalQuota'
            )
            good: Object = await client.create(
                CLUSTER_QUEUES, cluster_queue("good", 1, cohort="all"), dict
            )
            assert good["metadata"]["finalizers"] == [RESOURCE_IN_USE]
            older: Object = await client.get(OLD_QUEUES, "", "good", dict)
            assert older["spec"]["cohort"] == "all" and "cohortName" not in older["spec"]

        # The authority's key is lost while nobody runs: a new one, and the old is still trusted.
        await client.patch(SECRETS, OPERATOR_NAMESPACE, SECRET, {"data": {"ca.key": ""}}, dict)
        async with running(processes):
            both = await until_registered(cluster, before=trusted)
            assert base64.b64decode(both).endswith(base64.b64decode(trusted))
            await client.create(CLUSTER_QUEUES, cluster_queue("later", 1), dict)
            assert "below" not in await cluster.workloads()

            async def converting() -> bool:
                name = "clusterqueues.kueue.x-k8s.io"
                crd: Object = await client.get(CUSTOM_RESOURCE_DEFINITIONS, "", name, dict)
                trusts = crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
                return str(trusts) == both

            await cluster.until("the definitions trust it, too", converting, 60)


@pytest.mark.thorough
async def test_requests_while_the_lease_is_lost_are_answered_or_not_without_a_traceback(
    tmp_path: Path,
) -> None:
    """Another holder writes itself into the lease, while jobs are created all the time."""
    async with site(tmp_path, *base(4), start=False) as cluster:
        client = cluster.client
        async with running(operator(cluster, tmp_path, "one", url="https://127.0.0.1:0")) as one:
            await until_registered(cluster)
            (lease,) = (await client.list(LEASES, dict, namespace=OPERATOR_NAMESPACE)).items
            stolen = {"spec": {**lease["spec"], "holderIdentity": "another"}}
            answered, missed, refusals = list[str](), list[str](), list[str]()

            async def create(number: int) -> None:
                name = f"job-{number}"
                try:
                    made: Object = await client.create(JOBS, job(name, suspend=False), dict)
                    # Without an answer the API server admits a job as it is.
                    (answered if made["spec"].get("suspend") else missed).append(name)
                except ApiError as failure:
                    refusals.append(failure.message)

            creating, number = set[asyncio.Task[None]](), 0
            lost = asyncio.create_task(one.until_said("the process lease is lost", 90.0))
            while not lost.done():
                number += 1
                if number == 10:
                    name = lease["metadata"]["name"]
                    await client.patch(LEASES, OPERATOR_NAMESPACE, name, stolen, dict)
                creating.add(asyncio.create_task(create(number)))
                await asyncio.sleep(0.3)
            creating |= {asyncio.create_task(create(number + more)) for more in range(1, 6)}
            await asyncio.gather(lost, *creating)
            printed = "\n".join(one.tail(1_000))
    assert answered and len(answered) + len(missed) + len(refusals) == number + 5
    assert all("failed calling webhook" in each for each in refusals), set(refusals)
    assert "Traceback" not in printed and "webhook failed" not in printed, printed


async def is_running(cluster: Site, name: str) -> bool:
    return name in await cluster.admitted() & await cluster.running()


async def endpoint(cluster: Site, port: int) -> None:
    """Have the Service lead to one process alone."""
    await cluster.client.apply(
        SLICES,
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "webhook",
                "namespace": OPERATOR_NAMESPACE,
                "labels": {"kubernetes.io/service-name": "reprieve-webhook"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
            "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
        },
        dict,
        force=True,
    )


@pytest.mark.slow
async def test_a_process_that_does_not_lead_answers_too(tmp_path: Path) -> None:
    service = {
        "metadata": {"name": "reprieve-webhook", "namespace": OPERATOR_NAMESPACE},
        "spec": {"ports": [{"name": "webhook", "port": 443}]},
    }
    async with site(tmp_path, *base(4), start=False) as cluster:
        client = cluster.client
        await client.create(SERVICES, service, dict)
        ports = free_ports(2)
        leader, other = (
            operator(cluster, tmp_path, str(port), service="reprieve-webhook", port=port)
            for port in ports
        )
        async with running(other):
            async with running(leader):
                trusted = await until_registered(cluster)
                for port in ports:
                    await endpoint(cluster, port)

                    async def answers(name: str = f"q-{port}") -> bool:
                        try:
                            await client.create(CLUSTER_QUEUES, cluster_queue(name, 1), dict)
                        except ApiError as error:
                            assert "failed calling webhook" in error.message
                            return False
                        return True

                    await cluster.until(f"the process at {port} answers", answers, 60)
                    made: Object = await client.create(JOBS, job(f"j-{port}", suspend=False), dict)
                    assert made["spec"]["suspend"] is True
            # Whoever led is gone; the other goes on with the same certificate.
            await endpoint(cluster, ports[1])
            await client.create(CLUSTER_QUEUES, cluster_queue("alone", 1), dict)
            assert await bundle(cluster) == trusted
            await cluster.until("it leads", lambda: is_running(cluster, f"j-{ports[1]}"), 60)
