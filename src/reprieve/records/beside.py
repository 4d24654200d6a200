"""What other planes answered, beside the input of a record, so that the decision is made again.

It stands in `spec.input` as `beside`, where several planes decide. Records of one plane alone, and
those of earlier versions, have none. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from reprieve.api.reprieve import Frees, PreemptionSpec
from reprieve.api.reprieve import Rejected as RejectedPlane
from reprieve.api.reprieve import Stage as RecordStage
from reprieve.engine.demands import Beside, JointRecord, Stage, joint_record
from reprieve.engine.plan import Plan, Plane

__all__ = ["beside_of", "stages_of", "stored_beside", "with_joint"]

_KEY: Final = "beside"


def stored_beside(beside: Beside | None) -> dict[str, Any]:
    """Return what to store beside the input of a decision."""
    return {} if beside is None else {_KEY: msgspec.json.decode(msgspec.json.encode(beside))}


def beside_of(recorded: Mapping[str, Any] | None) -> Beside | None:
    """Return what was stored, None where nothing was or it cannot be read."""
    found = (recorded or {}).get(_KEY)
    if found is None:
        return None
    try:
        return msgspec.convert(found, Beside)
    except msgspec.ValidationError:
        return None


def stages_of(spec: PreemptionSpec) -> tuple[Stage, ...]:
    """Return the stages of a record; one without any has its own plane alone."""
    said = tuple(Stage(Plane(each.plane), each.preemption) for each in spec.stages)
    return said or (Stage(Plane(spec.plane)),)


def with_joint(spec: PreemptionSpec, plan: Plan, beside: Beside | None) -> PreemptionSpec:
    """Return the spec of a plan with what it states of other planes."""
    if beside is None:
        return spec
    said = joint_record(plan, beside)
    return msgspec.structs.replace(
        spec,
        proof=msgspec.structs.replace(spec.proof, quota=said.quota, placement=said.placement),
        victims=[
            msgspec.structs.replace(victim, plane=str(plan.plane), frees=Frees(*freed))
            for victim, freed in zip(spec.victims, said.frees, strict=True)
        ],
        stages=[RecordStage(stage.plane, stage.record) for stage in said.stages],
        rejected=_rejected(said),
        depth=said.depth,
        debt_of=said.debt_of,
        preemptor_priority=said.priority,
        reclaims_any=said.reclaims_any,
    )


def _rejected(said: JointRecord) -> list[RejectedPlane]:
    return [RejectedPlane(each.plane, each.reason) for each in said.rejected]
