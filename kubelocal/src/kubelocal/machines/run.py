"""All machines together: one feed, one informer, one worker for each machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from typing import Final, cast

from kubelocal.machines.budgets import DisruptionController
from kubelocal.machines.claims import ClaimsController, ReservationsController
from kubelocal.machines.endpoints import EndpointsController
from kubelocal.machines.events import EventLog, Recorder
from kubelocal.machines.evictions import EvictionRequests
from kubelocal.machines.garbage import GarbageCollector
from kubelocal.machines.informer import Informer
from kubelocal.machines.node.devices import DeviceDriver
from kubelocal.machines.node.exporter import Exporter
from kubelocal.machines.node.exposure import ExporterService
from kubelocal.machines.node.gpus import Gpus
from kubelocal.machines.node.heartbeats import Heartbeats
from kubelocal.machines.node.kubelet import Kubelet, KubeletTimes
from kubelocal.machines.node.nodes import NodeMachine, NodeSpec
from kubelocal.machines.node.podgarbage import PodGarbageCollector
from kubelocal.machines.node.taints import NodeLifecycle, TaintEviction
from kubelocal.machines.objects import FREQUENT, ChangeType, Objects
from kubelocal.machines.volumes import VolumeController
from kubelocal.machines.worker import Machine, Worker
from kubelocal.machines.workloads.children import ChildrenController
from kubelocal.machines.workloads.daemonsets import DaemonSetController
from kubelocal.machines.workloads.driver import Driver, Stage
from kubelocal.machines.workloads.jobs import JobController
from kubelocal.machines.workloads.podgroups import PodGroupProtection
from kubelocal.machines.workloads.rules import RULES
from kubelocal.machines.workloads.scheduling_groups import PodGroupMaker, Workloads
from kubelocal.server.clock import TimeSource
from kubeworld.units.clock import Clock

__all__ = ["IN_CONTROLLER_MANAGER", "Machines"]

IN_CONTROLLER_MANAGER: Final = (
    "jobs",
    "replicasets",
    "deployments",
    "statefulsets",
    "garbage",
    "node-lifecycle",
    "taint-eviction",
    "disruption",
    "pod-gc",
    "daemonsets",
    "cronjobs",
    "endpointslices",
    "claims",
    "reservations",
    "volumes",
)

_BATCH: Final = 50


class Machines:
    """The imitated cluster around a store.

    `start` returns when everything that exists has been seen, the nodes are there and the exporter
    answers; `stop` ends what it started; both once. `seed` decides generated names;
    `exporter_service` has the exporter found through a Service (`exposure`). `without` names
    machines that are not to run, because a real controller does their work: `IN_CONTROLLER_MANAGER`
    next to a kube-controller-manager. `more` makes further machines. No machine schedules pods:
    that is the scheduling plane's work.
    """

    def __init__(
        self,
        objects: Objects,
        clock: TimeSource,
        nodes: Sequence[NodeSpec],
        *,
        seed: int = 0,
        times: KubeletTimes | None = None,
        exporter_port: int = 0,
        exporter_service: bool = False,
        without: Collection[str] = (),
        more: Sequence[Callable[[Informer, Clock, EventLog], Machine]] = (),
    ) -> None:
        # Time is a whole number to everybody; the name of its unit is this package's own.
        clock = cast("Clock", clock)
        self._objects = objects
        self.informer = Informer(objects)
        self.gpus = Gpus(self.informer, clock)
        self.exporter = Exporter(self.gpus, port=exporter_port)
        self._events = EventLog(objects, clock)

        def recorder(component: str) -> Recorder:
            return Recorder(self._events, component)

        def generator(machine: str) -> random.Random:
            return random.Random(f"{seed}/{machine}")

        workloads = Workloads(self.informer)

        def stage(component: str, machine: str) -> Stage:
            return Stage(
                self.informer, clock, recorder(component), generator(machine), workloads.join
            )

        node_machine = NodeMachine(self.informer, clock, recorder("kubelet"), nodes)
        machines: list[Machine] = [
            node_machine,
            Heartbeats(self.informer, clock, node_machine.names()),
            Kubelet(self.informer, clock, recorder("kubelet"), times or KubeletTimes(), seed),
            JobController(stage("job-controller", "jobs")),
            *(Driver(rule, stage(f"{rule.kind.lower()}-controller", rule.name)) for rule in RULES),
            DaemonSetController(stage("daemonset-controller", "daemonsets")),
            ChildrenController(stage("children-controller", "children")),
            GarbageCollector(self.informer),
            NodeLifecycle(self.informer, clock),
            TaintEviction(self.informer, clock, recorder("taint-eviction-controller")),
            DisruptionController(self.informer, clock),
            PodGarbageCollector(self.informer, clock),
            EvictionRequests(self.informer, clock),
            EndpointsController(self.informer),
            PodGroupProtection(self.informer),
            PodGroupMaker(self.informer, workloads),
            ClaimsController(self.informer, generator("claims")),
            ReservationsController(self.informer),
            DeviceDriver(self.informer, recorder("device-driver")),
            VolumeController(self.informer),
        ]
        machines += [make(self.informer, clock, self._events) for make in more]
        starting: list[NodeMachine | ExporterService] = [node_machine]
        if exporter_service:
            service = ExporterService(self.informer, self.exporter)
            machines.append(service)
            starting.append(service)
        self._starting = [(machine.name, key) for machine in starting for key in machine.names()]
        known = [machine.name for machine in machines]
        unknown = sorted(set(without) - set(known))
        if unknown:
            raise ValueError(f"without: {', '.join(unknown)}; accepted: {', '.join(known)}")
        self._workers = {
            machine.name: Worker(machine, clock)
            for machine in machines
            if machine.name not in without
        }
        self.informer.listeners += [self.gpus.notice, workloads.notice]
        self.informer.listeners += [worker.notice for worker in self._workers.values()]
        self._synced = asyncio.Event()
        self._nodes = node_machine.complete if node_machine.name not in without else self._synced
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run in the background, from now until `stop`.

        Raises:
            OSError: the exporter's port is in use.
        """
        await self.exporter.start()
        self._running = asyncio.create_task(self.run(), name="machines")
        started = asyncio.create_task(self._started())
        try:
            await asyncio.wait({self._running, started}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if self._running.done():
            self._running.result()

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await self.exporter.close()

    async def _started(self) -> None:
        await self._synced.wait()
        await self._nodes.wait()

    async def run(self) -> None:
        """Work until cancelled. The exporter is started and stopped apart from this."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._events.run(), name="events")
            taken_in = 0
            async for change in self._objects.changes():
                if change.type is ChangeType.SYNCED:
                    for name, key in self._starting:
                        if name in self._workers:
                            self._workers[name].mark(key)
                    for worker in self._workers.values():
                        tasks.create_task(worker.run(), name=worker.machine.name)
                    self._synced.set()
                elif change.resource not in FREQUENT:
                    self.informer.apply(change)
                taken_in += 1
                if taken_in % _BATCH == 0:
                    await asyncio.sleep(0)  # a feed with a backlog never waits by itself
