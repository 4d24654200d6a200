"""How the GPUs of a workload are shared with work that is not its own, as far as is known.

1. `SameDevice`: an exporter reports one device, by its UUID, for pods of others, too.
2. `TimeSlicing`, `MPS`: the labels of a node say so on which a pod of it holds GPUs.
3. `Share`: its pods ask for shares of a GPU.

Pods that share a claim of devices are evicted together, so that what is reported of the device is
right for all of them; nor is anything missing where an exporter reports each share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from reprieve.planes.idle.measures.scraper import PodKey
from reprieve.planes.idle.records import PodRecord
from reprieve.planes.idle.workloads import KnownPoll
from reprieve.wording.shared_devices import Sharing, SharingReason

__all__ = ["sharing_of", "strategy_of"]

_NVIDIA: Final = "nvidia.com/"
#: Labels of nodes whose GPUs are shared, of GPU feature discovery and of GKE.
_LABELS: Final = ("nvidia.com/gpu.sharing-strategy", "cloud.google.com/gke-gpu-sharing-strategy")
_STRATEGIES: Final = {
    "time-slicing": SharingReason.TIME_SLICING,
    "time-sharing": SharingReason.TIME_SLICING,
    "mps": SharingReason.MPS,
}


def strategy_of(labels: Mapping[str, str]) -> SharingReason | None:
    """Return how a node shares its GPUs, None where its labels do not state that it does."""
    found = (_STRATEGIES.get(labels.get(name, "").lower()) for name in _LABELS)
    return next((each for each in found if each is not None), None)


def sharing_of(
    pods: Sequence[PodRecord],
    poll: KnownPoll | None,
    on_node: Callable[[str], SharingReason | None],
) -> Sharing | None:
    """Return how the GPUs of a workload's pods are shared; `on_node`: how a node shares its own."""
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
        strategy = on_node(pod.row.node or "")
        if strategy is not None and any(name.startswith(_NVIDIA) for name in pod.row.gpus):
            return Sharing(strategy, name=pod.row.node or "")
    part = next((pod.part for pod in holding if pod.part), "")
    return Sharing(SharingReason.SHARE, name=part) if part else None
