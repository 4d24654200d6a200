"""Who is preempted for whom, end to end: several names, placement, and all or nothing."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reprieve.planes.common.suspects import Ended
from reprieve.planes.idle.evaluating.set_aside import Evaluated, SetAside
from reprieve.scenarios.model import NodeSpec
from tests.idle.site import Object, Site, container, deployment, job, open_site

BY_SUM = "gpuPreemption: {fit: Sum}\n"


async def test_a_demand_for_two_names_is_served_and_told_with_both(tmp_path: Path) -> None:
    node = NodeSpec("gpu-0", {"amd.com/gpu": "4", "amd.com/gpu-0": "2"})
    async with open_site(tmp_path, [node]) as site:
        both = container(gpu=4, gpu_0=2)
        await site.create(job("victim", both, enabled="true"))
        site.busy("Job/demand", 90)
        await site.run()
        await site.until_phase("Job/victim", "Idle")
        await site.create(job("demand", both, enabled="true"))

        over = await site.until_phase("Job/victim", "Preempted")

        demand = await site.workload("Job/demand")
        assert demand is not None
        name = demand["metadata"]["name"]
        reason = f"Preempted to free 4 amd.com/gpu, 2 amd.com/gpu-0 for pending workload {name}"
        assert over["status"]["preemptionReason"] == reason
        assert over["status"]["preemptedFor"] == name
        assert over["status"]["gpus"] == "4 amd.com/gpu, 2 amd.com/gpu-0"
        assert await site.until_event("GpuWorkload/job-victim", "PreemptionStarted") == (
            f"Freeing 4 amd.com/gpu, 2 amd.com/gpu-0 GPU(s) for pending workload {name}"
        )
        await site.until_phase("Job/demand", "Active")
        (record,) = await site.records()
        assert record["spec"]["proof"]["need"] == {"amd.com/gpu": 4, "amd.com/gpu-0": 2}
        assert record["spec"]["victims"][0]["reason"] == reason


async def test_fit_node_asks_for_a_node_and_fit_sum_does_not(tmp_path: Path) -> None:
    nodes = [NodeSpec(f"gpu-{index}", {"amd.com/gpu": "4"}) for index in range(2)]
    async with open_site(tmp_path, nodes) as site:
        await site.create(job("first", container(gpu=4), enabled="true"))
        await site.until(lambda: _running(site, 1))
        await site.create(job("second", container(gpu=4), enabled="true"))
        await site.until(lambda: _running(site, 2))
        site.busy("Job/small", 90)
        by_node = await site.run()
        await site.until_phase("Job/first", "Idle")
        await site.until_phase("Job/second", "Idle")

        # The older demand wants 8 GPUs of one node, which no eviction gives it; the younger one is
        # served, by one victim.
        await site.create(job("wide", container(gpu=8), enabled="true"))
        await site.until_phase("Job/wide", "PendingGpu")
        small = await site.create(job("small", container(gpu=4), enabled="true"))
        await site.until_phase("Job/small", "Active")

        phases = {await site.phase("Job/first"), await site.phase("Job/second")}
        assert phases == {"Idle", "Preempted"}
        (record,) = await site.records()
        assert record["spec"]["preemptor"]["name"].startswith("job-small-")
        (placed,) = record["spec"]["placement"]
        (pod,) = [
            found
            for found in await site.all("pods")
            if found["metadata"]["ownerReferences"][0]["uid"] == small["metadata"]["uid"]
        ]
        assert placed["uid"] == pod["metadata"]["uid"]
        assert placed["node"] == pod["spec"]["nodeName"]
        assert record["spec"]["proof"]["level"] == "Placement"
        await by_node.stop()

        # By the sum, as the guide says, the wide demand costs both of them their GPUs.
        site.busy("Job/small", 0)
        await site.run(config=BY_SUM)
        await site.until_phase("Job/first", "Preempted")
        await site.until_phase("Job/second", "Preempted")
        await site.until_phase("Job/small", "Preempted")
        wide = await site.workload("Job/wide")
        assert wide is not None
        assert wide["status"]["phase"] == "PendingGpu"


async def test_nobody_goes_for_a_demand_that_would_have_no_node_all_the_same(site: Site) -> None:
    """A GPU would be free, a thousand CPUs would not."""
    await site.create(job("idle", container(gpu=8), enabled="true"))
    operator = await site.run()
    await site.until_phase("Job/idle", "Idle")
    greedy = container(gpu=1)
    greedy["resources"]["limits"]["cpu"] = "1000"
    await site.create(job("greedy", greedy, enabled="true"))
    await site.until_phase("Job/greedy", "PendingGpu")

    # Before the idle one is eligible it is said that there are too few GPUs.
    told = await site.until_event("GpuWorkload/job-greedy", "NobodyMakesWay", "no node")

    assert told == (
        "No idle workload is preempted for it: there are GPUs enough, but no node would have "
        "capacity for a pod that requests 1 amd.com/gpu, 1k cpu"
    )
    await asyncio.sleep(3)  # the grace period is one second
    assert (await site.phase("Job/idle"), await site.records()) == ("Idle", [])
    await operator.stop()


async def test_free_gpus_and_idle_ones_serve_a_demand_together(site: Site) -> None:
    await site.create(job("idle", container(gpu=4), enabled="true"))
    site.busy("Job/whole", 90)
    await site.run()
    await site.until_phase("Job/idle", "Idle")
    await site.create(job("whole", container(gpu=8), enabled="true"))

    await site.until_phase("Job/whole", "Active")

    (record,) = await site.records()
    proof = record["spec"]["proof"]
    assert (proof["level"], proof["need"], proof["freed"], proof["free"]) == (
        "Placement",
        {"amd.com/gpu": 8},
        {"amd.com/gpu": 4},
        {"amd.com/gpu": 4},
    )


async def test_by_the_sum_a_demand_that_free_gpus_would_help_to_serve_is_told_so(
    site: Site,
) -> None:
    await site.create(job("idle", container(gpu=4), enabled="true"))
    await site.run(config=BY_SUM)
    await site.until_phase("Job/idle", "Idle")
    await site.create(job("whole", container(gpu=8), enabled="true"))
    told = await site.until_event("GpuWorkload/job-whole", "NobodyMakesWay", "short of 4")
    assert told == (
        "No idle workload is preempted for it: all eligible idle workloads together are short of "
        "4 amd.com/gpu; with fit: Sum free GPUs do not count"
    )


async def test_without_the_right_to_read_nodes_the_sum_decides_and_that_is_said(
    site: Site,
) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await rights.deny("watch", "", "nodes")
    await site.create(job("idle", container(gpu=8), enabled="true"))
    site.busy("Job/demand", 90)
    operator = await site.run()
    await site.until_phase("Job/idle", "Idle")
    await site.create(job("demand", container(gpu=4), enabled="true"))
    await site.until_phase("Job/demand", "Active")
    (record,) = await site.records()
    assert record["spec"]["proof"]["level"] == "Sum"
    (line,) = operator.said("fit: Sum is in force")
    assert "watch on nodes is missing" in line


async def test_one_eviction_serves_the_demand_that_comes_after_another_one_went(
    tmp_path: Path,
) -> None:
    nodes = [NodeSpec(f"gpu-{index}", {"amd.com/gpu": "4"}) for index in range(2)]
    async with open_site(tmp_path, nodes) as site:
        for index, name in enumerate(("s1", "s2")):
            slow = job(name, container(gpu=4), enabled="true")
            slow["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 8
            await site.create(slow)
            await site.until(partial(_running, site, index + 1))
        await site.run()
        await site.until_phase("Job/s1", "Idle")
        await site.until_phase("Job/s2", "Idle")
        site.busy("Job/d2", 90)
        await site.create(job("d1", container(gpu=4), enabled="true"))
        evicted = await site.until_phase("Job/s1", "Preempted")
        assert evicted["status"]["preemptedFor"].startswith("job-d1-")

        await site.delete("jobs.batch", "d1")
        await site.create(job("d2", container(gpu=4), enabled="true"))
        await site.until_phase("Job/d2", "PendingGpu")
        await site.until_phase("Job/d2", "Active")

        assert await site.phase("Job/s2") == "Idle"
        assert len(await site.records()) == 1


async def _running(site: Site, count: int) -> bool:
    pods = await site.all("pods")
    phases = [pod.get("status", {}).get("phase") for pod in pods]
    return phases.count("Running") == count


async def _oldest_and_large(site: Site) -> None:
    """The oldest idle workload has 2 GPUs, the next one 6; a demand wants 6 and none is free."""
    await site.create(job("oldest", container(gpu=2), enabled="true"))
    await site.until_phase("Job/oldest", "Idle")
    await asyncio.sleep(1.1)  # idleSince has whole seconds
    await site.create(job("large", container(gpu=6), enabled="true"))
    site.busy("Job/demand", 90)
    await site.until_phase("Job/large", "Idle")
    await site.create(job("demand", container(gpu=6), enabled="true"))
    await site.until_phase("Job/demand", "Active")


async def test_the_oldest_idle_workloads_are_taken_first_even_if_a_later_one_would_do(
    site: Site,
) -> None:
    await site.run(config=BY_SUM)
    await _oldest_and_large(site)
    await site.until_phase("Job/oldest", "Preempted")
    await site.until_phase("Job/large", "Preempted")


async def test_with_irreducible_nobody_is_taken_whom_the_demand_does_not_need(site: Site) -> None:
    await site.run(config="gpuPreemption: {fit: Sum, irreducible: true}\n")
    await _oldest_and_large(site)
    assert await site.phase("Job/large") == "Preempted"
    assert await site.phase("Job/oldest") == "Idle"
    (record,) = await site.records()
    assert [victim["root"]["name"] for victim in record["spec"]["victims"]] == ["large"]
    assert len(record["spec"]["reprieved"]) == 1


async def test_a_set_with_one_victim_that_must_stay_is_not_evicted_at_all(site: Site) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await rights.deny("delete", "apps", "deployments")
    await site.create(
        job("training", container(gpu=4), enabled="true"),
        deployment("service", 1, 4, enabled="true"),
    )
    site.busy("Job/demand", 90)
    operator = await site.run()
    await site.until_phase("Job/training", "Idle")
    await site.until_phase("Deployment/service", "Idle")
    await site.create(job("demand", container(gpu=8), enabled="true"))

    told = await site.until_event("GpuWorkload/deployment-service", "PreemptionFailed")

    assert told == (
        "Cannot delete Deployment/service: the operator lacks RBAC delete permission for "
        "Deployment resources"
    )
    rule = 'the rule {apiGroups: ["apps"], resources: ["deployments"], verbs: ["get", "delete"]}'
    assert await site.until_event("GpuWorkload/deployment-service", "RightMissing") == (
        f"To delete Deployment/service the operator needs {rule}"
    )
    assert len(operator.said(rule)) == 1
    # It was found before anybody was marked, and again after a while: one record of one plan.
    records = await site.until(lambda: _abandoned(site, 2), seconds=600)
    assert len(records) == 1
    assert {record["status"]["phase"] for record in records} == {"Abandoned"}
    assert {v["state"] for r in records for v in r["status"]["victims"]} == {"Spared"}
    assert site.evictions() == []
    assert await site.get("jobs.batch", "training") is not None
    assert await site.get("deployments.apps", "service") is not None
    assert await site.events("GpuWorkload/job-training", "PreemptionStarted") == []
    assert await site.phase("Job/training") == "Idle"

    await rights.allow("delete", "apps", "deployments")
    await site.until_phase("Job/training", "Preempted", seconds=600)
    await site.until_phase("Deployment/service", "Preempted")
    await site.until_phase("Job/demand", "Active")
    await site.until(lambda: operator.said("completed"))
    assert sorted(line.rpartition("/")[2] for line in site.evictions()) == ["service", "training"]


async def _abandoned(site: Site, attempt: int) -> list[Object]:
    """Return the records of plans for nothing once one was tried so often."""
    records = await site.records()
    over = [r for r in records if r.get("status", {}).get("phase") == "Abandoned"]
    return over if any(r["spec"]["attempt"] >= attempt for r in over) else []


async def test_the_time_to_live_ends_a_record_and_zero_keeps_it(site: Site) -> None:
    await site.create(
        job("kept", container(gpu=1), policy="Always", ttl="0"),
        job("short", container(gpu=1), policy="Always", ttl="1s"),
        job("vanished", container(gpu=1), grace_period="1h", ttl="1s"),
    )
    await site.run()
    await site.until_phase("Job/kept", "Preempted")
    await site.until_phase("Job/vanished", "Idle")
    await site.delete("jobs.batch", "vanished")

    async def only_kept() -> bool:
        names = {f["spec"]["workloadRef"]["name"] for f in await site.all(_WORKLOADS)}
        return names == {"kept"}

    await site.until(only_kept)
    kept = await site.workload("Job/kept")
    assert kept is not None
    assert kept["status"]["phase"] == "Preempted"
    assert len(await site.records()) == 2
    assert await site.until_event("GpuWorkload/job-vanished", "WorkloadDeleted")


_WORKLOADS = "gpuworkloads.kaiwo.silogen.ai"


async def test_that_an_open_preemption_is_about_who_ended_a_process_is_no_fault_and_said_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, waits = SetAside.evaluate, [True]

    async def evaluate(*asked: Any) -> Evaluated:
        if waits:
            raise Ended("team/job-idle", 600)
        return await real(*asked)

    monkeypatch.setattr(SetAside, "evaluate", evaluate)
    await site.create(job("idle", container(gpu=8), enabled="true"))
    operator = await site.run()
    await site.until_phase("Job/idle", "Idle")
    await site.create(job("demand", container(gpu=8), enabled="true"))
    site.busy("Job/demand", 80)
    await site.until_phase("Job/demand", "PendingGpu")
    await asyncio.sleep(10)
    assert len(operator.said("an open preemption is about team/job-idle")) == 1
    waits.clear()
    await site.until_phase("Job/demand", "Active")
    assert operator.said("decisions continue") and not operator.said("fault of ours")
    await operator.stop()


async def test_a_demand_whose_plan_cannot_be_recorded_is_told_when_it_is_tried_again(
    site: Site,
) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await site.create(job("idle", container(gpu=8), enabled="true"))
    operator = await site.run()
    await site.until_phase("Job/idle", "Idle")
    await rights.deny("create", "reprieve.dev", "preemptions")
    site.busy("Job/demand", 80)
    await site.create(job("demand", container(gpu=8), enabled="true"))
    reason = "PreemptionNotRecorded"
    for pause in (10, 20, 40):
        await site.until_event("GpuWorkload/job-demand", reason, f"tried again after {pause} s")
    assert await site.phase("Job/idle") == "Idle"
    await rights.allow("create", "reprieve.dev", "preemptions")
    await site.until_phase("Job/demand", "Active")
    await operator.stop()
