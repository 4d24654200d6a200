"""A Job that is being deleted and that a finalizer of its owner keeps, on a real API server.

The real controllers leave its pods running, whatever its field says, and make none. It is preempted
nevertheless, and another one that waits preempts nobody.
"""

from __future__ import annotations

from typing import Final

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import PODS
from tests.integration.group_plane import on_plane
from tests.integration.settled_story import Story
from tests.integration.test_quota_plan import _NODES, _go_on, _prepared, _until, story
from tests.quota_plane.site import JOBS, LOCAL_QUEUES, NAMESPACE, WORKLOADS, Object, job

__all__ = ["story"]

_PLANES: Final = "scheduling,quota"


def _kept(name: str, priority: str) -> Object:
    body = job(name, priority=priority, pods=4)
    body["metadata"]["finalizers"] = ["example.org/kept"]
    return body


@pytest.mark.slow
async def test_a_job_that_is_being_deleted_is_preempted_and_preempts_nobody(story: Story) -> None:
    flags = ("--controllers", _PLANES, "--scheduler-name", "default-scheduler")
    given = (story.plane, story.folder, _NODES, *flags)
    async with on_plane(*given, kueue=True, ready="quota plane runs") as stage:
        connection = await load_connection(str(story.folder / "kubeconfig"))
        client = connect(connection, SystemClock(), field_manager="tests")
        operator = stage.launch({}, 1)
        await operator.start()

        async def left(name: str) -> int:
            selector = f"batch.kubernetes.io/job-name={name}"
            page = await client.list(PODS, dict, namespace=NAMESPACE, label_selector=selector)
            return sum(not each["metadata"].get("deletionTimestamp") for each in page.items)

        async def gone() -> bool:
            return await left("kept") == 0

        async def two() -> bool:
            return len((await client.list(WORKLOADS, dict, namespace=NAMESPACE)).items) >= 2

        async def others_are_decided(name: str) -> None:
            """Wait until a job that came later, and fits nowhere, states why it is pending."""
            await client.create(JOBS, job(name, priority="low", pods=4), dict)

            async def pending() -> bool:
                found = (await client.list(WORKLOADS, dict, namespace=NAMESPACE)).items
                return any(
                    each["metadata"]["name"].startswith(f"job-{name}-")
                    and condition["type"] == "QuotaReserved"
                    for each in found
                    for condition in each.get("status", {}).get("conditions") or ()
                )

            await _until(f"{name} is pending", pending)

        try:
            await _prepared(client)
            await client.create(JOBS, _kept("kept", "low"), dict)
            await _until("it runs", lambda: _go_on(client, _PLANES, "kept"))
            await client.delete(JOBS, NAMESPACE, "kept")
            await others_are_decided("behind")
            assert await left("kept") == 4
            await client.create(JOBS, job("wanted", priority="high", pods=4), dict)
            await _until("its pods are ended", gone)
            await _until("the other one runs", lambda: _go_on(client, _PLANES, "wanted"))
            # One that waits while its queue is stopped, and is deleted meanwhile, gets nothing.
            stop = {"spec": {"stopPolicy": "Hold"}}
            await client.patch(LOCAL_QUEUES, NAMESPACE, "q", stop, dict)
            await client.create(JOBS, _kept("waits", "high"), dict)
            await _until("it has a Workload", two)
            await client.delete(JOBS, NAMESPACE, "waits")
            go_on = {"spec": {"stopPolicy": "None"}}
            await client.patch(LOCAL_QUEUES, NAMESPACE, "q", go_on, dict)
            await others_are_decided("last")
            assert (await left("wanted"), await left("waits")) == (4, 0)
        except AssertionError as failure:
            raise AssertionError("\n".join([str(failure), *operator.tail(40)])) from None
        finally:
            await operator.stop()
            await client.close()
