"""Nodes, and the machine that keeps them in the store.

What is not stated of a node: 32 CPUs, 256Gi of memory, 110 pods. Capacity is what is allocatable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubelocal.machines import simulation
from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer
from kubelocal.machines.objects import AlreadyThere, Change, Object
from kubelocal.machines.simulation import InvalidSetting, Readiness
from kubeworld.objects.conditions import set_condition
from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_instant

__all__ = ["NodeMachine", "NodeSpec"]

_DEFAULTS: Final = {"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
_HEARTBEAT_TIMES: Final = ("lastTransitionTime", "lastHeartbeatTime")
_STATES: Final = {
    Readiness.TRUE: (True, "KubeletReady", "kubelet is posting ready status"),
    Readiness.FALSE: (False, "KubeletNotReady", "the node was told to be not ready"),
    Readiness.UNKNOWN: (None, "NodeStatusUnknown", "Kubelet stopped posting node status."),
}
_PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "sufficient process ids available"),
)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node. `allocatable` maps resource names to quantities, defaults included."""

    name: str
    allocatable: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        allocatable: dict[str, Any],
        labels: dict[str, str] | None = None,
        taints: Sequence[dict[str, str]] = (),
    ) -> NodeSpec:
        """Return the node with the usual cpu, memory and pods where nothing else is stated."""
        quantities = {**_DEFAULTS, **{k: str(v) for k, v in allocatable.items()}}
        return cls(name, quantities, dict(labels or {}), tuple(taints))


class NodeMachine:
    """Registers the nodes that it is given, as kubelets do when they start, and their status.

    The annotation `sim.reprieve.dev/ready` decides the conditions (`simulation`).

    A node that is deleted while the machine runs stays away, as if its machine had been switched
    off; one that is there already keeps its labels and taints and gets its status. `complete` once
    each has stood in the store with its status.
    """

    name = "nodes"

    def __init__(
        self, informer: Informer, clock: Clock, recorder: Recorder, specs: Sequence[NodeSpec]
    ) -> None:
        self._informer = informer
        self._clock = clock
        self._recorder = recorder
        self._specs = {spec.name: spec for spec in specs}
        self._indexes = {name: index for index, name in enumerate(self._specs)}
        self._registered: set[str] = set()
        self._missing = set(self._specs)
        self.complete = asyncio.Event()
        if not self._missing:
            self.complete.set()

    def names(self) -> list[str]:
        """Return the names to look at when starting."""
        return list(self._specs)

    def concerns(self, change: Change, before: Object | None) -> Iterable[str]:
        name = change.object["metadata"]["name"]
        return [name] if change.resource == "nodes" and name in self._specs else []

    async def reconcile(self, key: str) -> None:
        spec = self._specs[key]
        node = self._informer.get("nodes", "", key)
        if node is None:
            if key in self._registered:
                self._stood(key)
                return
            try:
                node = await self._informer.create("nodes", self._object(spec))
            except AlreadyThere:
                return
        self._registered.add(key)
        try:
            readiness = simulation.readiness(node)
        except InvalidSetting as problem:
            self._recorder.warning(node, "InvalidSimulation", str(problem))
            readiness = Readiness.TRUE
        conditions = (node.get("status") or {}).get("conditions") or []
        status = self._status(spec, conditions, readiness)
        if any((node.get("status") or {}).get(name) != value for name, value in status.items()):
            merged = {**(node.get("status") or {}), **status}
            await self._informer.update("nodes", {**node, "status": merged}, subresource="status")
        self._stood(key)

    def _stood(self, key: str) -> None:
        self._missing.discard(key)
        if not self._missing:
            self.complete.set()

    def _object(self, spec: NodeSpec) -> Object:
        labels = {
            "kubernetes.io/hostname": spec.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **spec.labels,
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": spec.name, "labels": labels},
            "spec": {"taints": [dict(t) for t in spec.taints]} if spec.taints else {},
        }

    def _status(
        self, spec: NodeSpec, conditions: list[dict[str, Any]], readiness: Readiness
    ) -> dict[str, Any]:
        now = format_instant(self._clock.wall())
        status: dict[str, Any] = {
            "capacity": dict(spec.allocatable),
            "allocatable": dict(spec.allocatable),
            "addresses": [
                {"type": "InternalIP", "address": self._address(spec.name)},
                {"type": "Hostname", "address": spec.name},
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "simulated://1",
                "kernelVersion": "simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.37.0",
                "machineID": spec.name,
                "operatingSystem": "linux",
                "osImage": "kubelocal simulated node",
                "systemUUID": spec.name,
            },
            "conditions": [dict(present) for present in conditions],
        }
        unknown = readiness is Readiness.UNKNOWN
        ready, reason, message = _STATES[readiness]
        wanted: list[tuple[str, bool | None, str, str]] = [
            (kind, None, reason, message) if unknown else (kind, False, why, text)
            for kind, why, text in _PRESSURES
        ]
        wanted.append(("Ready", ready, reason, message))
        for kind, value, reason, message in wanted:
            set_condition(
                status, kind, value, now, reason=reason, message=message, times=_HEARTBEAT_TIMES
            )
        return status

    def _address(self, name: str) -> str:
        index = self._indexes[name]
        return f"198.18.{index // 250 % 256}.{index % 250 + 1}"
