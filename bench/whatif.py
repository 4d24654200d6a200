"""`python -m bench.whatif [--quick] [CASE...]`: a plan and an explanation of a large cluster.

5,000 nodes of eight GPUs and 50,000 running pods of 2 kB of JSON, ten to a node, five priorities;
and, as `mixed`, as many of 200 templates, with other requests, labels, tolerations, node selectors
and init containers, on nodes of four shapes. A wire in this process answers the lists in pages of
500 from bytes that were made before, so that reading costs what taking them apart costs. Cases,
best of five by CPU time, with the CPU time of the processes in which the cluster is asked again;
`raised_mib` is by how much one of the five raised the resident size of this process at its largest:

* `lists`: until there is a snapshot
* `rows`: that, and every pod decoded and taken into the row that is decided on, all of them held at
  once. The same is done once more, page by page, within each of the cases below
* `plan`: a pod that fits nowhere without victims; the whole answer, with who starts with nobody
  being preempted and how narrowly it starts. Checked: it starts, on one node, and those that are
  preempted are of lower priority and on that node
* `plan-waits`: a pod of the lowest priority; with what was tried, and the run on the cluster
  without work. Checked: it waits
* `explain`: `reprieve explain` of such a pod that is in the cluster. Checked: it waits for room

Words name the cases to run, such as `plan` or `mixed-explain`; without any, all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import msgspec

from bench.measuring import print_line
from kubeworld.units.clock import SystemClock
from reprieve.answers.asking import answer
from reprieve.answers.decided import Decided
from reprieve.answers.diagnosing import asked_of_planes
from reprieve.answers.document import Answer as Explanation
from reprieve.answers.document import State
from reprieve.answers.kinds import asked_of
from reprieve.answers.sources import SnapshotSource
from reprieve.answers.unit import Unit
from reprieve.api.scheduling import PodObject
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.plan import Plane
from reprieve.intake.cluster.pod_classes import PodClasses
from reprieve.intake.cluster.pods import pod_row
from reprieve.kube.client import Client
from reprieve.kube.decoding import decode_object
from reprieve.kube.resource import PODS
from reprieve.kube.transport import Request, Transport
from reprieve.operator.collector import relax_collector
from reprieve.whatif.copy.lists import gather
from reprieve.whatif.copy.wire import Body
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.questions.answer import Answer, Verdict
from reprieve.whatif.questions.beside import affordable
from reprieve.whatif.questions.planning import planned
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.whatif.submitting.submission import Submitted

_PAGE = 500
_PODS_PER_NODE = 10
_NAME = "wanted"
_CASES: Final = ("lists", "rows", "plan", "plan-waits", "explain")
_TEMPLATES: Final = 200
#: Milli cpus and GPUs of the nodes of a mixed cluster.
_SHAPES: Final = ((64_000, 8), (96_000, 4), (128_000, 8), (48_000, 0))
_WHOSE: Final = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)

T = TypeVar("T")


class _Lists:
    """A wire that answers discovery and lists."""

    def __init__(self, deciders: Deciders, held: Held) -> None:
        self._answers: dict[str, list[bytes]] = {}
        groups: dict[str, dict[str, str]] = {}
        for each in deciders.kinds():
            path = f"/apis/{each.api_version}" if each.group else f"/api/{each.version}"
            entry = {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced}
            groups.setdefault(path, {})[each.plural] = msgspec.json.encode(entry).decode()
            self._answers[each.path()] = _pages()
        for path, entries in groups.items():
            self._answers[path] = [f'{{"resources":[{",".join(entries.values())}]}}'.encode()]
        versions = [path.removeprefix("/apis/") for path in groups if path != "/api/v1"]
        named = [{"name": v, "versions": [{"groupVersion": v}]} for v in versions]
        self._answers["/apis"] = [msgspec.json.encode({"groups": named})]
        self._answers["/api/v1/nodes"] = _pages(held.nodes, held.node)
        self._answers["/api/v1/pods"] = _pages(held.nodes * _PODS_PER_NODE, held.pod)

    async def send(self, request: Request, stream: bool, rejected: bool) -> Body:
        page = int(request.query.get("continue", "0"))
        return Body(self._answers[request.path][page])

    async def close(self) -> None:
        pass


def _pages(count: int = 0, made: Callable[[int], Any] = str) -> list[bytes]:
    found = []
    for number, start in enumerate(range(0, max(1, count), _PAGE)):
        metadata = {"resourceVersion": "1000"}
        if start + _PAGE < count:
            metadata["continue"] = str(number + 1)
        items = [made(each) for each in range(start, min(start + _PAGE, count))]
        page = {"metadata": metadata, "items": items}
        found.append(msgspec.json.encode(page))
    return found


@dataclass(frozen=True, slots=True)
class Held:
    """What a cluster holds: all of one template and shape, or mixed."""

    nodes: int
    mixed: bool = False

    def node_milli(self, node: int) -> int:
        """Return the cpu of a node."""
        return _SHAPES[node % len(_SHAPES)][0] if self.mixed else 64_000

    def pod_milli(self, pod: int) -> int:
        """Return what a pod requests of it: ten of them leave no room for forty cpus."""
        share = 80 + pod % _TEMPLATES % 17 if self.mixed else 93.75
        return int(self.node_milli(pod % self.nodes) * share) // 1_000

    def node(self, number: int) -> dict[str, Any]:
        """Return a node as the API server lists it."""
        name, (_, gpus) = f"node-{number}", _SHAPES[number % len(_SHAPES)]
        amounts = {
            "cpu": f"{self.node_milli(number)}m",
            "memory": "512Gi",
            "nvidia.com/gpu": str(gpus if self.mixed else 8),
            "pods": "110",
        }
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z-{number % 3}"}
        metadata = {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}
        status = {"allocatable": amounts, "capacity": amounts}
        return {"metadata": metadata, "spec": {}, "status": status}

    def pod(self, number: int) -> dict[str, Any]:
        """Return a pod as the API server lists it."""
        name, job = f"pod-{number}", f"job-{number // 8}"
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job}
        spec = {
            "nodeName": f"node-{number % self.nodes}",
            "schedulerName": "reprieve-scheduler",
            "priority": number % 5 * 100,
            "containers": [self._container(number)],
        }
        labels = {"job-name": job}
        if self.mixed:
            labels |= _made_of_template(spec, number % _TEMPLATES)
        said = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        return {
            "metadata": {
                "name": name,
                "namespace": f"team-{number % 40}",
                "uid": name,
                "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": labels,
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": spec,
            "status": {
                "phase": "Running",
                "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": type, "status": "True"} for type in said],
            },
        }

    def _container(self, pod: int) -> dict[str, Any]:
        amounts = {"cpu": f"{self.pod_milli(pod)}m", "memory": "32Gi"}
        environment = [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(16)]
        return {
            "name": "main",
            "image": f"registry.example/app:{pod % _TEMPLATES if self.mixed else 1}",
            "env": environment,
            "resources": {"requests": amounts, "limits": amounts},
        }


def _made_of_template(spec: dict[str, Any], template: int) -> dict[str, str]:
    """Give a pod's spec what its template says, and return the labels of that."""
    if template % 2:
        spec["tolerations"] = [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    if template % 3 == 0:
        spec["nodeSelector"] = {"topology.kubernetes.io/zone": f"z-{template % 3}"}
    if template % 5 == 0:
        spec["initContainers"] = [{"name": "first", "image": "registry.example/first:1"}]
    if template % 7 == 0:
        spec["terminationGracePeriodSeconds"] = 30 + template
    return {"app": f"app-{template}", "tier": f"tier-{template % 4}"}


def _wanted(priority: int) -> Submitted:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "40"}}}
    spec = {
        "schedulerName": "reprieve-scheduler",
        "priority": priority,
        "containers": [container],
    }
    metadata = {"name": _NAME, "namespace": "team-0"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return Submitted(PODS, body)


def _check(answer: Answer, held: Held) -> None:
    assert answer.verdict is Verdict.STARTS_WITH_VICTIMS, answer.message
    (placed,) = answer.placement
    where = int(placed.node.removeprefix("node-"))
    numbers = [int(each.name.removeprefix("pod-")) for each in answer.victims]
    assert numbers and all(number % held.nodes == where for number in numbers), numbers
    there = range(where, held.nodes * _PODS_PER_NODE, held.nodes)
    free = held.node_milli(where) - sum(map(held.pod_milli, there))
    given = [held.pod_milli(number) for number in numbers]
    # All of them are needed.
    assert free + sum(given) >= 40_000 > free + sum(given) - min(given), numbers


def _processor_time() -> float:
    """Return seconds of this process and of those that it started and that have ended."""
    own, others = (resource.getrusage(whose) for whose in _WHOSE)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _best(case: str, runs: int, measured: Callable[[], T], check: Callable[[T], None]) -> T:
    """Print the least CPU time of so many runs; return the last result."""
    best: tuple[float, float] | None = None
    raised = 0.0
    for _ in range(runs):
        gc.collect()  # what the former run left is not this one's
        _forget_peak()
        before = _resident_mib("VmRSS")
        start, wall = _processor_time(), time.perf_counter()
        result = measured()
        figures = _processor_time() - start, time.perf_counter() - wall
        raised = max(raised, round(_resident_mib("VmHWM") - before, 1))
        check(result)
        best = figures if best is None else min(best, figures)
    assert best is not None
    cpu, wall = (round(each * 1e3, 1) for each in best)
    print_line("whatif", case, cpu_ms=cpu, wall_ms=wall, raised_mib=raised)
    return result


def _forget_peak() -> None:
    """Have the kernel count the largest resident size from now on, where it does that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _resident_mib(field: str) -> float:
    """Return what the kernel says of this process, 0 where it does not."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def _check_rows(found: list[PodRow], held: Held) -> None:
    assert len({row.uid for row in found}) == held.nodes * _PODS_PER_NODE, len(found)


def _check_waits(answer: Answer) -> None:
    (outcome,) = answer.outcomes
    assert answer.verdict is Verdict.WAITS and outcome.diagnosis is not None, answer.message


def _explained(snapshot: Snapshot, deciders: Deciders) -> Explanation:
    """Return what `reprieve explain` tells of a pod, by the same steps."""

    async def diagnose(unit: Unit, plane: Plane) -> Decided | None:
        since = time.process_time()
        run = settled(snapshot, deciders)
        asking = affordable(time.process_time() - since)
        return await asked_of_planes(unit, run, plane, deciders, asking)

    source, asked = SnapshotSource(snapshot), asked_of(f"pod/{_NAME}")
    found = answer(source, asked, "team-0", operator_namespace="reprieve-system", diagnose=diagnose)
    return asyncio.run(found)


def _check_explained(found: Explanation) -> None:
    assert found.state is State.WAITS and found.waiting is not None, found.verdict
    assert found.waiting.reason == "Full", found.waiting


def _with_waiting(snapshot: Snapshot) -> Snapshot:
    """Return the cluster with the pod that waits in it."""
    pod = _wanted(0).object
    status = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    metadata = {
        **pod["metadata"],
        "uid": _NAME,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    pods = snapshot.kinds["", "pods"]
    raw = msgspec.json.encode({**pod, "metadata": metadata, "status": status})
    objects = {**pods.objects, ("team-0", _NAME): raw}
    return replace(snapshot, kinds={**snapshot.kinds, ("", "pods"): replace(pods, objects=objects)})


def main() -> None:
    relax_collector()
    words = sys.argv[1:]
    nodes, runs = (50, 1) if "--quick" in words else (5_000, 5)
    wanted = [word for word in words if not word.startswith("-")]
    for held in (Held(nodes), Held(nodes, mixed=True)):
        _measure(held, runs, lambda case: not wanted or case in wanted)


def _measure(held: Held, runs: int, asked: Callable[[str], bool]) -> None:
    """Print the figures of the cases of one cluster that are asked for."""
    size = f"{held.nodes}-nodes-{held.nodes * _PODS_PER_NODE}-pods-"
    kind = "mixed-" if held.mixed else ""
    if not any(asked(kind + case) for case in _CASES):
        return
    deciders = deciders_of("scheduling", (), {})
    client = Client(Transport(_Lists(deciders, held), SystemClock()))

    def lists() -> Snapshot:
        return asyncio.run(gather(client, deciders.kinds(), SystemClock()))

    def rows() -> list[PodRow]:
        classes = PodClasses()
        pods = lists().kinds["", "pods"].objects.values()
        return [pod_row(decode_object(each, PodObject), classes) for each in pods]

    def plan(priority: int) -> Answer:
        return asyncio.run(planned(None, snapshot, deciders, [_wanted(priority)]))

    snapshot = lists()
    waiting = _with_waiting(snapshot)
    high = Random().randint(1000, 10_000)
    if asked(f"{kind}lists"):
        _best(f"{size}{kind}lists", runs, lists, lambda found: None)
    if asked(f"{kind}rows"):
        _best(f"{size}{kind}rows", runs, rows, lambda found: _check_rows(found, held))
    if asked(f"{kind}plan"):
        _best(f"{size}{kind}plan", runs, lambda: plan(high), lambda found: _check(found, held))
    if asked(f"{kind}plan-waits"):
        _best(f"{size}{kind}plan-waits", runs, lambda: plan(0), _check_waits)
    if asked(f"{kind}explain"):
        _best(
            f"{size}{kind}explain",
            runs,
            lambda: _explained(waiting, deciders),
            _check_explained,
        )


if __name__ == "__main__":
    main()
