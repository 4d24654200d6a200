"""One process decides, one evaluation runs, and each is handed over."""

from __future__ import annotations

import asyncio

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import format_micro, parse_instant
from reprieve.kube.resource import LEASES, PREEMPTIONS
from tests.integration.site import JOBS, OPERATOR_NAMESPACE, Object, Site, job

EVALUATION = "gpu-preemption-eval"


async def test_the_evaluation_lease_is_taken_for_an_eviction_and_given_back(site: Site) -> None:
    await site.create(job("notebook", 4, policy="Always", grace_period="1s"))
    await site.operator()
    await site.in_phase("Job/notebook", "Preempted")

    async def released() -> Object | None:
        found = await site.find(LEASES, EVALUATION, OPERATOR_NAMESPACE)
        return found if found and not found["spec"].get("holderIdentity") else None

    lease = await site.until(released, "the evaluation lease is released")
    assert parse_instant(lease["spec"]["acquireTime"]) > 0
    assert lease["spec"]["leaseDurationSeconds"] > 0


async def test_nobody_is_evicted_while_another_operator_evaluates(site: Site) -> None:
    held = {
        "holderIdentity": "kaiwo-operator-0",
        "leaseDurationSeconds": 3600,
        "acquireTime": format_micro(SystemClock().wall()),
        "renewTime": format_micro(SystemClock().wall()),
    }
    lease = {"metadata": {"name": EVALUATION, "namespace": OPERATOR_NAMESPACE}, "spec": held}
    await site.client.create(LEASES, lease, dict)
    await site.create(job("notebook", 4, policy="Always", grace_period="1s"))
    await site.operator()
    workload = await site.in_phase("Job/notebook", "Idle")
    await asyncio.sleep(3)
    assert (await site.workload("Job/notebook"))["status"]["phase"] == "Idle"
    assert await site.find(JOBS, "notebook") != {}
    assert await site.all(PREEMPTIONS) == []

    await site.client.patch(
        LEASES, OPERATOR_NAMESPACE, EVALUATION, {"spec": {"holderIdentity": ""}}, dict
    )
    gone = await site.in_phase("Job/notebook", "Preempted")
    assert gone["metadata"]["uid"] == workload["metadata"]["uid"]


async def test_the_process_lease_is_handed_over_when_its_holder_is_asked_to_end(
    site: Site,
) -> None:
    first = await site.operator()
    before = await holder(site)
    second = await site.operator()
    assert (await holder(site))["holderIdentity"] == before["holderIdentity"]

    await first.stop()
    after = await site.until(lambda: other_holder(site, before), "the standby leads")

    assert f"_{second.pids[0]}_" in after["holderIdentity"]
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1
    await second.stop()
    free = await site.find(LEASES, "reprieve", OPERATOR_NAMESPACE)
    assert not free["spec"].get("holderIdentity")


async def test_two_replicas_evict_once(site: Site) -> None:
    site.reports("Job/demand", 90)
    root = await site.create(job("notebook", 4, grace_period="1s"))
    await site.operator(replicas=2)
    await site.in_phase("Job/notebook", "Idle")
    await site.create(job("demand", 4, enabled="true"))
    await site.in_phase("Job/demand", "Active")
    gone = await site.in_phase("Job/notebook", "Preempted")

    async def completed() -> Object | None:
        (record,) = await site.all(PREEMPTIONS)
        return record if record.get("status", {}).get("phase") == "Completed" else None

    record = await site.until(completed, "the only intent is completed")
    (victim,) = record["status"]["victims"]
    assert (victim["uid"], victim["state"]) == (root["metadata"]["uid"], "Evicted")

    async def told() -> bool:
        return "Warning WorkloadPreempted" in await site.events(gone)

    await site.until(told, "the event about the eviction")


async def holder(site: Site) -> Object:
    async def held() -> Object | None:
        spec: Object = (await site.find(LEASES, "reprieve", OPERATOR_NAMESPACE)).get("spec", {})
        return spec if spec.get("holderIdentity") else None

    return await site.until(held, "somebody leads")


async def other_holder(site: Site, before: Object) -> Object | None:
    spec: Object = (await site.find(LEASES, "reprieve", OPERATOR_NAMESPACE))["spec"]
    found = spec.get("holderIdentity")
    return spec if found and found != before["holderIdentity"] else None
