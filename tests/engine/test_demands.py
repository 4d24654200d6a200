"""What a record says of other planes: a pure function of the plan and of what they answered."""

from __future__ import annotations

import pytest

from reprieve.engine.demands import (
    Beside,
    Half,
    Rejected,
    Rejection,
    Stage,
    before,
    joint_record,
)
from reprieve.engine.plan import Plan, Plane, Proof, ProofLevel, Victim
from reprieve.units.ids import PlanId, Uid
from reprieve.units.references import Reference

ALL = (Plane.IDLE, Plane.QUOTA, Plane.SCHEDULING)
OWNED = Rejection.OWNED


def plan(plane: Plane, level: ProofLevel, *victims: str) -> Plan:
    rows = [Reference("batch/v1", "Job", "team", name, Uid(f"uid-{name}")) for name in victims]
    gone = tuple(Victim(row, row, {"gpu": 1}, "rule") for row in rows)
    return Plan(PlanId("p"), plane, 1, Proof(level), None, gone)


@pytest.mark.parametrize(
    ("plane", "level", "beside", "stages", "rejected", "quota", "placement"),
    [
        (
            *(Plane.IDLE, ProofLevel.PLACEMENT, Beside(ALL, placed=True)),
            (Stage(Plane.IDLE), Stage(Plane.SCHEDULING)),
            (Rejected(Plane.QUOTA, OWNED), Rejected(Plane.SCHEDULING, Rejection.IDLE_FIRST)),
            *(Half.SETTLED, Half.PROVEN),
        ),
        (
            *(Plane.IDLE, ProofLevel.PLACEMENT, Beside(ALL, placed=True, mixed=True)),
            (Stage(Plane.IDLE), Stage(Plane.SCHEDULING)),
            (Rejected(Plane.QUOTA, OWNED),),
            *(Half.SETTLED, Half.PROVEN),
        ),
        (
            *(Plane.SCHEDULING, ProofLevel.PLACEMENT, Beside(ALL, mixed=True)),
            (Stage(Plane.SCHEDULING),),
            (Rejected(Plane.QUOTA, OWNED),),
            *(Half.SETTLED, Half.PROVEN),
        ),
        (
            *(Plane.IDLE, ProofLevel.SUM, Beside(ALL)),
            (Stage(Plane.IDLE),),
            (Rejected(Plane.QUOTA, OWNED), Rejected(Plane.SCHEDULING, OWNED)),
            *(Half.UNPROVEN, Half.UNPROVEN),
        ),
        (
            *(Plane.IDLE, ProofLevel.QUOTA, Beside(ALL)),
            (Stage(Plane.IDLE), Stage(Plane.QUOTA), Stage(Plane.SCHEDULING)),
            (Rejected(Plane.QUOTA, Rejection.IDLE_FIRST), Rejected(Plane.SCHEDULING, OWNED)),
            *(Half.PROVEN, Half.PROVEN),
        ),
        (
            *(Plane.IDLE, ProofLevel.EXEMPT, Beside(ALL)),
            (Stage(Plane.IDLE),),
            (Rejected(Plane.QUOTA, OWNED), Rejected(Plane.SCHEDULING, OWNED)),
            *(Half.SETTLED, Half.SETTLED),
        ),
        (
            *(Plane.QUOTA, ProofLevel.QUOTA, Beside(ALL)),
            (Stage(Plane.QUOTA), Stage(Plane.SCHEDULING)),
            (Rejected(Plane.IDLE, OWNED), Rejected(Plane.SCHEDULING, OWNED)),
            *(Half.PROVEN, Half.UNPROVEN),
        ),
        (
            *(Plane.QUOTA, ProofLevel.PLACEMENT, Beside((Plane.IDLE, Plane.QUOTA))),
            (Stage(Plane.QUOTA),),
            (Rejected(Plane.IDLE, OWNED),),
            *(Half.PROVEN, Half.PROVEN),
        ),
        (
            *(Plane.SCHEDULING, ProofLevel.PLACEMENT, Beside(ALL, Rejection.DECLINED)),
            (Stage(Plane.SCHEDULING),),
            (Rejected(Plane.IDLE, Rejection.DECLINED), Rejected(Plane.QUOTA, OWNED)),
            *(Half.SETTLED, Half.PROVEN),
        ),
    ],
)
def test_a_record_names_its_stages_both_halves_and_who_does_not_evict(
    plane: Plane,
    level: ProofLevel,
    beside: Beside,
    stages: tuple[Stage, ...],
    rejected: tuple[Rejected, ...],
    quota: Half,
    placement: Half,
) -> None:
    said = joint_record(plan(plane, level), beside)
    assert (said.stages, said.rejected) == (stages, rejected)
    assert (said.quota, said.placement) == (quota, placement)


def test_idle_work_frees_quota_where_it_holds_some_and_pods_free_room_alone() -> None:
    beside = Beside(ALL, queued=("uid-queued",))
    idle = joint_record(plan(Plane.IDLE, ProofLevel.PLACEMENT, "queued", "other"), beside)
    quota = joint_record(plan(Plane.QUOTA, ProofLevel.QUOTA, "borrower"), beside)
    pods = joint_record(plan(Plane.SCHEDULING, ProofLevel.PLACEMENT, "pod"), beside)
    assert idle.frees == ((True, True), (False, True))
    assert (quota.frees, pods.frees) == (((True, True),), ((False, True),))


def test_a_later_record_names_the_stages_of_the_former_ones() -> None:
    first = joint_record(plan(Plane.QUOTA, ProofLevel.QUOTA), Beside(ALL))
    former = before(first.stages, Plane.QUOTA, "quota-1")
    second = joint_record(plan(Plane.IDLE, ProofLevel.PLACEMENT), Beside(ALL, former=former))
    third = before(second.stages, Plane.IDLE, "idle-1")
    assert second.stages == (Stage(Plane.QUOTA, "quota-1"), Stage(Plane.IDLE))
    assert third == (Stage(Plane.QUOTA, "quota-1"), Stage(Plane.IDLE, "idle-1"))
