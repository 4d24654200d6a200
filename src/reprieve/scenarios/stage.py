"""What a scenario is played on: a cluster reached through the client, and its three controls.

The embedded cluster and a real one differ only in who stands behind these protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kubeworld.units.clock import Clock
from reprieve.scenarios.observer import Observer
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.real import KubeObjects

__all__ = ["ExporterControl", "Rights", "Stage"]


class ExporterControl(Protocol):
    """The metrics endpoint that the operator polls."""

    def set_utilization(
        self, namespace: str, root: str, value: float, *, gpu: int | None, pod_index: int | None
    ) -> None:
        """From now on report `value` percent for the pods below `root`, also for later ones.

        `root` is `Kind/name`. `gpu` chooses one GPU of each pod, `pod_index` one pod in name order.
        """
        ...

    async def down(self) -> None:
        """Refuse connections."""
        ...

    async def up(self) -> None:
        """Answer again."""
        ...


class Rights(Protocol):
    """The rights of the operator's user."""

    async def deny(self, verb: str, group: str, resource: str) -> None:
        """Answer such requests with 403 from now on."""
        ...

    async def allow(self, verb: str, group: str, resource: str) -> None:
        """Answer such requests again."""
        ...


@dataclass(frozen=True, slots=True)
class Stage:
    """One cluster with nothing but its nodes in it.

    `rights` None: they cannot be changed here. `launch(environment, replicas)` makes the operator's
    processes without starting them.
    """

    objects: KubeObjects
    observer: Observer
    exporter: ExporterControl
    rights: Rights | None
    clock: Clock
    launch: Callable[[Mapping[str, str], int], OperatorProcesses]
