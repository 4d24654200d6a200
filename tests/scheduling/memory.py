"""The whole scheduling plane in one process: an API server that is a dict, a clock turned by hand.

The plane runs as in `reprieve run`, with its watches, but decides in the loop's own thread, so that
a run depends on nothing but what the test does. Pods that are deleted stay until `end` takes them
away; deletion, binding and patches honour uid and resourceVersion as an API server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from kubeworld.units.clock import Clock, VirtualClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from kubeworld.writes.changes import bound, check, deleted, grace_of, patched, replaced
from kubeworld.writes.refusals import Refused
from reprieve.execution.accounts.disruptions import Disruptions
from reprieve.execution.accounts.harm_ledger import HarmLedger
from reprieve.execution.accounts.harm_refusals import HarmRefusals
from reprieve.execution.accounts.harm_store import HarmSite
from reprieve.execution.fence import Deposed, Fence, Tenure
from reprieve.kube.client import Client
from reprieve.kube.recording.events import EventRecorder
from reprieve.kube.resource import PODS
from reprieve.kube.transport import Request, Transport
from reprieve.planes.common.disruptions.harm_budgets import HarmBudgets
from reprieve.planes.common.disruptions.harm_statuses import HarmStatuses
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.plane import SchedulingPlane
from reprieve.settings.scheduling import scheduling_settings
from reprieve.telemetry.metrics import Metrics
from reprieve.telemetry.scheduling import SchedulingMetrics
from tests.kube.fakes import FakeAnswer, list_body, refusal
from tests.scheduling.site import NAMESPACE, POD_GROUPS, Object

LEASE = 15 * SECOND
PRIORITIES = {"low": 1000, "middle": 10_000, "high": 100_000}
_KINDS = {
    "Pod": "pods",
    "PodGroup": "podgroups.scheduling.k8s.io",
    "CompositePodGroup": "compositepodgroups.scheduling.k8s.io",
}
_OPERATOR_NAMESPACE = "reprieve-system"
_IDLE_TURNS = 3

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """What a request is about; `kind` is group and plural."""

    kind: str
    namespace: str
    name: str
    part: str


def target(path: str) -> Target:
    """Take a path apart."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, part = (*rest, "", "")[:3]
    return Target(f"{plural}.{group}".rstrip("."), namespace, name, part)


