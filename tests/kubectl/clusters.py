"""The clusters that the golden table is played on, one for each group."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from kubelocal.cluster import EmbeddedCluster
from kubelocal.machines.embedded import EmbeddedObjects
from kubelocal.machines.node.kubelet import KubeletTimes
from kubelocal.machines.run import Machines
from kubeworld.units.clock import SystemClock
from reprieve.api.crds import all_crds
from reprieve.scenarios import with_parent
from tests.integration.control_plane import ADMINISTRATOR, ControlPlane
from tests.kubectl.golden import Group
from tests.kubectl.play import Cluster

__all__ = ["embedded", "on"]

_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def on(plane: ControlPlane) -> Cluster:
    """Return what gives each group the same running control plane."""

    @asynccontextmanager
    async def cluster(group: Group, kubeconfig: Path) -> AsyncIterator[None]:
        _write_kubeconfig(plane, kubeconfig, group.namespace)
        yield

    return cluster


def _write_kubeconfig(plane: ControlPlane, path: Path, namespace: str) -> None:
    plane.write_kubeconfig(path, ADMINISTRATOR)
    config: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    config["contexts"][0]["context"]["namespace"] = namespace
    path.write_text(yaml.safe_dump(config), encoding="utf-8")


@contextmanager
def _scheduling(kubeconfig: Path) -> Iterator[None]:
    """Run the scheduling plane, which places the pods, as its own process."""
    command = (
        *with_parent.command("reprieve", "run", "--kubeconfig", str(kubeconfig)),
        *("--controllers", "scheduling", "--scheduler-name", "default-scheduler"),
        *("--metrics-port", "0"),
    )
    silent = subprocess.DEVNULL
    environment = {**os.environ, "GPU_PREEMPTION_OPERATOR_NAMESPACE": "kube-system"}
    with subprocess.Popen(command, stdout=silent, stderr=silent, env=environment) as process:
        try:
            yield
        finally:
            process.kill()


@asynccontextmanager
async def embedded(group: Group, kubeconfig: Path) -> AsyncIterator[None]:
    """Run an embedded cluster, with machines and controllers where it was recorded with them.

    Roles are enforced where they are asked about; everywhere else the administrator asks.
    """
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            # The recorded server served the two newer versions of pod groups.
            EmbeddedCluster(
                rbac=group.name == "auth",
                controllers=group.plane == "full",
                without=("scheduling.k8s.io/v1alpha2",),
            )
        )
        cluster.write_kubeconfig(kubeconfig, namespace=group.namespace)
        if group.plane == "full":
            # The recorded cluster had a stand-in for kubelets that took no time either.
            times = KubeletTimes(start_latency=0, termination_time=0)
            objects = EmbeddedObjects(cluster.api)
            for definition in all_crds():
                await objects.create(_DEFINITIONS, definition)
            machines = Machines(
                objects,
                SystemClock(),
                [],
                times=times,
            )
            await machines.start()
            stack.push_async_callback(machines.stop)
            stack.enter_context(_scheduling(kubeconfig))
        yield
