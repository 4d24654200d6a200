"""A control plane of one's own that serves the kinds of pod groups, and a stage on it.

Its API server can be started anew with its gates off or on, over the objects that are there. Nobody
else schedules; Jobs and what makes pods are played by kube-controller-manager where it is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from kubelocal.machines.run import IN_CONTROLLER_MANAGER
from kubeworld.units.clock import SystemClock
from reprieve.scenarios.embedded import OPERATOR_USER
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.stage import Stage
from reprieve.scenarios.staging import staged
from tests.integration.control_plane import (
    ADMINISTRATOR,
    Binaries,
    ControlPlane,
    control_plane,
)

__all__ = ["group_flags", "group_plane", "on_plane"]

_SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true"
# What three gates switch on in 1.36 is one in 1.37.
_SERVED_BEFORE = "--runtime-config=scheduling.k8s.io/v1alpha2=true"
_GATES_BEFORE = "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true"
_PATIENCE_S = 180.0


def group_flags(release: tuple[int, int] = (1, 37), *, on: bool = True) -> tuple[str, ...]:
    """Return what an API server is started with; the kinds are off by default in all releases.

    Before 1.36 there are none of them, and none of their gates.
    """
    if release < (1, 36):
        return ()
    if release < (1, 37) and on:
        return (f"--feature-gates={_GATES_BEFORE}", _SERVED_BEFORE)
    gate = f"--feature-gates=GenericWorkload={str(on).lower()}"
    return (gate, _SERVED) if on else (gate,)


def group_plane(
    binaries: Binaries, folder: Path
) -> contextlib.AbstractContextManager[ControlPlane]:
    """Run a control plane of 1.36 or newer."""
    users = {ADMINISTRATOR: "system:masters", OPERATOR_USER: "system:masters"}
    flags = {"kube-apiserver": group_flags(binaries.release)}
    return control_plane(binaries, folder, users, flags)


@asynccontextmanager
async def on_plane(
    plane: ControlPlane,
    folder: Path,
    nodes: Sequence[NodeSpec],
    *arguments: str,
    kueue: bool = False,
    ready: str = "scheduling pods of",
    module: str = "reprieve",
) -> AsyncIterator[Stage]:
    """Bring up nodes, exporter and observer.

    `arguments` are the operator's, which has started once it has said `ready`; `module` is run.
    """
    kubeconfig, operator_kubeconfig = folder / "kubeconfig", folder / "operator.kubeconfig"
    plane.write_kubeconfig(kubeconfig, ADMINISTRATOR)
    plane.write_kubeconfig(operator_kubeconfig, OPERATOR_USER)
    async with staged(
        kubeconfig,
        operator_kubeconfig,
        nodes,
        SystemClock(),
        operator_arguments=arguments,
        operator_module=module,
        machines_without=IN_CONTROLLER_MANAGER if plane.has_controllers else (),
        scheduler=False,
        kueue=kueue,
    ) as (stage, _):

        def launch(environment: Mapping[str, str], replicas: int) -> OperatorProcesses:
            operator = stage.launch(environment, replicas)
            start = operator.start

            async def until_it_schedules() -> None:
                # A loaded machine takes longer for that than scenarios sleep.
                await start()
                await operator.until_said(ready, _PATIENCE_S)

            vars(operator)["start"] = until_it_schedules
            return operator

        yield replace(stage, launch=launch)
