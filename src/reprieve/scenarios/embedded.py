"""A stage in this process: embedded cluster, machines and exporter, and the client that sees it.

The runner and people use one user, the operator another whose rights can be changed. Everything is
stopped in the reverse order of its start, whatever happened.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reprieve.local.cluster import EmbeddedCluster
from reprieve.local.machines.embedded import EmbeddedObjects
from reprieve.local.machines.run import Machines
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.stage import Stage
from reprieve.scenarios.staging import OPERATOR_NAMESPACE, staged
from reprieve.units.clock import Clock, SystemClock

__all__ = [
    "OPERATOR_NAMESPACE",
    "OPERATOR_USER",
    "EmbeddedStage",
    "embedded_stage",
    "holds_cluster",
]

OPERATOR_USER: Final = "reprieve"


@dataclass(frozen=True, slots=True)
class EmbeddedStage:
    """A running embedded cluster and the stage on it."""

    stage: Stage
    cluster: EmbeddedCluster
    machines: Machines
    kubeconfig: Path
    operator_kubeconfig: Path
    metrics_endpoint: str


@asynccontextmanager
async def embedded_stage(
    nodes: Sequence[NodeSpec],
    directory: Path,
    *,
    clock: Clock | None = None,
    port: int = 0,
    data: Path | None = None,
    kubeconfig: Path | None = None,
    operator_arguments: Sequence[str] = (),
    on_operator_line: Callable[[str], None] | None = None,
) -> AsyncIterator[EmbeddedStage]:
    """Start everything but the operator, with the CRDs and the operator's namespace in place.

    `directory` takes the kubeconfig files, but people's where `kubeconfig` names another place;
    `port` 0 is any free one; `data` None keeps the cluster in memory.

    Raises:
        OSError: the port is taken, or a file cannot be written.
    """
    clock = clock or SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        cluster = EmbeddedCluster(clock=clock, port=port, data=data)
        await cluster.start()
        stack.push_async_callback(cluster.stop)
        kubeconfig = kubeconfig or directory / "kubeconfig"
        operator_kubeconfig = directory / "operator.kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        cluster.write_kubeconfig(operator_kubeconfig, user=OPERATOR_USER)
        stage, machines = await stack.enter_async_context(
            staged(
                kubeconfig,
                operator_kubeconfig,
                nodes,
                clock,
                store=EmbeddedObjects(cluster.api),
                rights=_UserRights(cluster),
                operator_arguments=operator_arguments,
                on_operator_line=on_operator_line,
            )
        )
        yield EmbeddedStage(
            stage, cluster, machines, kubeconfig, operator_kubeconfig, machines.exporter.url
        )


def holds_cluster(data: Path) -> bool:
    """Whether a folder has the objects of an embedded cluster from an earlier start."""
    return (data / "objects.sqlite").exists()


class _UserRights:
    """The rights of the operator's user on an embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    async def deny(self, verb: str, group: str, resource: str) -> None:
        self._cluster.deny(OPERATOR_USER, verb, group, resource)

    async def allow(self, verb: str, group: str, resource: str) -> None:
        self._cluster.allow(OPERATOR_USER, verb, group, resource)
