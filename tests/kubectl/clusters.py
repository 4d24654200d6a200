"""The clusters that the golden table is played on, one for each group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from reprieve.local.cluster import EmbeddedCluster
from reprieve.local.machines.embedded import EmbeddedObjects
from reprieve.local.machines.run import Machines
from reprieve.units.clock import SystemClock
from tests.kubectl.golden import Group

__all__ = ["embedded"]


@asynccontextmanager
async def embedded(group: Group, kubeconfig: Path) -> AsyncIterator[None]:
    """Run an embedded cluster, with machines where the group was recorded with controllers.

    Roles are enforced where they are asked about; everywhere else the administrator asks.
    """
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(EmbeddedCluster(rbac=group.name == "auth"))
        cluster.write_kubeconfig(kubeconfig, namespace=group.namespace)
        if group.plane == "full":
            machines = Machines(EmbeddedObjects(cluster.api), SystemClock(), [])
            await machines.start()
            stack.push_async_callback(machines.stop)
        yield
