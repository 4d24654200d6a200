"""A cluster on which three planes of one operator decide, and what they evict for one demand.

Evictions are counted from the operator's own writes as the API server stores them, never from
records of the product: a pod with a node is gone once the operator has deleted it or its root, or
has suspended its job. Time is virtual; utilisation is what a test says.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubelocal.machines.node.gpus import Root
from kubelocal.server.errors import StatusError
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import Resource
from reprieve.scenarios.embedded import (
    OPERATOR_NAMESPACE,
    OPERATOR_USER,
    EmbeddedStage,
    embedded_stage,
)
from reprieve.scenarios.model import NodeSpec
from tests.operator_in_process import OperatorInProcess
from tests.virtual_time import LoopClock

__all__ = [
    "GPU",
    "KINDS",
    "PODS",
    "UNIT",
    "Site",
    "deployment",
    "gang",
    "job",
    "node",
    "queue",
    "queued_pods",
    "site",
]

GPU: Final = "amd.com/gpu"
#: Settings of an operator that queues pods, too.
PODS: Final = """
quota:
  configuration:
    apiVersion: config.kueue.x-k8s.io/v1beta2
    kind: Configuration
    integrations: {frameworks: [batch/job, pod]}
"""
UNIT: Final = "tests/unit"
_ANNOTATION: Final = "kaiwo.silogen.ai/gpu-preemption.grace-period"
KINDS: Final = {
    "Namespace": Resource("", "v1", "namespaces", "Namespace", namespaced=False),
    "Pod": Resource("", "v1", "pods", "Pod"),
    "Job": Resource("batch", "v1", "jobs", "Job"),
    "Deployment": Resource("apps", "v1", "deployments", "Deployment"),
    "PodGroup": Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup"),
    "PriorityClass": Resource(
        "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
    ),
    "ResourceFlavor": Resource(
        "kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False
    ),
    "ClusterQueue": Resource(
        "kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False
    ),
    "LocalQueue": Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue"),
    "Topology": Resource("kueue.x-k8s.io", "v1beta2", "topologies", "Topology", namespaced=False),
}
_PATH: Final = re.compile(r"^/apis?/.*namespaces/([^/]+)/(pods|jobs|deployments)/([^/?]+)(/\w+)?$")
_INFORMED: Final = {"pods": "pods", "jobs": "jobs.batch", "deployments": "deployments.apps"}
_QUIET: Final = 10.0  # seconds without a change of pods, jobs or Deployments


def node(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None) -> NodeSpec:
    """Return a node."""
    amounts: dict[str, str | int] = {"cpu": "128", "memory": "1Ti", "pods": "110", GPU: str(gpus)}
    return NodeSpec(name, amounts, dict(labels or {}))


def _template(unit: str, gpus: int, priority: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    amounts = {GPU: str(gpus)}
    return {
        "metadata": {"labels": {UNIT: unit}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            **({"priorityClassName": priority} if priority else {}),
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/work:1",
                    "resources": {"requests": amounts, "limits": amounts},
                }
            ],
            **spec,
        },
    }


def _metadata(unit: str, team: str, *, opted: bool) -> dict[str, Any]:
    notes = {_ANNOTATION: "5s"} if opted else {}
    return {"name": unit, "namespace": team, "labels": {UNIT: unit}, "annotations": notes}


def job(
    unit: str,
    team: str = "a",
    *,
    pods: int = 1,
    gpus: int = 4,
    priority: str = "",
    opted: bool = True,
    queued: bool = False,
    within: str = "",
    **spec: Any,
) -> list[dict[str, Any]]:
    """Return a Job; `queued`: it waits in the team's LocalQueue, `within` one domain of a level."""
    metadata = _metadata(unit, team, opted=opted)
    if queued:
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = "main"
    body: dict[str, Any] = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 1000,
        "suspend": queued,
        "template": _template(unit, gpus, priority, {"restartPolicy": "Never", **spec}),
    }
    if within:
        notes = {"kueue.x-k8s.io/podset-required-topology": within}
        body["template"]["metadata"]["annotations"] = notes
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}]


