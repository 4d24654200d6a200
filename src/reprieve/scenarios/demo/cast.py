"""Who is in the demo: nodes, queues, teams, and the work that they submit.

Three teams have 20 GPUs of nominal quota each and lend each other what they do not use; the fourth
works without a queue, with notebooks, a service that a PodDisruptionBudget protects, and gangs. Two
of the three are notified before their jobs are evicted, and save. Two small queues are for work
that displaces other work in vain until a hold protects it, and two for trainings of which one saves
before it is evicted and the other cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kubelocal.machines.simulation import PREFIX, Setting
from reprieve.api.reprieve import NOTICE, SAVE_COST
from reprieve.scenarios.model import NodeSpec, Scenario

__all__ = [
    "GPU",
    "GROUP_VERSION",
    "GUARDED",
    "LABS",
    "PLATFORM",
    "QUEUED",
    "SAVING",
    "Pace",
    "demo_scenario",
    "furniture",
    "gang",
    "notebook",
    "plain_job",
    "queued_job",
]

Object = dict[str, Any]
GPU: Final = "amd.com/gpu"
GROUP_VERSION: Final = "scheduling.k8s.io/v1beta1"
QUEUED: Final = ("research", "vision", "speech")
PLATFORM: Final = "platform"
#: Teams whose jobs request notice of their eviction, and save then.
SAVING: Final = ("vision", "speech")
_NOTICE: Final = "10s"
_SAVE: Final = "1s"
_NODES: Final = 12
_NOMINAL: Final = 20
#: Two queues of their own, in which work displaces work in vain: the team and the quota of each.
GUARDED: Final = {"nights": ("vision", 0), "days": ("research", 8)}
#: A queue without a cohort for each of two teams, of which one has its jobs notified.
LABS: Final = {"speech": "lab-a", "research": "lab-b"}
_LAB: Final = 8
_OPT_IN: Final = "kaiwo.silogen.ai/gpu-preemption."
_CLASSES: Final = (("batch", 100), ("service", 500), ("urgent", 1000))


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast everything runs: 1 as it is, 10 ten times as fast."""

    speed: float = 1.0

    def seconds(self, seconds: float) -> float:
        """Return how long so many seconds of the demo last."""
        return seconds / self.speed

    def text(self, seconds: float) -> str:
        """Return that as a Go duration, at least half a second."""
        return f"{max(500, round(self.seconds(seconds) * 1000))}ms"


def demo_scenario(pace: Pace) -> Scenario:
    """Return the cluster of the demo, as a scenario without steps."""
    return Scenario(
        name="demo",
        namespace=PLATFORM,
        operator_env={
            "GPU_PREEMPTION_ENABLED": "true",
            "GPU_PREEMPTION_POLLING_INTERVAL": "1s",
        },
        nodes=tuple(_nodes()),
        steps=(),
        controllers=("idle", "scheduling", "quota"),
        operator_config={
            "gpuPreemption": {"profile": "best"},
            "quota": {
                "profile": "best",
                "webhooks": {"url": "https://127.0.0.1:0"},
                "notice": {"max": _NOTICE},
            },
            "governor": {"loopLimit": 2, "loopWindow": pace.text(240)},
        },
    )


def _nodes() -> Iterator[NodeSpec]:
    for number in range(_NODES):
        amounts: dict[str, str | int] = {"cpu": "96", "memory": "768Gi", "pods": "110", GPU: "8"}
        yield NodeSpec(f"gpu-{number:02}", amounts, {"pool": "main"})


def furniture(pace: Pace) -> Iterator[Object]:
    """Yield what is there before any work is submitted, in the order in which it is needed."""
    opted = {f"{_OPT_IN}enabled": "true", f"{_OPT_IN}grace-period": pace.text(8)}
    for name in (*QUEUED, PLATFORM):
        metadata: Object = {"name": name}
        if name == PLATFORM:
            metadata["annotations"] = opted
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    for name, value in _CLASSES:
        yield _named("scheduling.k8s.io/v1", "PriorityClass", name, value=value)
        yield _named("kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass", name, value=value)
    flavor = {"nodeLabels": {"pool": "main"}}
    yield _named("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "mi300x", spec=flavor)
    for name in QUEUED:
        yield _cluster_queue(name, _NOMINAL, "gpus")
        yield _local_queue("gpus", name, name)
    for name, (team, nominal) in GUARDED.items():
        yield _cluster_queue(name, nominal, "guard")
        yield _local_queue(name, team, name)
    for team, name in LABS.items():
        yield _cluster_queue(name, _LAB, name)
        yield _local_queue(name, team, name)
    yield from _service()


def _local_queue(name: str, team: str, leads_to: str) -> Object:
    spec = {"clusterQueue": leads_to}
    queue = _named("kueue.x-k8s.io/v1beta2", "LocalQueue", name, spec=spec)
    queue["metadata"]["namespace"] = team
    return queue


def _cluster_queue(name: str, nominal: int, cohort: str) -> Object:
    resources = [{"name": GPU, "nominalQuota": str(nominal)}]
    spec = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "preemption": {
            "reclaimWithinCohort": "Any",
            "withinClusterQueue": "LowerPriority",
        },
        "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": "mi300x", "resources": resources}]}
        ],
    }
    return _named("kueue.x-k8s.io/v1beta2", "ClusterQueue", name, spec=spec)


