"""A PodGroup of any version, or a CompositePodGroup, into its row.

v1alpha2 has the words `Pod` and `PodGroup` for the disruption mode and the condition
`PodGroupScheduled`; later versions have `single` and `all` and `PodGroupInitiallyScheduled`.
Source: specification 2.1, 2.2 and 2.4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reprieve.api.pod_groups import DisruptionMode, PodGroup
from reprieve.engine.cluster.rows import GroupRow
from reprieve.intake.cluster.metadata import (
    checkpoint_of,
    claims_of,
    created_of,
    floor_of,
    min_runtime_of,
    notice_of,
    protection_of,
    save_cost_in,
    uid_of,
    version_of,
)

__all__ = ["composite_row", "group_row"]

_SCHEDULED: Final = (
    "PodGroupInitiallyScheduled",
    "PodGroupScheduled",
    "CompositePodGroupInitiallyScheduled",
)


def group_row(group: PodGroup) -> GroupRow:
    """Return the row of a PodGroup: basic without a policy, single without a mode."""
    metadata, spec, status = group.metadata, group.spec, group.status
    gang = spec.scheduling_policy.gang if spec.scheduling_policy else None
    topology = spec.scheduling_constraints.topology if spec.scheduling_constraints else None
    return GroupRow(
        uid=uid_of(metadata),
        namespace=metadata.namespace,
        name=metadata.name,
        version=version_of(metadata),
        min_count=gang.min_count if gang is not None else None,
        all_or_nothing=_all_or_nothing(spec.disruption_mode),
        priority=spec.priority or 0,
        preempts=spec.preemption_policy != "Never",
        topology_key=topology[0].key if topology else "",
        parent=spec.parent_composite_pod_group_name or "",
        claims=claims_of(spec.resource_claims, status.resource_claim_statuses),
        created=created_of(metadata),
        deleting=metadata.deletion_timestamp is not None,
        scheduled=any(
            condition.type in _SCHEDULED and condition.status == "True"
            for condition in status.conditions or ()
        ),
        checkpoint=checkpoint_of(metadata),
        protection=protection_of(metadata),
        floor=floor_of(metadata),
        min_runtime=min_runtime_of(metadata),
        notice=notice_of(metadata),
        save_cost=save_cost_in(metadata.annotations or {}),
    )


def composite_row(group: PodGroup) -> GroupRow:
    """Return the row of a CompositePodGroup, whose minimum is one of child groups."""
    policy = group.spec.scheduling_policy
    gang = policy.gang if policy is not None else None
    minimum = gang.min_group_count if gang is not None else None
    return replace(group_row(group), min_count=minimum, composite=True)


def _all_or_nothing(mode: str | DisruptionMode | None) -> bool:
    if isinstance(mode, DisruptionMode):
        return mode.all is not None
    return mode == "PodGroup"