class MemoryApi:
    """Objects by kind and name, and the watches on them.

    `before` and `after` see each write before and after it is stored; an answer of theirs, or what
    they raise, takes the place of the real one. `deleted` counts deletions of pods by name. While
    it is `away` every read is answered with a 503. `served`: what discovery names; `absent`: kinds
    that are not there.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.objects: dict[str, dict[tuple[str, str], Object]] = defaultdict(dict)
        self.deleted: Counter[str] = Counter()
        self.writes: list[tuple[str, Target]] = []
        self.away = False
        self.served = [PODS, POD_GROUPS]  # what discovery names
        self.absent: frozenset[str] = frozenset()
        self.before: Callable[[str, Target], FakeAnswer | None] = lambda verb, where: None
        self.after: Callable[[str, Target], FakeAnswer | None] = lambda verb, where: None
        self._version = itertools.count(100)
        self._last = 99
        self._watches: dict[str, list[asyncio.Queue[Any]]] = defaultdict(list)
        self._told: dict[str, list[tuple[int, bytes]]] = defaultdict(list)  # by version

    # The wire.

    def answer(self, request: Request) -> FakeAnswer:
        if request.path.count("/") == 3 and request.path.startswith("/apis/"):
            return self._discovery(request.path.removeprefix("/apis/"))
        if request.path == "/api/v1":
            return self._discovery("v1")
        where = target(request.path)
        if where.kind in self.absent:
            return refusal(404, "NotFound")
        if request.query.get("watch"):
            queue: asyncio.Queue[Any] = asyncio.Queue()
            self._watches[where.kind].append(queue)
            since = int(request.query["resourceVersion"])
            for version, line in self._told[where.kind]:
                if version > since:
                    queue.put_nowait(line)
            return FakeAnswer(lines=queue)
        if request.method == "GET":
            away = refusal(503, "ServiceUnavailable", "away")
            return away if self.away else self._read(where)
        verb = "bind" if where.part == "binding" else request.method.lower()
        self.writes.append((verb, where))
        answer = self.before(verb, where)
        if answer is not None:
            return answer
        stored = self._write(verb, where, json.loads(request.body or b"{}"))
        return self.after(verb, where) or stored

    def _discovery(self, version: str) -> FakeAnswer:
        found = [
            {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced}
            for each in self.served
            if each.api_version == version
        ]
        return FakeAnswer(body={"resources": found}) if found else refusal(404, "NotFound")

    def _read(self, where: Target) -> FakeAnswer:
        held = self.objects[where.kind]
        if not where.name:
            inside = (each for (space, _), each in held.items() if where.namespace in ("", space))
            return FakeAnswer(body=list_body(inside, self._last))
        found = held.get((where.namespace, where.name))
        return refusal(404, "NotFound") if found is None else FakeAnswer(body=found)

    def _write(self, verb: str, where: Target, body: Object) -> FakeAnswer:
        held = self.objects[where.kind]
        if verb == "post":
            key = (where.namespace, body["metadata"]["name"])
            if key in held:
                return refusal(409, "AlreadyExists")
            return FakeAnswer(201, self.put(where.kind, body))
        key = (where.namespace, where.name)
        old = held.get(key)
        if old is None:
            return refusal(404, "NotFound")
        try:
            if verb == "delete":
                check(old, body.get("preconditions") or {})
                return self._delete(where, old)
            new = self._changed(verb, old, body)
        except Refused as found:
            return refusal(found.code, found.reason, found.message)
        return FakeAnswer(201 if verb == "bind" else 200, self.put(where.kind, new))

    def _changed(self, verb: str, old: Object, body: Object) -> Object:
        """Return an object once it was written; status and the rest go together."""
        if verb == "bind":
            return bound(old, body, self.clock.wall())
        if verb == "put":
            # Of an object with a status it is that alone that anybody puts.
            return replaced(old, body, "status" if "status" in body else "", with_status=True)
        return patched(old, body, strategic=True, with_status=False)

    def _delete(self, where: Target, old: Object) -> FakeAnswer:
        if where.kind == "pods":
            self.deleted[where.name] += 1
        seconds = grace_of(old) if where.kind == "pods" else 0
        if not seconds:
            self.remove(where.kind, where.namespace, where.name)
            return FakeAnswer(body={})
        new = deleted(old, self.clock.wall(), seconds=seconds)
        return FakeAnswer(body=self.put(where.kind, new))

    # Changes.

    def put(self, kind: str, obj: Object) -> Object:
        """Store an object under the next version."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        self._last = next(self._version)
        stored = {
            **obj,
            "metadata": {
                "creationTimestamp": format_instant(self.clock.wall()),
                "uid": f"{key[1]}-{self._last}",
                "generation": 1,
                **metadata,
                "resourceVersion": str(self._last),
            },
        }
        what = "MODIFIED" if key in self.objects[kind] else "ADDED"
        self.objects[kind][key] = stored
        self._tell(kind, what, stored)
        return stored

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Take an object away; one that is gone already is fine."""
        gone = self.objects[kind].pop((namespace, name), None)
        if gone is not None:
            self._last = next(self._version)
            metadata = {**gone["metadata"], "resourceVersion": str(self._last)}
            self._tell(kind, "DELETED", {**gone, "metadata": metadata})

    def _tell(self, kind: str, what: str, obj: Object) -> None:
        line = json.dumps({"type": what, "object": obj}).encode()
        self._told[kind].append((self._last, line))
        for queue in self._watches[kind]:
            queue.put_nowait(line)


class Wire:
    """What a plane has of the API server; once it is `cut` nothing comes back and nothing goes.

    `lag` says how long each request, each answer and each event of a watch takes, in nanoseconds.
    """

    def __init__(self, api: MemoryApi, lag: Callable[[], int] = lambda: 0) -> None:
        self._api = api
        self._lag = lag
        self.cut = False

    async def send(self, request: Request, stream: bool, rejected: bool) -> FakeAnswer:
        await self._late()
        if not self.cut:
            with contextlib.suppress(Killed):
                answer = self._api.answer(request)
                await self._late()
                if request.query.get("watch"):
                    return _Late(answer, self._late, self._api.clock)
                return answer
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    async def _late(self) -> None:
        lag = self._lag()
        if lag:
            await self._api.clock.sleep(lag)

    async def close(self) -> None:
        pass


class _Late(FakeAnswer):
    """An answer whose lines take their time; those of one moment arrive together."""

    def __init__(
        self, answer: FakeAnswer, late: Callable[[], Awaitable[None]], clock: Clock
    ) -> None:
        super().__init__(answer.status, headers=answer.headers)
        self._answer, self._late, self._clock = answer, late, clock

    async def lines(self) -> AsyncGenerator[bytes]:
        last = -1
        async for line in self._answer.lines():
            if self._clock.monotonic() != last:
                await self._late()
                last = self._clock.monotonic()
            yield line


class Killed(Exception):
    """The plane whose write it was has been killed."""


@dataclass
class Held:
    """A lease that is always held."""

    clock: Clock
    identity: str = "operator-1"
    epoch: int = 1

    @property
    def held_until(self) -> Nanos:
        return Nanos(self.clock.monotonic() + LEASE)


class Inline:
    """Decides at once, in the loop's own thread."""

    async def run(self, decide: Callable[..., Any], *args: Any) -> Any:
        await asyncio.sleep(0)
        return decide(*args)

    def close(self) -> None:
        pass


