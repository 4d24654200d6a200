"""PodGroups of the two older APIs: scheduling.sigs.k8s.io and scheduling.x-k8s.io.

The first is Koordinator's (status through the main resource), the second that of scheduler-plugins
(status subresource). Source: specification of gang jobs, sections 1.1, 2 and 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from reprieve.api.core import ObjectMeta

__all__ = [
    "DOORS",
    "GROUP_ID",
    "KOORDINATOR",
    "MEMBER_COUNT",
    "RELEASED",
    "SCHEDULER_PLUGINS",
    "Door",
    "ElasticQuota",
    "PodGroup",
    "PodGroupSpec",
]


@dataclass(frozen=True, slots=True)
class Door:
    """One PodGroup API. `status_subresource`: how the status is written."""

    api_version: str
    label: str  # of members
    status_subresource: bool
    all_phases: bool  # PreScheduling and Scheduled, and the count of scheduled pods


KOORDINATOR: Final = Door(
    "scheduling.sigs.k8s.io/v1alpha1", "pod-group.scheduling.sigs.k8s.io", False, True
)
SCHEDULER_PLUGINS: Final = Door(
    "scheduling.x-k8s.io/v1alpha1", "scheduling.x-k8s.io/pod-group", True, False
)
DOORS: Final = (KOORDINATOR, SCHEDULER_PLUGINS)

# Annotations of pods that are bound together; those of the second prefix are deprecated, but set.
_PREFIXES: Final = ("internal.scheduling.koordinator.sh/", "scheduling.koordinator.sh/")
GROUP_ID: Final = tuple(f"{prefix}bind-gang-group-id" for prefix in _PREFIXES)
MEMBER_COUNT: Final = tuple(f"{prefix}bind-gang-member-count" for prefix in _PREFIXES)
RELEASED: Final = (*GROUP_ID, *MEMBER_COUNT)


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`minResources` is kept and, as in both systems' gang logic, not looked at."""

    min_member: int = 0
    min_resources: dict[str, Any] | None = None
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Phase and counters as they stand there."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: str | None = None


class PodGroup(msgspec.Struct, frozen=True, rename="camel"):
    """A gang of pods."""

    metadata: ObjectMeta
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class ElasticQuotaSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What the quota is guaranteed, as quantities by resource name."""

    min: dict[str, str | int | float] | None = None


class ElasticQuotaStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What its pods use."""

    used: dict[str, str | int | float] | None = None


class ElasticQuota(msgspec.Struct, frozen=True, rename="camel"):
    """A quota of either door, read for the protection of its pods."""

    metadata: ObjectMeta
    spec: ElasticQuotaSpec = msgspec.field(default_factory=ElasticQuotaSpec)
    status: ElasticQuotaStatus = msgspec.field(default_factory=ElasticQuotaStatus)
