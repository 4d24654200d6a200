"""How the GPUs of a workload are shared with work that is not its own, as far as is known.

1. `SameDevice`: an exporter reports one device, by its UUID, for pods of others, too.
2. `TimeSlicing`, `MPS`: the labels of a node state it of the resource that a pod of it holds there.
   Labels of MIG profiles are their own, and older releases of GPU feature discovery, which know
   time-slicing alone, state only how many replicas there are.
3. `Share`: its pods request shares of a GPU.

Pods that share a claim of devices are evicted together, so that what is reported of the device is
right for all of them; nor is anything missing where an exporter reports each share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kubeworld.units.untrusted import integer_or_none
from reprieve.planes.idle.measures.scraper import PodKey
from reprieve.planes.idle.records import PodRecord
from reprieve.planes.idle.workloads import KnownPoll
from reprieve.wording.shared_devices import Sharing, SharingReason

__all__ = ["sharing_of", "strategy_of"]

_NVIDIA: Final = "nvidia.com/"
_GKE: Final = "cloud.google.com/gke-gpu-sharing-strategy"
_SHARED: Final = ".shared"  # what the device plugin appends to the name of a shared resource
_STRATEGIES: Final = {
    "time-slicing": SharingReason.TIME_SLICING,
    "time-sharing": SharingReason.TIME_SLICING,
    "mps": SharingReason.MPS,
}


def strategy_of(labels: Mapping[str, str], resources: Iterable[str]) -> SharingReason | None:
    """Return how a node shares GPUs of these resources, None where its labels do not state it."""
    for resource in sorted(resources):
        if not resource.startswith(_NVIDIA):
            continue
        name = resource.removesuffix(_SHARED)
        for label in (f"{name}.sharing-strategy", _GKE):
            strategy = _STRATEGIES.get(labels.get(label, "").lower())
            if strategy is not None:
                return strategy
        stated = f"{name}.sharing-strategy" in labels
        if not stated and (integer_or_none(labels.get(f"{name}.replicas")) or 0) > 1:
            return SharingReason.TIME_SLICING
    return None


def sharing_of(
    pods: Sequence[PodRecord],
    poll: KnownPoll | None,
    on_node: Callable[[str, Iterable[str]], SharingReason | None],
) -> Sharing | None:
    """Return how the GPUs of a workload's pods are shared; `on_node`: how a node shares some."""
    holding = [pod for pod in pods if pod.row.gpus and pod.occupies and not pod.shared]
    if poll is not None:
        own = {PodKey(pod.namespace, pod.name) for pod in pods}
        holding = [p for p in holding if PodKey(p.namespace, p.name) not in poll.by_share]
        devices = {
            device: several - own
            for pod in holding
            for device, several in poll.sharing.get(PodKey(pod.namespace, pod.name), {}).items()
            if several - own
        }
        if devices:
            others = frozenset().union(*devices.values())
            return Sharing(SharingReason.SAME_DEVICE, len(devices), len(others))
    for pod in sorted(holding, key=lambda each: each.name):
        strategy = on_node(pod.row.node or "", pod.row.gpus)
        if strategy is not None:
            return Sharing(strategy, name=pod.row.node or "")
    part = next((pod.part for pod in holding if pod.part), "")
    return Sharing(SharingReason.SHARE, name=part) if part else None
