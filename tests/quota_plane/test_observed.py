"""What the real controller did, done again: same victims, conditions, events and statuses."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from reprieve.engine.quota.model import Settings
from reprieve.kube.resource import EVENTS
from reprieve.planes.quota.context import QuotaOptions
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
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
#: Who speaks for the plane.
TOLD_BY = ("kueue-admission", "batch/job-kueue-controller")
#: Told when two heads met in one cycle, which is a matter of milliseconds.
BY_CHANCE = "Workload no longer fits after processing another workload"
#: Series that depend on the number of cycles, on the program, and on earlier runs of it.
NOT_COMPARED = (
    "kueue_admission_attempt_duration_seconds",
    "kueue_admission_attempts_total",
    "kueue_build_info",
    "kueue_finished_workloads_total",
    "kueue_workload_creation_latency_seconds",
)
Series = tuple[str, tuple[tuple[str, str], ...]]
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
    text = re.sub(r"since queued was \d+s", "since queued was Ns", text)
    name = r"\bjob-([a-z]+(?:-(?:low|mid|high))?)-?[ab0-9]?-[0-9a-f]{5}\b"
    return re.sub(name, r"job-\1", text)


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
    """Return the events about these Workloads and Jobs; how often warnings came does not count."""
    found = Counter(
        (
            each["involvedObject"]["kind"],
            each["type"],
            each["reason"],
            each["action"],
            each["reportingComponent"],
            plain(each["message"], namespace),
        )
        for each in events
        if each["reportingComponent"] in TOLD_BY
        and each["involvedObject"]["uid"] in uids
        and each["message"] != BY_CHANCE
        for _ in range((each.get("series") or {}).get("count", 1))
    )
    # One for each cycle that considered the workload, and cycles come when they come.
    return Counter({each: 1 if each[1] == "Warning" else n for each, n in found.items()})


def counted(text: str, namespace: str) -> dict[Series, float]:
    """Return all series that are not zero, without times and without who said it."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        family, _, labels = name.partition("{")
        if not family.startswith("kueue_") or family.startswith(NOT_COMPARED):
            continue
        if family.endswith(("_bucket", "_sum", "_created")) or float(value) == 0:
            continue
        said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        said.pop("replica_role", None)
        if said.get("namespace") == namespace:
            said["namespace"] = "NS"
        found[family, tuple(sorted(said.items()))] = float(value)
    return found


def shown(queues: list[Object]) -> dict[str, Object]:
    """Return the statuses of ClusterQueues and LocalQueues."""
    return {
        f"{each['kind']} {each['metadata']['name']}": {
            **{key: value for key, value in each["status"].items() if key in KEPT},
            "share": (each["status"].get("fairSharing") or {}).get("weightedShare"),
            "active": [
                (c["status"], c["reason"], c["message"]) for c in each["status"]["conditions"]
            ],
        }
        for each in queues
    }


def uids_of(workloads: list[Object]) -> set[str]:
    """Return the uids of Workloads and of their Jobs."""
    owners = {owner["uid"] for each in workloads for owner in each["metadata"]["ownerReferences"]}
    return owners | {each["metadata"]["uid"] for each in workloads}


def held_back(jobs: list[Object]) -> Counter[object]:
    """Return how many Jobs of each queue are suspended, and how many run."""
    label = "kueue.x-k8s.io/queue-name"
    return Counter((each["metadata"]["labels"][label], each["spec"]["suspend"]) for each in jobs)


def copied(workload: Object) -> Object:
    """Return the Job that a recorded Workload was made of."""
    spec = workload["spec"]
    return job(
        workload["metadata"]["ownerReferences"][0]["name"],
        spec["queueName"],
        priority=spec["priorityClassRef"]["name"],
        pods=spec["podSets"][0]["count"],
    )


async def now(cluster: Site) -> tuple[object, ...]:
    workloads = list((await cluster.workloads()).values())
    settled = [each for each in workloads if (each.get("status") or {}).get("conditions")]
    events = (await cluster.client.list(EVENTS, dict, namespace=NAMESPACE)).items
    queues = [
        {"kind": resource.kind, **each}
        for resource in (CLUSTER_QUEUES, LOCAL_QUEUES)
        for each in (await cluster.client.list(resource, dict)).items
    ]
    ready = [each for each in queues if "conditions" in (each.get("status") or {})]
    return (
        said(settled, NAMESPACE),
        told(events, uids_of(workloads), NAMESPACE),
        shown(ready),
        held_back((await cluster.client.list(JOBS, dict, namespace=NAMESPACE)).items),
        counted(generate_latest(cluster.metrics.registry).decode(), NAMESPACE),
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
        shown([*of("ClusterQueue", after), *of("LocalQueue", after)]),
        held_back(of("Job", after)),
        counted((OBSERVED / f"kueue-{name}.2-after.metrics.txt").read_text(), namespace),
    )
    nodes = [node("node-0", 16)]
    objects = (flavor(), *queues, *doors)
    options = QuotaOptions(settings=settings, queue_metrics=True)
    async with site(tmp_path, *objects, nodes=nodes, options=options) as cluster:
        for each in sorted(first, key=lambda w: w["metadata"]["creationTimestamp"]):
            await cluster.create(copied(each))
        names = [each["metadata"]["ownerReferences"][0]["name"] for each in first]
        await cluster.until_admitted(*names)

        async def ready() -> bool:
            said = [await cluster.conditions(each) for each in names]
            return all(each.get("PodsReady", ("",))[0] == "True" for each in said)

        await cluster.until("all are ready", ready)
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
    if isinstance(have, dict) and isinstance(wanted, dict):
        keys = sorted(have.keys() | wanted.keys())
        odd = [key for key in keys if have.get(key) != wanted.get(key)]
        return "\n".join(f"{key}: {have.get(key)} instead of {wanted.get(key)}" for key in odd)
    return f"{have}\n{wanted}"
