"""`Disruption` (`reprieve.dev/v1alpha1`): what became of displaced work, for its tenant.

One object for each displaced unit, in the namespace of the work, written when the unit has ended,
and once more when the work runs again. It states nothing of other namespaces. Source: specification
of disruptions, section 6.
"""

from __future__ import annotations

from typing import Final

import msgspec

from reprieve.api.reprieve import API_VERSION, Frees, Metadata, ObjectRef, Rejected

__all__ = [
    "KEY_FIELD",
    "KEY_SECRET",
    "Disruption",
    "DisruptionDemand",
    "DisruptionSpec",
    "DisruptionStatus",
]

#: The Secret in the operator's namespace that holds the key to numbers of others' work, and where.
KEY_SECRET: Final = "reprieve-disruptions"
KEY_FIELD: Final = "key"


class DisruptionDemand(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The demand that the unit was displaced for, where several planes decide together.

    `stages`: the planes that see it through, in order. `frees`: what the unit gave back. `quota`
    and `placement`: how far each half of the proof is proven. `rejected`: planes that evict no work
    for the demand. `depth`: in a chain of displacements, whose former one is `debt_of`, as people
    of this namespace may know it.
    """

    stages: list[str]
    frees: Frees
    quota: str
    placement: str
    rejected: list[Rejected] = []
    depth: int = 1
    debt_of: str = ""


class DisruptionSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What happened. Immutable.

    `subject`: the object that was evicted, or the group that was evicted as a whole, without a uid
    then. `objects`: how many were evicted. `preemptor`: as people of this namespace may know it.
    `lost_device_seconds`: since the last checkpoint or the start, as of the decision; of a unit
    that saved when it got notice, since then, as of its eviction. `times`: how
    often this lineage was displaced within `window`, this time included. Instants are RFC 3339 in
    UTC. `notice_withheld`: why it got no notice although it requested it. `demand`: None where one
    plane decides alone.
    """

    subject: ObjectRef
    lineage: str
    plan_id: str
    plane: str
    rule: str
    preemptor: str
    noticed_at: str
    evicting_at: str
    ended_at: str
    objects: int
    lost_device_seconds: int
    times: int
    window: str
    spared_by: str
    notice_withheld: str = ""
    demand: DisruptionDemand | None = None


class DisruptionStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What follows from it. `repeated`: reported as displaced repeatedly, written with it.

    `back_at`: when as many objects of its lineage as were displaced ran again; set once.
    """

    repeated: bool = False
    message: str = ""
    back_at: str = ""


class Disruption(msgspec.Struct, frozen=True, rename="camel"):
    """One displaced unit."""

    metadata: Metadata
    spec: DisruptionSpec
    status: DisruptionStatus = DisruptionStatus()
    api_version: str = API_VERSION
    kind: str = "Disruption"
