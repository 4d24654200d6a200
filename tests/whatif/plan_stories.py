"""What people plan, and what the cluster has; the answers stand in `told/NAME.txt`.

No server: snapshots are made here, and what was there before is decided by the planes themselves.
`python -m tests.whatif.plan_stories` writes the answers anew; read what has changed before you
commit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.cli.texts.plan_text import plan_text
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.questions.answer import Answer
from reprieve.whatif.questions.planning import planned
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.snapshot import Snapshot, Unseen
from reprieve.whatif.submitting.submission import Submitted
from tests.quota_plane.site import cluster_queue, flavor, local_queue
from tests.quota_plane.site import priority_class as queue_class
from tests.quota_plane.test_jobs import LOWER
from tests.whatif.test_kinds import NOON, snapshot

Object = dict[str, Any]
TOLD: Final = Path(__file__).parent / "told"
GPU: Final = "nvidia.com/gpu"
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
GROUPS: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
RECLAIM: Final = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
#: So much processor time may be asked for: no story is cut short on a busy machine.
_ENDLESS: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Story:
    """What is there, what was submitted before, one after the other, and what is planned."""

    controllers: str
    there: Sequence[Object]
    wanted: Sequence[Object]
    before: Sequence[Sequence[Object]] = ()
    unseen: tuple[Unseen, ...] = ()


STORIES: Final[dict[str, Callable[[], Story]]] = {}


def story(make: Callable[[], Story]) -> Callable[[], Story]:
    """Take a story in under the name of the function that makes it."""
    STORIES[make.__name__.replace("_", "-")] = make
    return make


def at(minutes: float) -> str:
    """Return the instant so many minutes before the plan."""
    return format_instant(Nanos(int(NOON - minutes * MINUTE)))


def node(name: str, gpus: int = 8, **labels: str) -> Object:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def namespace(name: str = "team", **annotations: str) -> Object:
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def priority(name: str, value: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def pod_spec(gpus: int, priority: str = "", **spec: Any) -> Object:
    amounts = {"cpu": str(gpus), GPU: str(gpus)}
    container = {"name": "c", "image": "registry.example/app:1"}
    resources = {"requests": amounts, "limits": {GPU: str(gpus)}}
    return {
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "containers": [{**container, "resources": resources}],
        **({"priorityClassName": priority} if priority else {}),
        **spec,
    }


def pod(name: str, gpus: int, priority: str = "", **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "team"}
    body = {"metadata": metadata, "spec": pod_spec(gpus, priority, **spec)}
    return {"apiVersion": "v1", "kind": "Pod", **body}


def job(name: str, pods: int, gpus: int, queue: str = "", level: str = "", **spec: Any) -> Object:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    if level:
        labels["kueue.x-k8s.io/priority-class"] = level
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "suspend": bool(queue),
            "template": {"spec": pod_spec(gpus)},
            **spec,
        },
    }


def measured(name: str, waited: float, *, gpus: int = 8, ended: bool = True) -> Object:
    """Return a Workload of the queue that waited for so many minutes, two hours ago."""
    created = 120 + waited
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": "",
            "lastTransitionTime": at(created - waited),
        }
        for kind in ("QuotaReserved", "Admitted", "Finished")
    ]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": at(created)},
        "spec": {
            "queueName": "q",
            "priority": 100,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": pod_spec(gpus)}}],
        },
        "status": {
            "conditions": conditions,
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main"}]},
        },
    }


def queue(name: str, gpus: int, cohort: str = "", **spec: Any) -> Object:
    quotas = [{"name": "cpu", "nominalQuota": "1000"}, {"name": GPU, "nominalQuota": str(gpus)}]
    group = {
        "coveredResources": ["cpu", GPU],
        "flavors": [{"name": "default-flavor", "resources": quotas}],
    }
    return cluster_queue(name, 0, cohort, resourceGroups=[group], **spec)


QUOTA: Final = (
    namespace(),
    flavor(),
    local_queue("q", "cq"),
    queue_class("low", 100),
    queue_class("high", 1000),
)
NODES_OF_TWO: Final = (
    namespace(),
    priority("low", 100),
    priority("high", 1000),
    node("node-0"),
    node("node-1"),
)


@story
def pod_that_starts() -> Story:
    return Story("scheduling", NODES_OF_TWO, [pod("mine", 1)])


@story
def pod_for_which_somebody_makes_way() -> Story:
    there = [[pod("old", 8, "low"), pod("new", 4, "low")]]
    return Story("scheduling", NODES_OF_TWO, [pod("mine", 6, "high")], there)


@story
def pod_that_starts_narrowly() -> Story:
    there = [[pod("a", 7, "high"), pod("b", 2, "high")]]
    return Story("scheduling", NODES_OF_TWO, [pod("mine", 5, "low")], there)


@story
def pod_that_starts_and_others_make_way_with_less_free() -> Story:
    there = [[pod("a", 8, "low"), pod("b", 2, "low")]]
    return Story("scheduling", NODES_OF_TWO, [pod("mine", 4, "high")], there)


@story
def pod_that_waits_without_an_estimate() -> Story:
    there = [[pod("a", 8, "high"), pod("b", 8, "high")]]
    return Story("scheduling", NODES_OF_TWO, [pod("mine", 4, "low")], there)


@story
def pod_that_waits_until_a_declared_run_time_ends() -> Story:
    there = [
        [
            pod("hour", 8, "high", activeDeadlineSeconds=3600),
            pod("day", 8, "high", activeDeadlineSeconds=86400),
        ]
    ]
    return Story("scheduling", NODES_OF_TWO, [pod("mine", 8, "low")], there)


@story
def pod_that_never_fits() -> Story:
    return Story("scheduling", NODES_OF_TWO, [pod("mine", 9, "high")])


@story
def job_that_borrows() -> Story:
    queues = (
        queue("cq", 8, "all"),
        queue("b", 16, "all", preemption=RECLAIM),
        queue("c", 8, "all"),
    )
    return Story("quota", (*QUOTA, *queues), [job("mine", 2, 8, "q", "low")])


@story
def job_for_which_another_makes_way() -> Story:
    queues = (queue("cq", 16, preemption=LOWER),)
    there = [[job("old", 1, 8, "q", "low")], [job("new", 1, 4, "q", "low")]]
    return Story("quota", (*QUOTA, *queues), [job("mine", 2, 4, "q", "high")], there)


@story
def job_that_waits_as_similar_ones_have() -> Story:
    done = [measured(f"done-{n}", 1 + n) for n in range(31)]
    there = [[job("holds", 1, 8, "q", "low")]]
    return Story("quota", (*QUOTA, queue("cq", 8), *done), [job("mine", 1, 8, "q", "low")], there)


@story
def job_of_which_too_few_have_waited() -> Story:
    done = [measured(f"done-{n}", 1 + n) for n in range(28)]
    larger = [measured(f"larger-{n}", 1 + n, gpus=16) for n in range(30)]
    there = [[job("holds", 1, 8, "q", "low")]]
    base = (*QUOTA, queue("cq", 8), *done, *larger)
    return Story("quota", base, [job("mine", 1, 8, "q", "low")], there)


@story
def job_that_waits_until_an_execution_time_ends() -> Story:
    holds = job("holds", 1, 8, "q", "low")
    holds["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "7200"
    base = (*QUOTA, queue("cq", 8))
    return Story("quota", base, [job("mine", 1, 8, "q", "low")], [[holds]])


@story
def pod_that_did_not_opt_in_itself() -> Story:
    first, second, mine = _of_amd([pod(each, 8, "low") for each in ("a", "b", "mine")])
    return Story("idle,scheduling", _of_amd(NODES_OF_TWO), [mine], [[first, second]])


def _of_amd(objects: Sequence[Object]) -> list[Object]:
    """Return the objects with GPUs of the vendor that is followed unless others are named."""
    text = json.dumps(objects).replace(GPU, "amd.com/gpu")
    return list(json.loads(text))


@story
def job_that_waits_for_two_run_times() -> Story:
    there = [
        [
            pod("hour", 8, "high", activeDeadlineSeconds=3600),
            pod("day", 8, "high", activeDeadlineSeconds=86400),
        ]
    ]
    return Story("scheduling", NODES_OF_TWO, [job("mine", 2, 8)], there)


@story
def tenant_who_may_not_list_others() -> Story:
    rest = [Unseen(each, ("rivals", "secret")) for each in (PODS, JOBS, GROUPS)]
    unseen = (*rest, Unseen(Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False), ()))
    return Story("scheduling", NODES_OF_TWO, [pod("mine", 4)], unseen=unseen)


def submitted(objects: Sequence[Object]) -> list[Submitted]:
    kinds = {"Pod": PODS, "Job": JOBS, "PodGroup": GROUPS}
    return [Submitted(kinds[each["kind"]], each) for each in objects]


def arranged(name: str) -> tuple[Deciders, Snapshot, list[Submitted]]:
    """Return who decides in a story, about what cluster, and what is submitted."""
    told = STORIES[name]()
    deciders = deciders_of(told.controllers, ("default-scheduler",), {})
    found = snapshot(deciders, *told.there)
    for wave in told.before:
        found = settled(found, deciders, submitted(wave)).overlay.frozen()
    found = replace(found, unseen=told.unseen, namespaces=3 if told.unseen else None)
    return deciders, found, submitted(told.wanted)


@cache
def answered(name: str) -> Answer:
    """Return what is planned in a story."""
    deciders, found, wanted = arranged(name)
    return asyncio.run(planned(None, found, deciders, wanted, trying=60.0, asking=_ENDLESS))


def text_of(name: str) -> str:
    """Return what is told, under the question."""
    answer = answered(name)
    controllers = STORIES[name]().controllers.split(",")
    now = Nanos(answer.snapshot.at + 4 * SECOND // 10)
    lines = plan_text(answer, controllers, now=now)
    return "\n".join(("$ reprieve plan -f mine.yaml", *lines, ""))


def _write() -> None:
    TOLD.mkdir(exist_ok=True)
    for name in STORIES:
        (TOLD / f"{name}.txt").write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    _write()
