"""Plan, submit, compare: random clusters and manifests on the embedded cluster.

Nothing else changes between the plan and the submission, so that what happens is what was planned:
what starts, who makes way, and where pods run. Pods of Jobs have random names, so that of a Job the
nodes are compared with how many pods each has. Kubelets end pods a millisecond apart, as the plan
takes them to: where several end at one instant, how their deletions come between the operator's
decisions is chance, and can move members of a gang from one node to another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from kubelocal.machines.gpus import Root
from kubelocal.machines.kubelet import KubeletTimes
from reprieve.kube.client import Client
from reprieve.kube.resource import PODS, PREEMPTIONS, Resource
from reprieve.units.durations import MILLISECOND
from reprieve.whatif.answer import Answer, Verdict
from tests.idle.site import PREFIX
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    WORKLOADS,
    cluster_queue,
    flavor,
    job,
    local_queue,
)
from tests.quota_plane.site import priority_class as workload_class
from tests.scheduling.site import (
    NAMESPACE,
    POD_GROUPS,
    PRIORITY_CLASSES,
    Site,
    group,
    node,
    pod,
    priority_class,
    site,
)
from tests.whatif.asking import ask

Object = dict[str, Any]
PRIORITIES = {"low": 100, "middle": 1000, "high": 10_000}
REST_S = 45.0
GPU = "amd.com/gpu"
IDLE = {"GPU_PREEMPTION_ENABLED": "true", "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "1s"}
PACE_S = 0.01  # between two objects that are submitted
_FLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False)
_CLASSES = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", False
)
RESOURCES = {
    each.kind: each
    for each in (
        PODS,
        JOBS,
        POD_GROUPS,
        PRIORITY_CLASSES,
        CLUSTER_QUEUES,
        LOCAL_QUEUES,
        _FLAVORS,
        _CLASSES,
    )
}


@dataclass(frozen=True)
class Happened:
    """What became of a submission, of a plan and of the cluster alike."""

    starts: bool
    victims: frozenset[tuple[str, str]]
    placement: tuple[tuple[str, str], ...]


@dataclass
class Tally:
    """What was compared, by verdict, and what differed."""

    verdicts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def compare(self, seed: str, answer: Answer, plan: Happened, real: Happened) -> None:
        """Count one case."""
        self.verdicts[str(answer.verdict)] += 1
        if plan != real:
            told = [(each.name, each.verdict, each.message) for each in answer.outcomes]
            self.differences.append(f"{seed}\n  plan {plan}\n  real {real}\n  told {told}")


async def proven(folder: Path, seed: int, planes: str, cases: int) -> Tally:
    """Play so many submissions on one random cluster, and compare each."""
    random = Random(f"{planes} {seed}")
    tally = Tally()
    nodes = [node(f"node-{i}", random.choice((4, 6, 8))) for i in range(random.randint(2, 4))]
    if "idle" in planes:
        nodes = [msgspec.structs.replace(e, allocatable=e.allocatable | {GPU: "4"}) for e in nodes]
    paced = KubeletTimes(apart=MILLISECOND)
    queued = "quota" in planes
    async with site(nodes, folder, kubelet=True, kueue=queued, kubelet_times=paced) as cluster:
        client = cluster.client
        await create(client, *_base(random, planes))
        exporter = cluster.embedded.machines.exporter
        variables = IDLE if "idle" in planes else {}
        operator = await cluster.operator(
            *("--controllers", planes),
            environment=variables | {"GPU_PREEMPTION_METRICS_ENDPOINT": exporter.url},
        )
        for number in range(len(nodes) if "idle" in planes else 0):
            # Most of the room is taken at first, by idle work among others.
            first = gpu_job(random, f"f{number}", "low", queued=False)
            root = Root(NAMESPACE, "Job", f"f{number}")
            exporter.set_utilization(root, random.choice((0.0, 0.0, 90.0)))
            await create(client, first)
        await asyncio.sleep(REST_S)
        for number in range(cases):
            submitted = _submission(random, planes, f"s{number}")
            asked = await ask(
                cluster.embedded.kubeconfig,
                *submitted,
                controllers=planes,
                names=["default-scheduler"],
                namespace=NAMESPACE,
                environment=variables,
            )
            known = await records(client)
            for obj in submitted:
                if obj["kind"] == "Job":
                    root = Root(NAMESPACE, "Job", obj["metadata"]["name"])
                    # Idle from its start on in half of the cases; a grace period is over by then.
                    exporter.set_utilization(root, random.choice((0.0, 90.0)))
                await create(client, obj)
                await asyncio.sleep(PACE_S)
            await asyncio.sleep(REST_S)
            plan = _planned(asked.answer)
            real = await happened(client, planes, submitted, known)
            tally.compare(f"{planes} seed {seed} case {number}", asked.answer, plan, real)
            await thin_out(random, cluster)
        await operator.stop()
    return tally


def _base(random: Random, planes: str) -> Iterator[Object]:
    for name, value in PRIORITIES.items():
        never = random.random() < 0.1
        yield priority_class(name, value, "Never" if never else "PreemptLowerPriority")
    if "quota" not in planes:
        return
    yield flavor()
    policies = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
    for number in range(random.randint(1, 3)):
        preemption = {
            "withinClusterQueue": random.choice(policies),
            "reclaimWithinCohort": random.choice(("Never", "LowerPriority", "Any")),
        }
        cohort = "cohort" if random.random() < 0.8 else ""
        queue = cluster_queue(f"cq-{number}", random.randint(2, 6), cohort, preemption=preemption)
        if "idle" in planes:
            with_gpus(queue, random.randint(4, 12))
        yield queue
        yield local_queue(f"q-{number}", f"cq-{number}")
    for name, value in PRIORITIES.items():
        yield workload_class(f"w-{name}", value)


def with_gpus(queue: Object, gpus: int) -> None:
    """Give a ClusterQueue quota of GPUs, too."""
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"].append(GPU)
    group["flavors"][0]["resources"].append({"name": GPU, "nominalQuota": str(gpus)})


def _submission(random: Random, planes: str, name: str) -> Sequence[Object]:
    priority = random.choice(list(PRIORITIES))
    kinds = ["job"] if "quota" in planes else []
    kinds += ["gpus"] * 3 if "idle" in planes else []
    kinds += ["pod", "gang"] if "scheduling" in planes else []
    cpu = random.randint(1, 4)
    match random.choice(kinds):
        case "pod":
            return [pod(name, cpu, priority=priority)]
        case "gang":
            count = random.randint(2, 4)
            least = random.randint(1, count)
            mode = random.choice(("single", "all"))
            members = (pod(f"{name}-{i}", cpu, group=name, priority=priority) for i in range(count))
            return [group(name, min_count=least, mode=mode, priority=priority), *members]
        case "gpus":
            return [gpu_job(random, name, priority, queued=random.random() < 0.5)]
        case _:
            queue = f"q-{random.randint(0, 2)}"
            body = job(
                name,
                queue,
                priority=f"w-{priority}",
                pods=random.randint(1, 3),
                cpu=str(random.randint(1, 2)),
                suspend=random.random() < 0.7,
            )
            return [body]


def gpu_job(random: Random, name: str, priority: str, *, queued: bool) -> Object:
    """Return a Job with GPUs, queued or not, that mostly opts in."""
    body = job(
        name,
        f"q-{random.randint(0, 2)}",
        priority=f"w-{priority}",
        pods=random.randint(1, 2),
        suspend=queued,
    )
    if not queued:
        body["metadata"]["labels"] = {}
    if random.random() < 0.9:
        body["metadata"]["annotations"] = {f"{PREFIX}enabled": "true"}
    limits = {GPU: str(random.randint(2, 4))}
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "1", **limits}, "limits": limits}
    return body


async def create(client: Client, *objects: Object) -> None:
    for obj in objects:
        await client.create(RESOURCES[obj["kind"]], obj, dict)


async def thin_out(random: Random, cluster: Site) -> None:
    """Now and then something ends, so that the cluster does not only fill up."""
    if random.random() < 0.5:
        return
    client = cluster.client
    for resource in (JOBS, PODS):
        page = await client.list(resource, dict, namespace=NAMESPACE)
        names = sorted(
            each["metadata"]["name"]
            for each in page.items
            if not each["metadata"].get("ownerReferences")
            and not (each["spec"].get("schedulingGroup"))
        )
        if names:
            await client.delete(resource, NAMESPACE, random.choice(names))
    await asyncio.sleep(REST_S)


def _planned(answer: Answer) -> Happened:
    starts = answer.verdict in (Verdict.STARTS, Verdict.STARTS_WITH_VICTIMS)
    victims = frozenset((each.kind, each.name) for each in answer.victims)
    return Happened(starts, victims, _comparable((e.pod, e.node) for e in answer.placement))


async def records(client: Client) -> set[str]:
    page = await client.list(PREEMPTIONS, dict)
    return {each["metadata"]["name"] for each in page.items}


async def happened(
    client: Client, planes: str, submitted: Sequence[Object], known: set[str]
) -> Happened:
    jobs = {each["metadata"]["name"] for each in submitted if each["kind"] == "Job"}
    pods = (await client.list(PODS, dict, namespace=NAMESPACE)).items
    mine = {each["metadata"]["name"] for each in submitted}
    own = [
        each
        for each in pods
        if each["metadata"]["name"] in mine
        or any(o["name"] in jobs for o in each["metadata"].get("ownerReferences") or ())
    ]
    placed = [
        (each["metadata"]["name"], each["spec"]["nodeName"])
        for each in own
        if each["spec"].get("nodeName")
    ]
    if jobs and "scheduling" not in planes:
        (name,) = jobs
        starts = not (await client.get(JOBS, NAMESPACE, name, dict))["spec"]["suspend"]
    elif jobs:
        starts = len(placed) == _size(submitted[0])
    elif submitted[0]["kind"] == "PodGroup":
        least = submitted[0]["spec"]["schedulingPolicy"]["gang"]["minCount"]
        starts = len(placed) >= least
    else:
        starts = bool(placed)
    return Happened(starts, await _victims(client, known), _comparable(iter(placed)))


async def _victims(client: Client, known: set[str]) -> frozenset[tuple[str, str]]:
    """Return who is named in records that are new, Workloads by their jobs."""
    owners: dict[str, str] = {}
    try:
        workloads = (await client.list(WORKLOADS, dict)).items
    except Exception:
        workloads = []
    for each in workloads:
        for owner in each["metadata"].get("ownerReferences") or ():
            owners[each["metadata"]["name"]] = owner["name"]
    found = set()
    for record in (await client.list(PREEMPTIONS, dict)).items:
        phase = (record.get("status") or {}).get("phase")
        if record["metadata"]["name"] in known or phase == "Abandoned":
            continue
        for victim in record["spec"]["victims"]:
            root = victim["root"]
            if root["kind"] == "Workload":
                found.add(("Job", owners.get(root["name"], root["name"])))
            else:
                found.add((root["kind"], root["name"]))
    return frozenset(found)


def _size(body: Object) -> int:
    return int(body["spec"]["parallelism"])


def _comparable(placed: Iterator[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return placement without the random part of the names of Jobs' pods."""
    return tuple(sorted((_stem(name), where) for name, where in placed))


def _stem(name: str) -> str:
    stem, _, suffix = name.rpartition("-")
    return stem if len(suffix) == 5 else name