class _NoThreads(ThreadPoolExecutor):
    """Does what is submitted at once."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@dataclass
class Memory:
    """The API server, the clock and the planes that run."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    planes: list[SchedulingPlane] = field(default_factory=list)
    dead: bool = False  # whether a plane was killed
    _running: list[tuple[Wire, list[asyncio.Task[Any]]]] = field(default_factory=list)
    api: MemoryApi = field(init=False)

    def __post_init__(self) -> None:
        self.api = MemoryApi(self.clock)
        self.api.put("namespaces", {"metadata": {"name": NAMESPACE}})

    def start(
        self,
        *names: str,
        tenure: Tenure | None = None,
        section: Mapping[str, Any] | None = None,
        solver: Any = None,
        lag: Callable[[], int] = lambda: 0,
        tells: bool = False,
        budgets: bool = False,
        clock: Clock | None = None,
        **context: Any,
    ) -> SchedulingPlane:
        """Start a plane for these scheduler names.

        `tells`: it writes Disruptions; `budgets`: it reads HarmBudgets; `clock`: its own.
        """
        wanted = {
            "configuration": {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [{"schedulerName": name} for name in names or ("default-scheduler",)],
            }
        }
        wire = Wire(self.api, lag)
        client = Client(Transport(wire, self.clock, jitter=Random(7)))
        identity = f"operator-{len(self.planes)}"
        metrics = Metrics()
        events = EventRecorder(client, self.clock, instance=identity)
        held = Held(self.clock, identity, epoch=len(self.planes) + 1)
        fence = Fence(tenure or held, self.clock, LEASE)
        told = Disruptions(client, _OPERATOR_NAMESPACE, fence, self.clock, metrics)
        plane = SchedulingPlane(
            SchedulingContext(
                full_client=client,
                clock=clock or self.clock,
                fence=fence,
                events=events,
                metrics=metrics,
                scheduler_metrics=SchedulingMetrics(metrics.registry),
                settings=scheduling_settings({**wanted, **(section or {})}),
                disruptions=told if tells else None,
                **context,
            ),
            _OPERATOR_NAMESPACE,
        )
        vars(plane.decisions.loop)["solver"] = solver or Inline()
        self.planes.append(plane)
        tasks = [asyncio.create_task(events.run())]
        if not budgets:
            tasks.append(asyncio.create_task(plane.run()))
        if tells:
            tasks.append(asyncio.create_task(told.run()))
        if budgets:
            governor = plane.context.governor
            followed = HarmBudgets(governor, client, plane.context.mirror, self.clock)
            site = HarmSite(client, _OPERATOR_NAMESPACE, fence, self.clock, governor)
            ledger, refusals = HarmLedger(site), HarmRefusals(site)
            statuses = HarmStatuses(followed, governor, client, fence, self.clock, metrics)
            governor.harm.known = lambda: followed.known and ledger.loaded and refusals.loaded
            told.returns.returned = ledger.returned
            tasks += [
                asyncio.create_task(plane.run()),
                asyncio.create_task(followed.run()),
                asyncio.create_task(ledger.run()),
                asyncio.create_task(refusals.run()),
                asyncio.create_task(statuses.run()),
            ]
        self._running.append((wire, tasks))
        return plane

    def kill(self, number: int = -1) -> None:
        """End a plane as SIGKILL does; called from `before` or `after` it takes that call along.

        Raises:
            Killed: always, for whoever made the call.
        """
        wire, tasks = self._running[number]
        wire.cut = True
        for task in tasks:
            task.cancel()
        tasks.clear()
        self.dead = True
        raise Killed

    async def stop(self) -> None:
        """End all planes."""
        tasks = [task for _, running in self._running for task in running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()

    # Time.

    async def settle(self) -> None:
        """Let everybody go on who need not wait for time."""
        loop: Any = asyncio.get_running_loop()
        quiet = 0
        while quiet < _IDLE_TURNS:
            await asyncio.sleep(0)
            quiet = 0 if loop._ready else quiet + 1
        for _, tasks in self._running:
            for task in tasks:
                if task.done():
                    _raise(task)

    async def pass_time(self, nanoseconds: int) -> None:
        """Let time pass from deadline to deadline, everybody settled in between."""
        end = self.clock.monotonic() + nanoseconds
        await self.settle()
        while self.clock._sleepers and self.clock._sleepers[0][0] <= end:
            due = self.clock._sleepers[0][0]
            await self.clock.advance(max(0, due - self.clock.monotonic()), settle=1)
            await self.settle()
        await self.clock.advance(end - self.clock.monotonic(), settle=1)
        await self.settle()

    async def until(self, holds: Callable[[], object], most: int = 120 * SECOND) -> None:
        """Let time pass in steps until it holds, and fail when it does not in time."""
        end = self.clock.monotonic() + most
        await self.settle()
        while not holds():
            assert self.clock.monotonic() < end, f"never held: {self.told()}"
            await self.pass_time(SECOND // 10)

    # Objects.

    def create(self, *objects: Object, namespace: str = NAMESPACE) -> None:
        """Create pods and groups, with the priority that their class has."""
        for obj in objects:
            spec = dict(obj["spec"])
            if spec.get("priorityClassName"):
                spec["priority"] = PRIORITIES[spec["priorityClassName"]]
            status = {"phase": "Pending"} if obj["kind"] == "Pod" else {}
            kind = _KINDS[obj["kind"]]
            metadata = {**obj["metadata"], "namespace": namespace}
            self.api.put(kind, {**obj, "metadata": metadata, "spec": spec, "status": status})

    def nodes(self, cpus: Iterable[int], **labels: str) -> None:
        """Create the nodes node-0, node-1 and so on."""
        for number, cpu in enumerate(cpus):
            name = f"node-{number}"
            amounts = {"cpu": str(cpu), "memory": "256Gi", "pods": "110"}
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
            self.api.put(
                "nodes",
                {
                    "metadata": metadata,
                    "spec": {},
                    "status": {"allocatable": amounts, "capacity": amounts},
                },
            )

    def running(self, obj: Object, node: str) -> None:
        """Create a pod that runs on a node already."""
        self.create(obj)
        found = self.pod(obj["metadata"]["name"])
        status = {"phase": "Running", "startTime": format_instant(self.clock.wall())}
        spec = {**found["spec"], "nodeName": node}
        self.api.put("pods", {**found, "spec": spec, "status": status})

    def end(self, *names: str) -> None:
        """These pods are gone."""
        for name in names:
            self.api.remove("pods", NAMESPACE, name)

    def end_all(self) -> None:
        """All pods that are being deleted are gone."""
        self.end(*sorted(self.victims()))

    @property
    def pods(self) -> dict[str, Object]:
        return {name: pod for (_, name), pod in self.api.objects["pods"].items()}

    def pod(self, name: str) -> Object:
        return self.api.objects["pods"][NAMESPACE, name]

    def group(self, name: str) -> Object:
        return self.api.objects["podgroups.scheduling.k8s.io"][NAMESPACE, name]

    def composite(self, name: str) -> Object:
        return self.api.objects["compositepodgroups.scheduling.k8s.io"][NAMESPACE, name]

    def placed(self) -> dict[str, str]:
        return {n: p["spec"]["nodeName"] for n, p in self.pods.items() if p["spec"].get("nodeName")}

    def nominated(self) -> dict[str, str]:
        return {
            name: pod["status"]["nominatedNodeName"]
            for name, pod in self.pods.items()
            if pod["status"].get("nominatedNodeName")
        }

    def victims(self) -> set[str]:
        return {n for n, p in self.pods.items() if p["metadata"].get("deletionTimestamp")}

    def events(self, reason: str) -> list[Object]:
        found = self.api.objects["events.events.k8s.io"] or self.api.objects["events"]
        return [event for event in found.values() if event["reason"] == reason]

    def intents(self) -> list[Object]:
        return list(self.api.objects["preemptions.reprieve.dev"].values())

    def parts(self) -> dict[str, Object]:
        return {
            name: part
            for (_, name), part in self.api.objects["preemptionparts.reprieve.dev"].items()
        }

    def planned(self) -> set[str]:
        """Return the names of all who are victims in a committed plan."""
        parts, found = self.parts(), set()
        for intent in self.intents():
            spec = intent["spec"]
            found |= {victim["root"]["name"] for victim in spec["victims"]}
            for name in spec.get("parts", ()):
                lines = parts[name]["spec"].get("victims", "").splitlines()
                found |= {json.loads(line)[0] for line in lines}
        return found

    def condition(self, obj: Object, type: str) -> tuple[str, str, str]:
        """Return status, reason and message of a condition, empty without it."""
        for each in obj.get("status", {}).get("conditions") or ():
            if each["type"] == type:
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def metric(self, name: str, plane: int = 0, **labels: str) -> float:
        """Return a metric's value, 0 before it was first counted."""
        registry = self.planes[plane].context.metrics.registry
        return registry.get_sample_value(name, labels) or 0.0

    def told(self) -> str:
        """Say what there is, for failures."""
        lines = [
            f"{name} on {pod['spec'].get('nodeName')} nominated "
            f"{pod['status'].get('nominatedNodeName')} "
            f"{pod['metadata'].get('deletionTimestamp') or ''} {pod['status'].get('conditions')}"
            for name, pod in self.pods.items()
        ]
        return "\n".join(lines)


def _raise(task: asyncio.Task[Any]) -> None:
    """Raise what ended a plane; being deposed ends it rightly."""
    try:
        task.result()
    except* Deposed:
        pass


@asynccontextmanager
async def memory() -> AsyncIterator[Memory]:
    """Nothing runs yet; everything is stopped afterwards."""
    found = Memory()
    asyncio.get_running_loop().set_default_executor(_NoThreads())
    try:
        yield found
    finally:
        await found.stop()


__all__ = ["LEASE", "Held", "Killed", "Memory", "MemoryApi", "Target", "Wire", "memory", "target"]
