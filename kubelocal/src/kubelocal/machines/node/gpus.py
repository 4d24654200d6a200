"""Which running pod has which GPU of its node, and what the GPU's utilisation is.

A pod gets the lowest free devices of its node when it begins to run and keeps them until it ends.
Utilisation: (1) the last override that matches, (2) the annotation `sim.reprieve.dev/
gpu-utilization` of the pod or its nearest controller that has one, at the pod's age, (3) zero.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from kubelocal.machines import simulation
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.node.utilization import InvalidScript, Script, parse_script
from kubelocal.machines.objects import Change, ChangeType, Object
from kubelocal.machines.simulation import Setting
from kubeworld.controllers.pod_statuses import running_since
from kubeworld.objects.requests import amounts, container_requests
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND

__all__ = ["GPU_PREFIXES", "Gpu", "Gpus", "Root", "Target"]

_LOG = logging.getLogger(__name__)

GPU_PREFIXES: Final = ("amd.com/", "nvidia.com/", "gpu.intel.com/")


@dataclass(frozen=True, slots=True)
class Root:
    """An object somewhere up the controller chain of the pods that are meant."""

    namespace: str
    kind: str
    name: str


Target: TypeAlias = Root | Callable[[Object], bool]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. Without a pod: `pod`, `namespace` and `container` are empty, utilisation 0.

    `index` counts the devices of the node over all its GPU resource names.
    """

    node: str
    index: int
    resource: str
    pod: str = ""
    namespace: str = ""
    container: str = ""
    utilization: float = 0.0


@dataclass(frozen=True, slots=True)
class _Override:
    target: Target
    gpu: int | None
    pod_index: int | None
    script: Script


@dataclass(frozen=True, slots=True)
class _Held:
    """The devices of a running pod: (resource, ordinal, container) in the order of containers."""

    key: Key
    node: str
    since: int  # monotonic
    devices: tuple[tuple[str, int, str], ...]


class Gpus:
    """The devices of all nodes."""

    def __init__(self, informer: Informer, clock: Clock) -> None:
        self._informer = informer
        self._clock = clock
        self._held: dict[str, _Held] = {}
        # node -> uids of `_held` on it
        self._on_node: defaultdict[str, dict[str, None]] = defaultdict(dict)
        # (node, resource) -> ordinals in use; all and only those in `_held`.
        self._used: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        self._overrides: list[_Override] = []
        self._complained: set[str] = set()

    def notice(self, change: Change, before: Object | None) -> None:
        """Assign and free devices as pods come and leave. Listener of the informer."""
        if change.resource != "pods":
            return
        pod, uid = change.object, change.object["metadata"]["uid"]
        runs = (pod.get("status") or {}).get("phase") == "Running"
        if change.type is ChangeType.DELETED or not runs:
            held = self._held.pop(uid, None)
            if held is not None:
                del self._on_node[held.node][uid]
                for resource, ordinal, _ in held.devices:
                    self._used[held.node, resource].discard(ordinal)
        elif uid not in self._held and pod["spec"].get("nodeName"):
            self._hold(pod)

    def set_utilization(
        self,
        target: Target,
        value: float | str,
        *,
        gpu: int | None = None,
        pod_index: int | None = None,
    ) -> None:
        """From now on report `value` (percent or script) for the target's pods, later ones too.

        `gpu`: only this one of the pod's devices, counted from 0. `pod_index`: only the pod with
        this place among the target's pods in order of name. The last call that matches wins.

        Raises:
            InvalidScript: the value is not a number and not a script.
        """
        script = parse_script(str(value))
        same = (target, gpu, pod_index)
        self._overrides = [o for o in self._overrides if (o.target, o.gpu, o.pod_index) != same] + [
            _Override(target, gpu, pod_index, script)
        ]

    def on(self, node: str) -> Iterator[Gpu]:
        """Give the devices of this node in order of index."""
        found = self._informer.get("nodes", "", node)
        allocatable = amounts(((found or {}).get("status") or {}).get("allocatable"))
        owners = self._owners(node)
        first = 0
        for resource in sorted(allocatable):
            if not resource.startswith(GPU_PREFIXES):
                continue
            for ordinal in range(allocatable[resource]):
                gpu = owners.get((resource, ordinal))
                if gpu is None:
                    yield Gpu(node, first + ordinal, resource)
                else:
                    held, place, container = gpu
                    pod = self._informer.at(held.key)
                    yield Gpu(
                        node,
                        first + ordinal,
                        resource,
                        pod=held.key.name,
                        namespace=held.key.namespace,
                        container=container,
                        utilization=self._utilization(pod, held, place) if pod else 0.0,
                    )
            first += allocatable[resource]

    def nodes(self) -> list[str]:
        """Return the names of all nodes, sorted."""
        return sorted(node["metadata"]["name"] for node in self._informer.all("nodes"))

    def _hold(self, pod: Object) -> None:
        node, now = pod["spec"]["nodeName"], self._clock.monotonic()
        devices = []
        for container in pod["spec"].get("containers") or ():
            for resource, count in sorted(container_requests(container).items()):
                if not resource.startswith(GPU_PREFIXES):
                    continue
                used = self._used[node, resource]
                for _ in range(count):
                    ordinal = next(n for n in range(len(used) + 1) if n not in used)
                    used.add(ordinal)
                    devices.append((resource, ordinal, container["name"]))
        if devices:
            # The status has whole seconds; a pod that began just now began now.
            age = self._clock.wall() - running_since(pod)
            since = now - age if age > 2 * SECOND else now
            uid = pod["metadata"]["uid"]
            self._held[uid] = _Held(key_of("pods", pod), node, since, tuple(devices))
            self._on_node[node][uid] = None

    def _owners(self, node: str) -> dict[tuple[str, int], tuple[_Held, int, str]]:
        return {
            (resource, ordinal): (held, place, container)
            for held in (self._held[uid] for uid in self._on_node.get(node, ()))
            for place, (resource, ordinal, container) in enumerate(held.devices)
        }

    def _utilization(self, pod: Object, held: _Held, place: int) -> float:
        age = self._clock.monotonic() - held.since
        for override in reversed(self._overrides):
            if (
                override.gpu in (None, place)
                and self._is_below(pod, override.target)
                and override.pod_index in (None, self._place(pod, override))
            ):
                return override.script.at(age)
        text = simulation.setting(self._informer, pod, Setting.GPU_UTILIZATION)
        if text is None:
            return 0.0
        try:
            return parse_script(text).at(age)
        except InvalidScript as problem:
            if text not in self._complained:
                self._complained.add(text)
                _LOG.warning("pod %s/%s: %s", held.key.namespace, held.key.name, problem)
            return 0.0

    def _is_below(self, pod: Object, target: Target) -> bool:
        if not isinstance(target, Root):
            return target(pod)
        return pod["metadata"].get("namespace") == target.namespace and any(
            obj["kind"] == target.kind and obj["metadata"]["name"] == target.name
            for obj in simulation.chain(self._informer, pod)
        )

    def _place(self, pod: Object, override: _Override) -> int | None:
        if override.pod_index is None:
            return None
        names = sorted(
            (p["metadata"].get("namespace", ""), p["metadata"]["name"])
            for p in self._informer.all("pods")
            if self._is_below(p, override.target)
        )
        return names.index((pod["metadata"].get("namespace", ""), pod["metadata"]["name"]))
