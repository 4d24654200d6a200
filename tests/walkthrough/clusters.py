"""The clusters on which walkthroughs are played: the embedded one, and a real control plane.

On the real one Jobs and Deployments are run by kube-controller-manager, and kubelets are played.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kubelocal.machines.run import IN_CONTROLLER_MANAGER
from kubeworld.units.clock import SystemClock
from reprieve.scenarios.embedded import OPERATOR_USER, embedded_stage
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.stage import Stage
from reprieve.scenarios.staging import staged
from tests.integration.control_plane import (
    ADMINISTRATOR,
    Binaries,
    NoBinaries,
    control_plane,
    find_binaries,
)

__all__ = ["KINDS", "Cluster", "cluster_of"]

_REAL: Final = "real"
#: For the parameters of a fixture: what takes a control plane is played by hand.
KINDS: Final = ("embedded", pytest.param(_REAL, marks=pytest.mark.slow))


@dataclass(frozen=True)
class Cluster:
    """A running cluster without an operator."""

    stage: Stage
    kubeconfig: Path
    operator_kubeconfig: Path


@asynccontextmanager
async def cluster_of(
    kind: str,
    nodes: Sequence[NodeSpec],
    folder: Path,
    *,
    operator_arguments: Sequence[str] = (),
    scheduler: bool = True,
    kueue: bool = False,
) -> AsyncIterator[Cluster]:
    """Run a cluster of one of `KINDS`, else as `embedded_stage`; skip without one."""
    if kind != _REAL:
        async with embedded_stage(
            nodes,
            folder,
            operator_arguments=operator_arguments,
            scheduler=scheduler,
            kueue=kueue,
        ) as embedded:
            yield Cluster(embedded.stage, embedded.kubeconfig, embedded.operator_kubeconfig)
        return
    users = {ADMINISTRATOR: "system:masters", OPERATOR_USER: "system:masters"}
    with control_plane(_binaries(), folder, users) as plane:
        kubeconfig, operator_kubeconfig = folder / "kubeconfig", folder / "operator.kubeconfig"
        plane.write_kubeconfig(kubeconfig, ADMINISTRATOR)
        plane.write_kubeconfig(operator_kubeconfig, OPERATOR_USER)
        async with staged(
            kubeconfig,
            operator_kubeconfig,
            nodes,
            SystemClock(),
            operator_arguments=operator_arguments,
            machines_without=IN_CONTROLLER_MANAGER,
            scheduler=scheduler,
            kueue=kueue,
        ) as (stage, _):
            yield Cluster(stage, kubeconfig, operator_kubeconfig)


def _binaries() -> Binaries:
    try:
        found = find_binaries()
    except NoBinaries as missing:
        pytest.skip(str(missing))
    if found.controller_manager is None:
        pytest.skip(f"no kube-controller-manager beside {found.apiserver}")
    return found