def deployment(
    unit: str,
    team: str = "a",
    *,
    pods: int = 1,
    gpus: int = 4,
    priority: str = "",
    opted: bool = True,
) -> list[dict[str, Any]]:
    """Return a Deployment."""
    body = {
        "replicas": pods,
        "selector": {"matchLabels": {UNIT: unit}},
        "template": _template(unit, gpus, priority, {}),
    }
    metadata = _metadata(unit, team, opted=opted)
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": body}]


def gang(
    unit: str,
    team: str = "a",
    *,
    pods: int = 2,
    gpus: int = 4,
    priority: str = "",
    mode: str = "all",
    opted: bool = True,
) -> list[dict[str, Any]]:
    """Return a PodGroup and its pods, which start together or not at all."""
    spec: dict[str, Any] = {
        "schedulingPolicy": {"gang": {"minCount": pods}},
        "disruptionMode": {mode: {}},
    }
    if priority:
        spec["priorityClassName"] = priority
    template = _template(unit, gpus, priority, {"schedulingGroup": {"podGroupName": unit}})
    made = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**_metadata(unit, team, opted=opted), "name": f"{unit}-{number}"},
            "spec": template["spec"],
        }
        for number in range(pods)
    ]
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": _metadata(unit, team, opted=False),
        "spec": spec,
    }
    return [group, *made]


def queued_pods(
    unit: str, team: str = "a", *, pods: int = 1, gpus: int = 4, priority: str = ""
) -> list[dict[str, Any]]:
    """Return pods without an owner that wait in the team's LocalQueue; several are a group."""
    made = []
    for number in range(pods):
        metadata = _metadata(unit, team, opted=True)
        labels, notes = metadata["labels"], metadata["annotations"]
        metadata["name"] = unit if pods == 1 else f"{unit}-{number}"
        labels["kueue.x-k8s.io/queue-name"] = "main"
        labels["kueue.x-k8s.io/managed"] = "true"
        if pods > 1:
            labels["kueue.x-k8s.io/pod-group-name"] = unit
            notes["kueue.x-k8s.io/pod-group-total-count"] = str(pods)
        gates = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
        spec = _template(unit, gpus, priority, {"restartPolicy": "Never", **gates})["spec"]
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return made


def queue(
    team: str, quota: int, flavors: Sequence[str] = ("gpus",), **preemption: str
) -> list[dict[str, Any]]:
    """Return a team's ClusterQueue in the one cohort, and its LocalQueue `main`.

    `quota`: of each flavor.
    """
    rules = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority", **preemption}
    covered = {"name": GPU, "nominalQuota": str(quota)}
    return [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": f"queue-{team}"},
            "spec": {
                "cohortName": "all",
                "namespaceSelector": {},
                "preemption": rules,
                "resourceGroups": [
                    {
                        "coveredResources": [GPU],
                        "flavors": [{"name": name, "resources": [covered]} for name in flavors],
                    }
                ],
            },
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": team},
            "spec": {"clusterQueue": f"queue-{team}"},
        },
    ]


