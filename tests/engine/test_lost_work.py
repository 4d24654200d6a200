"""What evicted work loses is the time since it last saved itself, times its devices."""

from __future__ import annotations

import pytest

from reprieve.engine.lost_work import devices_of, is_device, lost_device_seconds

NOW = 10_000


@pytest.mark.parametrize(
    ("start", "checkpoint", "seconds"),
    [
        (NOW - 600, 0, 600),
        (NOW - 600, NOW - 60, 60),
        (NOW - 60, NOW - 600, 60),  # of an earlier run
        (NOW - 600, NOW + 1, 600),  # nobody knows what that means
        (NOW - 600, NOW, 0),
        (NOW + 60, 0, 0),
        (None, 0, 0),
        (None, NOW - 60, 0),
    ],
)
def test_time_counts_since_the_last_checkpoint_of_this_run(
    start: int | None, checkpoint: int, seconds: int
) -> None:
    assert lost_device_seconds(start, checkpoint, 1, NOW) == seconds
    assert lost_device_seconds(start, checkpoint, 8, NOW) == 8 * seconds
    assert lost_device_seconds(start, checkpoint, 0, NOW) == 0


def test_devices_are_extended_resources() -> None:
    plain = ("pods", "cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "attachable-volumes-x")
    amounts = [*((name, 100) for name in plain), ("amd.com/gpu", 4), ("example.com/fpga", 2)]
    assert devices_of(amounts) == 6


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("nvidia.com/gpumem", False),
        ("nvidia.com/gpumem-percentage", False),
        ("nvidia.com/gpucores", False),
        ("koordinator.sh/gpu-memory-ratio", False),
        ("volcano.sh/vgpu-memory", False),
        ("gpu.intel.com/memory.max", False),
    ],
)
def test_memory_and_cores_of_a_share_are_no_devices(name: str, counts: bool) -> None:
    assert is_device(name) is counts
