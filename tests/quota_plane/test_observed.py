"""What the real controller did, done again: same victims, conditions, events and statuses."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from reprieve.controllers.quota.context import QuotaOptions
from reprieve.engine.quota.model import Settings
from reprieve.kube.resource import EVENTS
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    NAMESPACE,
    Object,
    Site,
    flavor,
    job,
    local_queue,
    node,
    site,
)

OBSERVED = Path(__file__).parents[3] / "shared" / "observed"
NAMES = (
    "withinClusterQueue-LowerPriority",
    "reclaimWithinCohort-Any",
    "borrowWithinCohort-LowerPriority",
    "fairSharing",
    "never",
)
TOLD = ("Preempted", "EvictedDueToPreempted", "PreemptedWorkload")
KEPT = ("flavorsReservation", "flavorsUsage", "pendingWorkloads", "reservingWorkloads")


def recorded(name: str, stage: str) -> list[Object]:
    file = OBSERVED / f"kueue-{name}.{stage}.yaml"
    if not file.exists():
        return []
    with file.open() as stream:
        return [item for page in yaml.safe_load_all(stream) if page for item in page["items"]]


def of(kind: str, objects: list[Object]) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def plain(text: str, namespace: str) -> str:
    """Return a message without identities; jobs that only differ by number are the same."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
    text = re.sub(rf"(?<!/)\b{namespace}/", "NS/", text)
    return re.sub(r"job-(low|[ab]|b-low|high)-?[ab0-9]?-[0-9a-f]{5}\b", r"job-\1", text)


def said(workloads: list[Object], namespace: str) -> Counter[object]:
    """Return what Workloads say, by queue and priority."""
    return Counter(
        (
            each["spec"]["queueName"],
            each["spec"]["priority"],
            tuple(
                sorted(
                    (c["type"], c["status"], c["reason"], plain(c["message"], namespace))
                    for c in each["status"]["conditions"]
                )
            ),
        )
        for each in workloads
    )


def told(events: list[Object], uids: set[str], namespace: str) -> Counter[object]:
    """Return the events about preemptions of these Workloads."""
    return Counter(
        (
            each["type"],
            each["reason"],
            each["action"],
            each["reportingComponent"],
            plain(each["message"], namespace),
        )
        for each in events
        if each["reason"] in TOLD and each["involvedObject"]["uid"] in uids
        for _ in range((each.get("series") or {}).get("count", 1))
    )


def shown(queues: list[Object]) -> dict[str, Object]:
    """Return the statuses of ClusterQueues."""
    return {
        each["metadata"]["name"]: {
            **{key: value for key, value in each["status"].items() if key in KEPT},
            "share": (each["status"].get("fairSharing") or {}).get("weightedShare"),
            "active": [
                (c["status"], c["reason"], c["message"]) for c in each["status"]["conditions"]
            ],
        }
        for each in queues
    }


def uids_of(workloads: list[Object]) -> set[str]:
    return {each["metadata"]["uid"] for each in workloads}


def copied(workload: Object) -> Object:
    """Return the Job that a recorded Workload was made of."""
    spec = workload["spec"]
    return job(
        workload["metadata"]["ownerReferences"][0]["name"],
        spec["queueName"],
        priority=spec["priorityClassRef"]["name"],
        pods=spec["podSets"][0]["count"],
    )


async def now(cluster: Site) -> tuple[Counter[object], Counter[object], dict[str, Object]]:
    workloads = list((await cluster.workloads()).values())
    settled = [each for each in workloads if (each.get("status") or {}).get("conditions")]
    events = (await cluster.client.list(EVENTS, dict, namespace=NAMESPACE)).items
    queues = (await cluster.client.list(CLUSTER_QUEUES, dict)).items
    ready = [each for each in queues if "conditions" in (each.get("status") or {})]
    return (
        said(settled, NAMESPACE),
        told(events, uids_of(workloads), NAMESPACE),
        shown(ready),
    )


@pytest.mark.parametrize("name", NAMES)
async def test_the_real_controllers_run_is_repeated(name: str, tmp_path: Path) -> None:
    after = recorded(name, "2-after")
    if not after:
        pytest.skip(f"the recording kueue-{name} is not here")
    workloads = of("Workload", after)
    before = {each["metadata"]["name"] for each in of("Workload", recorded(name, "1-before"))}
    first = [each for each in workloads if each["metadata"]["name"] in before]
    if not first:  # nothing was recorded before the other came
        first = [each for each in workloads if each["status"].get("admission")]
    second = [each for each in workloads if each not in first]
    queues = [
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "metadata": {"name": each["metadata"]["name"]},
            **{key: each[key] for key in ("spec", "value") if key in each},
        }
        for each in (*of("ClusterQueue", after), *of("WorkloadPriorityClass", after))
    ]
    doors = [
        local_queue(each["metadata"]["name"], each["spec"]["clusterQueue"])
        for each in of("LocalQueue", after)
    ]
    settings = Settings(fair_sharing=()) if name == "fairSharing" else Settings()
    namespace = workloads[0]["metadata"]["namespace"]
    expected = (
        said(workloads, namespace),
        told(of("Event", after), uids_of(workloads), namespace),
        shown(of("ClusterQueue", after)),
    )
    nodes = [node("node-0", 16)]
    objects = (flavor(), *queues, *doors)
    options = QuotaOptions(settings=settings)
    async with site(tmp_path, *objects, nodes=nodes, options=options) as cluster:
        for each in sorted(first, key=lambda w: w["metadata"]["creationTimestamp"]):
            await cluster.create(copied(each))
        await cluster.until_admitted(
            *(each["metadata"]["ownerReferences"][0]["name"] for each in first)
        )
        await cluster.create(*(copied(each) for each in second))

        async def same() -> bool:
            return await now(cluster) == expected

        try:
            await cluster.until("the same", same)
        except AssertionError:
            for have, wanted in zip(await now(cluster), expected, strict=True):
                assert have == wanted, _difference(have, wanted)


def _difference(have: object, wanted: object) -> str:
    if isinstance(have, Counter) and isinstance(wanted, Counter):
        return f"too much:\n{have - wanted}\nmissing:\n{wanted - have}"
    return f"{have}\n{wanted}"
