"""A cluster that refuses, contradicts and forgets: the end is the same as on a calm day.

Requests are refused with 409, 429 and 500, watches are cut or told that their version is too old,
all at random from a seed. Counted beside it: a list that was answered is made once for each kind,
and once more for each time that a watch was told so.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reprieve.scenarios.embedded import OPERATOR_USER
from reprieve.scenarios.model import NodeSpec
from tests.idle.site import GPU_WORKLOADS, Site, container, deployment, job, open_site

NODES = [NodeSpec("gpu-0", {"amd.com/gpu": "16"})]
# Kinds that are watched; roots and leases are read one by one, with lists where that is cheaper.
WATCHED = ("pods", "namespaces", "gpuworkloads", "kaiwoconfigs", "preemptions")


async def _story(site: Site) -> dict[str, Any]:
    """Preempt idle Jobs for a demand, one by hand, one by policy; return what is left."""
    await site.create(
        *(job(f"idle-{index}", container(gpu=4), enabled="true") for index in range(2)),
        job("busy", container(gpu=4), enabled="true"),
        job("by-hand", container(gpu=4), grace_period="1h"),
    )
    site.busy("Job/busy", 80)
    site.busy("Job/demand", 80)
    # Several renewals in a row may be refused; losing the lease is another story.
    await site.run({}, "--lease-duration", "30s")
    await site.until_phase("Job/busy", "Active")
    for name in ("idle-0", "idle-1", "by-hand"):
        await site.until_phase(f"Job/{name}", "Idle")
    await site.create(job("demand", container(gpu=8), enabled="true"))
    await site.until_phase("Job/demand", "Active")
    await site.delete("jobs.batch", "by-hand")
    await site.until_phase("Job/by-hand", "Deleted")
    await site.create(deployment("service", 2, 2, policy="Always", grace_period="1h"))
    await site.until(lambda: _is_whole(site, "Deployment/service"))
    await site.annotate("deployments.apps", "service", grace_period="1s")
    await site.until_phase("Deployment/service", "Preempted")
    await site.until(lambda: _closed(site))
    return await _left(site)


async def _is_whole(site: Site, root: str) -> bool:
    """Whether both of its pods are known, which are found one after the other."""
    found = await site.workload(root)
    return found is not None and found["spec"]["gpuResources"] == {"amd.com/gpu": 4}


async def _closed(site: Site) -> bool:
    records = await site.records()
    phases = [record.get("status", {}).get("phase") for record in records]
    return phases.count("Completed") >= 2 and set(phases) <= {"Completed", "Abandoned"}


async def _left(site: Site) -> dict[str, Any]:
    """Return all objects that the story decides, without what differs from run to run."""
    workloads = {}
    for found in await site.all(GPU_WORKLOADS):
        spec, status = found["spec"], found["status"]
        workloads[_plain(found["metadata"]["name"])] = {
            "spec": {key: value for key, value in spec.items() if key != "workloadRef"},
            "phase": status["phase"],
            "condition": [c["reason"] for c in status["conditions"] if c["type"] == "PhaseUpdated"],
            "for": _plain(status.get("preemptedFor", "")),
            "reason": re.sub(r"idle for \w+", "idle", _plain(status.get("preemptionReason", ""))),
        }
    completed = [r for r in await site.records() if r["status"]["phase"] == "Completed"]
    roots = [*await site.all("jobs.batch"), *await site.all("deployments.apps")]
    return {
        "gpuworkloads": workloads,
        "roots": sorted(found["metadata"]["name"] for found in roots),
        "victims": sorted(
            (victim["root"]["name"], record["spec"]["preemptor"]["name"][:10])
            if "preemptor" in record["spec"]
            else (victim["root"]["name"], "")
            for record in completed
            for victim in record["spec"]["victims"]
        ),
        "evictions": sorted(site.evictions()),
    }


def _plain(text: str) -> str:
    return re.sub(r"-[0-9a-f]{8}\b", "", text)


@pytest.fixture(scope="module")
def calm() -> dict[str, Any]:
    """What a calm run left, once one has been made."""
    return {}


@pytest.mark.parametrize("seed", [pytest.param(3, marks=pytest.mark.slow), 20])
async def test_faults_at_random_end_in_the_same_objects_as_a_calm_run(
    tmp_path: Path, calm: dict[str, Any], seed: int
) -> None:
    if not calm:
        async with open_site(tmp_path / "calm", NODES) as site:
            calm.update(await _story(site))
    assert calm["roots"] == ["busy", "demand"]
    async with open_site(tmp_path / "faults", NODES) as site:
        site.cluster.faults.configure(
            user=OPERATOR_USER,
            seed=seed,
            conflict=0.1,
            too_many=0.05,
            error=0.05,
            drop_watch=0.1,
            expire_watch=0.2,
        )
        left = await _story(site)
        counts = dict(site.cluster.faults.counts)
        lists = {kind: _answered(site, kind)["list"] for kind in WATCHED}
        refused = site.cluster.faults.refused

    assert left == calm
    met = {fault for fault, number in counts.items() if number}
    assert met >= {"conflict", "too_many", "error"}
    assert met & {"drop_watch", "expire_watch"}
    # A watch is refused with 410, 429 or 500, and only the first of these asks for a list.
    # Records are also listed by the recovery, also after one that could not be written, and once by
    # the removal of old ones.
    unwritten = _writes_refused(refused, "preemptions")
    most = 3 + unwritten + _watches_refused(refused, "preemptions")
    assert lists.pop("preemptions") <= most
    for kind, number in lists.items():
        assert 1 <= number <= 1 + _watches_refused(refused, kind), kind
    assert sum(lists.values()) - len(lists) <= counts.get("expire_watch", 0)


async def test_a_phase_that_could_not_be_written_is_written_and_told_later(site: Site) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await rights.deny("patch", "kaiwo.silogen.ai", "gpuworkloads/status")
    await site.create(job("training", container(gpu=4), grace_period="1h"))
    operator = await site.run()
    await site.until(lambda: operator.said("retried later", "gpuworkloads/status"))
    scrapes = site.embedded.machines.exporter.scrapes
    await site.until(lambda: site.embedded.machines.exporter.scrapes > scrapes + 3)
    assert await site.events("GpuWorkload/job-training") == []

    await rights.allow("patch", "kaiwo.silogen.ai", "gpuworkloads/status")

    idle = await site.until_phase("Job/training", "Idle")
    (condition,) = (c for c in idle["status"]["conditions"] if c["type"] == "PhaseUpdated")
    assert condition["reason"] == "PhaseIdle"
    assert await site.until_event("GpuWorkload/job-training", "WorkloadIdle") == (
        "GPU utilization dropped to 0.0%, workload is now considered idle"
    )


async def test_a_record_that_could_not_be_closed_is_closed_soon_after(site: Site) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await site.create(job("idle", container(gpu=4), policy="Always", grace_period="1h"))
    operator = await site.run()
    await site.until_phase("Job/idle", "Idle")

    async def refuse_what_follows(write: Any, stage: Any) -> None:
        if write.verb == "delete" and write.path.endswith("/jobs/idle"):
            await rights.deny("patch", "reprieve.dev", "preemptions/status")

    site.cluster.on_write = refuse_what_follows
    await site.annotate("jobs.batch", "idle", grace_period="1s")
    await site.until(lambda: operator.said("stays open", "preemptions/status"))
    site.cluster.on_write = None
    time = asyncio.get_running_loop().time
    # Nothing else has the plane look at it any more: its settling time is over.
    settled = time() + 20
    await site.until(lambda: time() > settled)
    # It is tried each second; the log has it once a minute.
    assert len(operator.said("stays open", "preemptions/status")) == 1
    await rights.allow("patch", "reprieve.dev", "preemptions/status")
    allowed = time()
    await site.until(lambda: _phases(site, ["Completed"]))
    assert time() - allowed < 20


async def _phases(site: Site, wanted: list[str]) -> bool:
    return [record.get("status", {}).get("phase") for record in await site.records()] == wanted


def _watches_refused(refused: Counter[tuple[str, str, str, str]], resource: str) -> int:
    return sum(
        n for (_, verb, _, plural), n in refused.items() if (verb, plural) == ("watch", resource)
    )


def _writes_refused(refused: Counter[tuple[str, str, str, str]], resource: str) -> int:
    """Return how many writes of a kind were refused, those of its status among them."""
    return sum(
        number
        for (_, verb, _, plural), number in refused.items()
        if verb in ("create", "patch") and plural.partition("/")[0] == resource
    )


def _answered(site: Site, resource: str) -> Counter[str]:
    """Return how many lists and watches of a kind were not refused by a fault."""
    asked = site.cluster.requests - site.cluster.faults.refused
    return Counter(
        {
            verb: number
            for (user, verb, _, plural), number in asked.items()
            if (user, plural) == (OPERATOR_USER, resource)
        }
    )
