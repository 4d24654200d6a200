"""What work loses that is evicted: the time since its last checkpoint, times its devices.

Without a checkpoint time counts from the start, as it does where a checkpoint is stated that lies
before the start or in the future. Devices are extended resources, and those of claims. Source:
KEP-5710, "Future extensions".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

__all__ = ["devices_of", "is_device", "lost_device_seconds"]

_NO_DEVICES: Final = ("pods", "cpu", "memory", "ephemeral-storage")
_NO_DEVICE_PREFIXES: Final = ("hugepages-", "attachable-volumes-")
#: Ends of names that count memory or cores of devices, as HAMi and others have them for shares.
_PARTS: Final = (
    "gpumem",
    "gpumem-percentage",
    "gpucores",
    "gpu-core",
    "gpu-memory",
    "gpu-memory-ratio",
    "vgpu-cores",
    "vgpu-memory",
    "memory.max",
    "millicores",
)


def lost_device_seconds(start: int | None, checkpoint: int, devices: int, now: int) -> int:
    """Return device-seconds; instants are Unix seconds, a `checkpoint` of 0 is none.

    What has not started loses nothing.
    """
    if start is None:
        return 0
    since = max(start, checkpoint) if checkpoint <= now else start
    return max(0, now - since) * devices


def devices_of(amounts: Iterable[tuple[str, int]]) -> int:
    """Return how many devices these resources with their amounts are."""
    return sum(amount for name, amount in amounts if is_device(name))


@lru_cache(maxsize=1_024)
def is_device(name: str) -> bool:
    """Return whether a resource counts devices, and no parts of them."""
    if name in _NO_DEVICES or name.startswith(_NO_DEVICE_PREFIXES):
        return False
    return name.rpartition("/")[2] not in _PARTS