@dataclass(slots=True)
class Site:
    """The cluster. `evicted`: GPUs by unit that the operator's writes have evicted.

    `stored`: its deletions and suspensions that the API server accepted, by uid of the object.
    `writes`: how many requests it made; the process dies at that of `dies_at`, received or stored,
    and another one comes in its place `away` seconds later.
    """

    stage: EmbeddedStage
    client: Client
    operators: list[OperatorInProcess] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    evicted: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    writes: int = 0
    dies_at: tuple[int, str] | None = None
    away: float = 1.0
    deaths: int = 0
    _gone: set[str] = field(default_factory=set)
    _asked: dict[int, str] = field(default_factory=dict)
    _restarts: set[asyncio.Task[None]] = field(default_factory=set)

    async def create(self, *objects: dict[str, Any]) -> None:
        """Create objects one after the other, each in a moment of its own."""
        for each in objects:
            await self.client.create(KINDS[each["kind"]], each, dict)
            await asyncio.sleep(0.01)

    def use(self, unit: Sequence[dict[str, Any]], percent: float) -> None:
        """Say how much a unit uses its GPUs from now on."""
        for each in unit:
            if each["kind"] != "PodGroup":
                metadata = each["metadata"]
                root = Root(metadata["namespace"], each["kind"], metadata["name"])
                self.stage.machines.exporter.set_utilization(root, percent)

    async def runs(self, *units: Sequence[dict[str, Any]]) -> None:
        """Create units that are busy, and wait until everything is at rest."""
        for unit in units:
            self.use(unit, 90.0)
            await self.create(*unit)
        await self.rest()

    async def idle(self, *units: Sequence[dict[str, Any]]) -> None:
        """Let units be idle for longer than their grace period."""
        for unit in units:
            self.use(unit, 0.0)
        await asyncio.sleep(30)

    async def demand(self, unit: Sequence[dict[str, Any]]) -> dict[str, int]:
        """Create one unit that uses its GPUs; return the GPUs evicted by unit, once at rest."""
        self.evicted.clear()
        await self.runs(unit)
        await asyncio.sleep(90)
        await self.rest()
        return dict(self.evicted)

    async def rest(self) -> None:
        """Wait until nothing of pods, jobs and Deployments has changed for a while."""
        seen, quiet = self._state(), 0.0
        for _ in range(400):
            if quiet >= _QUIET:
                return
            await asyncio.sleep(1)
            found = self._state()
            quiet = quiet + 1 if found == seen else 0.0
            seen = found
        raise AssertionError("not at rest:\n" + "\n".join(self.lines[-40:]))

    def placed(self, unit: str) -> int:
        """Return how many pods of a unit hold a node and stay."""
        return sum(1 for name, _ in self.running() if name == unit)

    def _state(self) -> set[tuple[str, str]]:
        informer = self.stage.machines.informer
        return {
            (each["metadata"]["uid"], each["metadata"]["resourceVersion"])
            for kind in ("pods", "jobs.batch", "deployments.apps")
            for each in informer.all(kind)
        }

    def running(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the pods that hold a node and stay, each with its unit."""
        found = []
        for pod in self.stage.machines.informer.all("pods"):
            unit = (pod["metadata"].get("labels") or {}).get(UNIT, "")
            over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            ends = pod["metadata"].get("deletionTimestamp")
            if unit and pod["spec"].get("nodeName") and not over and not ends:
                found.append((unit, pod))
        return found

    async def on_write(self, write: Any, stage: Any) -> None:
        """Count what a write of the operator evicts, before it is stored; have it die there."""
        if write.user != OPERATOR_USER:
            return
        self.writes += stage.value == "before"
        # Of several requests on their way one is stored later than it was made.
        number, when = self.dies_at or (0, "")
        if when == stage.value and self.writes >= number:
            self.die()
            if when == "before":
                raise StatusError(503, "ServiceUnavailable", "nobody waits for this")
        self._count(write, stage)

    def die(self) -> None:
        """End the process as it is; another one comes in its place."""
        self.dies_at, self.deaths = None, self.deaths + 1
        for operator in self.operators:
            operator.kill()
        task = asyncio.create_task(self._restart())
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    async def _restart(self) -> None:
        for operator in self.operators:
            await operator.stop()
        await asyncio.sleep(self.away)
        for operator in self.operators:
            await operator.start()

    def _count(self, write: Any, stage: Any) -> None:
        if stage.value == "stored" and write.index in self._asked:
            uid = self._asked.pop(write.index)
            self.stored[uid] = self.stored.get(uid, 0) + 1
        match = _PATH.match(write.path.partition("?")[0])
        if stage.value != "before" or match is None:
            return
        team, kind, name, below = match.groups()
        spec = _json(write.body).get("spec") or {}
        stops = spec.get("suspend") is True or spec.get("replicas") == 0
        if below or not (write.verb == "delete" or (write.verb in ("patch", "update") and stops)):
            return
        for each in self.stage.machines.informer.all(_INFORMED[kind]):
            metadata, known = each["metadata"], each.get("spec") or {}
            stopped = known.get("suspend") is True or known.get("replicas") == 0
            if (metadata["namespace"], metadata["name"]) == (team, name) and not stopped:
                self._asked[write.index] = metadata["uid"]
        for unit, pod in self.running():
            metadata = pod["metadata"]
            named = metadata["name"] if kind == "pods" else unit
            if (
                metadata["namespace"] == team
                and named == name
                and metadata["uid"] not in self._gone
            ):
                self._gone.add(metadata["uid"])
                asked = pod["spec"]["containers"][0]["resources"]["limits"]
                self.evicted[unit] = self.evicted.get(unit, 0) + int(asked[GPU])


@asynccontextmanager
async def site(
    folder: Path,
    nodes: Sequence[NodeSpec],
    queues: Mapping[str, int],
    *,
    planes: str | Sequence[str] = "idle,scheduling,quota",
    flavors: Sequence[str] = ("gpus",),
    levels: Sequence[str] = (),
    rules: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    config: str = "",
) -> AsyncIterator[Site]:
    """Start a cluster and an operator; `queues`: quota by team, each a namespace of its own.

    `planes`: of one process, or of each of several. `flavors`: their nodes have the label `gpu`
    with their name, where there are several. `levels`: of the flavors' topology, if they have one;
    nodes then have the label `gpu`. `rules`: what the queues may preempt. `config`: the operator's
    settings, as YAML.
    """
    arguments: list[str] = []
    if config:
        settings = folder / "operator.yaml"
        settings.write_text(config)
        arguments = ["--config", str(settings)]
    processes = (planes,) if isinstance(planes, str) else tuple(planes)
    scheduler = not any("scheduling" in each for each in processes)
    async with embedded_stage(
        nodes, folder, clock=LoopClock(), scheduler=scheduler, kueue=True
    ) as stage:
        connection = await load_connection(str(stage.kubeconfig))
        found = Site(stage, connect(connection, LoopClock(), field_manager="test"))
        stage.cluster.on_write = found.on_write
        found.operators += [
            _operator(stage, each, on_line or found.lines.append, arguments) for each in processes
        ]
        for operator in found.operators:
            await operator.start()
        try:
            await asyncio.sleep(2)
            for name, value in (("low", 100), ("high", 1000)):
                made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
                await found.create({**made, "metadata": {"name": name}, "value": value})
            flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
            if levels:
                spec: dict[str, Any] = {"levels": [{"nodeLabel": each} for each in levels]}
                made = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology"}
                await found.create({**made, "metadata": {"name": "racks"}, "spec": spec})
            for name in flavors:
                spec = {"nodeLabels": {"gpu": name}} if levels or len(flavors) > 1 else {}
                spec |= {"topologyName": "racks"} if levels else {}
                await found.create({**flavor, "metadata": {"name": name}, "spec": spec})
            for team, quota in queues.items():
                space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}}
                await found.create(space, *queue(team, quota, flavors, **(rules or {})))
            yield found
        finally:
            for operator in found.operators:
                await operator.stop()
            await found.client.close()


def _operator(
    stage: EmbeddedStage, planes: str, on_line: Callable[[str], None], config: Sequence[str]
) -> OperatorInProcess:
    return OperatorInProcess(
        stage.operator_kubeconfig,
        {
            "GPU_PREEMPTION_ENABLED": "true",
            "GPU_PREEMPTION_POLLING_INTERVAL": "5s",
            "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD": "5s",
            "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
            "GPU_PREEMPTION_METRICS_ENDPOINT": stage.metrics_endpoint,
        },
        arguments=[
            *("--controllers", planes, "--metrics-port", "0"),
            *(("--scheduler-name", "default-scheduler") if "scheduling" in planes else ()),
            *config,
        ],
        on_line=on_line,
        clock=LoopClock(),
    )


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
