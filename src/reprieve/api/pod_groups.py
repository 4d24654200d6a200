"""PodGroups in all three versions of `scheduling.k8s.io`, whose `disruptionMode` differs."""

from __future__ import annotations

from typing import Any

from reprieve.api.core import (
    ObjectMeta,
    PodResourceClaim,
    ResourceClaimStatus,
    Struct,
)
from reprieve.api.scheduling import Condition

__all__ = ["DisruptionMode", "PodGroup"]


class GangPolicy(Struct, frozen=True):
    """All or nothing for `minCount` pods, or `minGroupCount` child groups."""

    min_count: int = 1
    min_group_count: int = 1


class SchedulingPolicy(Struct, frozen=True):
    """One of basic and gang."""

    basic: dict[str, Any] | None = None
    gang: GangPolicy | None = None


class DisruptionMode(Struct, frozen=True):
    """One of single and all (v1alpha3, v1beta1); v1alpha2 has the words Pod and PodGroup."""

    single: dict[str, Any] | None = None
    all: dict[str, Any] | None = None


class TopologyConstraint(Struct, frozen=True):
    """The label whose value all pods of the group have to share."""

    key: str = ""


class SchedulingConstraints(Struct, frozen=True):
    """At most one topology."""

    topology: list[TopologyConstraint] | None = None


class PodGroupSpec(Struct, frozen=True):
    """The spec of a PodGroup, as the scheduler reads it."""

    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: str | DisruptionMode | None = None
    resource_claims: list[PodResourceClaim] | None = None
    parent_composite_pod_group_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None


class PodGroupStatus(Struct, frozen=True):
    """The status of a PodGroup, as the scheduler reads it."""

    conditions: list[Condition] | None = None
    resource_claim_statuses: list[ResourceClaimStatus] | None = None


class PodGroup(Struct, frozen=True):
    """A PodGroup of any version, or a CompositePodGroup, which has the same fields for groups."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
    api_version: str = "scheduling.k8s.io/v1beta1"
    kind: str = "PodGroup"
