"""Which planes decide about a cluster in memory, and how they are set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import yaml

from reprieve.kube.resource import GPU_WORKLOADS, Resource
from reprieve.planes.common.process_settings import (
    IDLE,
    QUOTA,
    SCHEDULER_NAME,
    SCHEDULING,
    OperatorOptions,
)
from reprieve.units.errors import UsageError
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.snapshots.snapshot import Snapshot

__all__ = ["PLANES", "all_kinds", "planes_of"]

#: The planes by name, in the order in which people name them.
PLANES: Final = (IDLE, SCHEDULING, QUOTA)


def planes_of(
    snapshot: Snapshot,
    planes: Sequence[str] | None,
    schedulers: Sequence[str],
    settings: Mapping[str, Any],
) -> Deciders:
    """Return the planes that decide.

    `planes`: None for scheduling, with quota where there is a ClusterQueue, and idle where there
    is a GpuWorkload. `schedulers`: whose pods are placed, beside `reprieve-scheduler`. `settings`:
    sections as in a `--config` file.

    Raises:
        UsageError: a plane or a setting is not accepted.
    """
    wanted = _there(snapshot) if planes is None else tuple(planes)
    for name in wanted:
        if name not in PLANES:
            raise UsageError(f"planes: {name!r}; accepted: {', '.join(PLANES)}")
    if not wanted:
        raise UsageError(f"planes: none; accepted: {', '.join(PLANES)}")
    content = yaml.safe_dump(dict(settings)) if settings else None
    own = "configuration" in (settings.get(SCHEDULING) or {})
    names = () if own else tuple(dict.fromkeys((SCHEDULER_NAME, *schedulers)))
    return Deciders.of(OperatorOptions(wanted, {}, settings_text=content, scheduler_names=names))


@cache
def all_kinds() -> tuple[Resource, ...]:
    """Return all kinds that some plane decides about."""
    return Deciders.of(OperatorOptions(PLANES, {})).kinds()


def _there(snapshot: Snapshot) -> tuple[str, ...]:
    idle = snapshot.count(GPU_WORKLOADS.plural, GPU_WORKLOADS.group) > 0
    quota = snapshot.count("clusterqueues", "kueue.x-k8s.io") > 0
    return (*(IDLE,) * idle, SCHEDULING, *(QUOTA,) * quota)
