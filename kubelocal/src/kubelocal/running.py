"""A cluster that runs: server, machines, a scheduler and a kubeconfig, in one context manager.

`running` is for code that has an event loop, `running_in_thread` for code that has none, such as
plain tests: the cluster then lives on a loop of its own in another thread, where the real kubectl
and any client reach it over HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubelocal.cluster import EmbeddedCluster
from kubelocal.machines.embedded import EmbeddedObjects
from kubelocal.machines.node.nodes import NodeSpec
from kubelocal.machines.run import Machines
from kubelocal.machines.scheduler import with_scheduler
from kubeworld.units.clock import SystemClock

__all__ = ["Running", "Settings", "running", "running_in_thread"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What is started. The fields below `scheduler` are those of `EmbeddedCluster`.

    `nodes` machines with `gpus` of the resource `gpu_resource` each; `scheduler` binds pods to
    them, without it that is left to the scheduler under test. Without `machines` there is the API
    server alone, as envtest has it.
    """

    nodes: int = 1
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    machines: bool = True
    scheduler: bool = True
    port: int = 0
    data: Path | None = None
    rbac: bool = False
    tls: bool = False
    feature_gates: Mapping[str, bool] | None = None
    hosts: Collection[str] = ()
    faults: Mapping[str, Any] | None = None

    def node_specs(self) -> list[NodeSpec]:
        """Return the nodes, `node-0` and so on."""
        room = {self.gpu_resource: self.gpus} if self.gpus else {}
        return [NodeSpec.of(f"node-{number}", room) for number in range(self.nodes)]


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster that answers. `metrics_url`: where its imitated GPU exporter answers, if any."""

    cluster: EmbeddedCluster
    url: str
    kubeconfig: Path
    metrics_url: str | None


@asynccontextmanager
async def running(
    settings: Settings | None = None, *, kubeconfig: Path | None = None
) -> AsyncIterator[Running]:
    """Start everything, and stop it in the reverse order of its start.

    The kubeconfig is written to a folder that is removed at the end, unless a path is given.

    Raises:
        OSError: the port is in use, or a file cannot be written.
        UsageError: the data folder is in use, or a feature gate is unknown.
    """
    settings = settings or Settings()
    async with contextlib.AsyncExitStack() as stack:
        if kubeconfig is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kubelocal-"))
            kubeconfig = Path(folder) / "kubeconfig"
        cluster = await stack.enter_async_context(
            EmbeddedCluster(
                port=settings.port,
                data=settings.data,
                rbac=settings.rbac,
                tls=settings.tls,
                feature_gates=settings.feature_gates,
                hosts=settings.hosts,
            )
        )
        cluster.write_kubeconfig(kubeconfig)
        metrics_url = None
        if settings.machines:
            machines = Machines(
                EmbeddedObjects(cluster.api),
                SystemClock(),
                settings.node_specs(),
                more=[with_scheduler] if settings.scheduler else (),
            )
            await machines.start()
            stack.push_async_callback(machines.stop)
            metrics_url = machines.exporter.url
        if settings.faults is not None:
            cluster.faults.configure(**settings.faults)
        yield Running(cluster, cluster.url, kubeconfig, metrics_url)


@contextmanager
def running_in_thread(settings: Settings | None = None) -> Iterator[Running]:
    """Start everything on an event loop in a thread; what it raises, this raises.

    Of the `cluster` in what is yielded, call only what does not touch the store: its switches,
    counters and `token`.
    """
    started: Future[Running] = Future()
    over = threading.Event()

    async def serve() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        async with running(settings) as cluster:
            waiting = loop.run_in_executor(None, over.wait)
            waiting.add_done_callback(lambda _: ended.set())
            started.set_result(cluster)
            await ended.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="kubelocal", daemon=True)
    thread.start()
    try:
        yield started.result()
    finally:
        over.set()
        thread.join()