def _service() -> Iterator[Object]:
    """Yield a service of three pods, of which a budget keeps two."""
    labels = {"app": "chat"}
    spec = {
        "replicas": 3,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": _lasting("")},
            "spec": pod_spec(2, "batch"),
        },
    }
    deployment = _named("apps/v1", "Deployment", "chat", spec=spec)
    deployment["metadata"]["namespace"] = PLATFORM
    yield deployment
    budget_spec = {"minAvailable": 2, "selector": {"matchLabels": labels}}
    budget = _named("policy/v1", "PodDisruptionBudget", "chat", spec=budget_spec)
    budget["metadata"]["namespace"] = PLATFORM
    yield budget


def queued_job(
    team: str,
    name: str,
    pods: int,
    gpus: int,
    level: str,
    lasts: str,
    *,
    queue: str = "gpus",
    line: str = "",
) -> Object:
    """Return a Job in its team's queue whose pods run for so long."""
    labels = {"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": level}
    spec = pod_spec(gpus, "batch")
    made = _job(team, name, pods, spec, lasts, {**labels, **_line(line)})
    made["spec"]["suspend"] = True
    if team in SAVING:
        made["spec"]["template"]["metadata"]["annotations"] |= {
            NOTICE: _NOTICE,
            SAVE_COST: _SAVE,
        }
    return made


def plain_job(name: str, pods: int, gpus: int, level: str, lasts: str) -> Object:
    """Return a Job of the team without a queue."""
    return _job(PLATFORM, name, pods, pod_spec(gpus, level), lasts, {})


def gang(name: str, pods: int, gpus: int, lasts: str) -> Iterator[Object]:
    """Yield a PodGroup that starts as a whole, and its pods."""
    policy = {"schedulingPolicy": {"gang": {"minCount": pods}}, "priorityClassName": "urgent"}
    group = _named(GROUP_VERSION, "PodGroup", name, spec=policy)
    group["metadata"]["namespace"] = PLATFORM
    yield group
    for number in range(pods):
        spec = pod_spec(gpus, "urgent") | {"restartPolicy": "Never"}
        spec["schedulingGroup"] = {"podGroupName": name}
        pod = _named("v1", "Pod", f"{name}-{number}", spec=spec)
        pod["metadata"] |= {"namespace": PLATFORM, "annotations": _lasting(lasts)}
        yield pod


def notebook(name: str, gpus: int) -> Object:
    """Return a notebook: a Job whose only pod runs until it is ended."""
    return _job(PLATFORM, name, 1, pod_spec(gpus, "batch"), "", {})


def pod_spec(gpus: int, level: str) -> Object:
    """Return the spec of a pod with so many GPUs."""
    container = {
        "name": "main",
        "image": "registry.example/work:1",
        "resources": {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}},
    }
    return {
        "priorityClassName": level,
        "terminationGracePeriodSeconds": 2,
        "containers": [container],
    }


def _job(
    namespace: str, name: str, pods: int, spec: Object, lasts: str, labels: dict[str, str]
) -> Object:
    template = {
        "metadata": {"annotations": _lasting(lasts), "labels": _line(labels.get(_LINE, ""))},
        "spec": {**spec, "restartPolicy": "Never"},
    }
    job = _named(
        "batch/v1",
        "Job",
        name,
        spec={"parallelism": pods, "completions": pods, "template": template},
    )
    job["metadata"] |= {"namespace": namespace, "labels": labels}
    return job


_LINE: Final = "reprieve.dev/lineage"


def _line(name: str) -> dict[str, str]:
    return {_LINE: name} if name else {}


def _lasting(lasts: str) -> dict[str, str]:
    """Return annotations of pods that run for so long and use their GPUs."""
    used = {f"{PREFIX}{Setting.GPU_UTILIZATION}": "85"}
    return {**used, f"{PREFIX}{Setting.RUN_TIME}": lasts} if lasts else used


def _named(api_version: str, kind: str, name: str, **body: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **body}
