"""The records of a demand, over the books of all planes: which one the next goes on from."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    Preemption,
    PreemptionSpec,
    PreemptionStatus,
    VictimState,
    VictimStatus,
)
from reprieve.engine.demands import Beside, Stage
from reprieve.engine.plan import Plan, Plane, Proof, ProofLevel
from reprieve.execution.records.demands import GOES_ON_WITHIN, Demands
from reprieve.records.plans.at_stake import AtStake
from reprieve.records.plans.intent_specs import intent_spec
from reprieve.units.ids import PlanId, Uid
from reprieve.units.references import Reference

NOW = Nanos(1_800_000_000 * 10**9)
BESIDE = Beside((Plane.QUOTA, Plane.SCHEDULING))
WORKLOAD = Reference("kueue.x-k8s.io/v1beta2", "Workload", "team", "train", Uid("workload"))
GPU_WORKLOAD = Reference(
    "kaiwo.silogen.ai/v1alpha1", "GpuWorkload", "team", "pod-train-0", Uid("gpu-workload")
)
POD = Reference("v1", "Pod", "team", "train-0", Uid("pod-0"))


def plan(plane: Plane, preemptor: Reference, *pods: str) -> Plan:
    placement = tuple((Uid(pod), "node") for pod in pods)
    return Plan(PlanId("p"), plane, 1, Proof(ProofLevel.QUOTA), preemptor, (), placement)


def spec(made: Plan, lineage: str) -> PreemptionSpec:
    return intent_spec(made, 1, NOW, at_stake=AtStake(lineage, []), beside=BESIDE)


def former(demands: Demands, made: Plan, lineage: str, now: int = NOW) -> tuple[Stage, ...]:
    return demands.gone_on_from(BESIDE, made, AtStake(lineage, []), Nanos(now)).former


def test_a_record_goes_on_from_an_open_one_of_its_lineage_whatever_the_preemptor_is_called() -> (
    None
):
    demands = Demands()
    demands.written("quota-1", spec(plan(Plane.QUOTA, WORKLOAD), "owner/job"))
    pod = plan(Plane.SCHEDULING, POD)
    assert former(demands, pod, "owner/job") == (Stage(Plane.QUOTA, "quota-1"),)
    assert former(demands, pod, "owner/other") == ()


@pytest.mark.parametrize("lineage", ["owner/pod-0", "object/pod-0", "staying/pod-0"])
def test_a_pod_without_an_owner_is_the_demand_of_its_workload(lineage: str) -> None:
    demands = Demands()
    demands.written("idle-1", spec(plan(Plane.IDLE, GPU_WORKLOAD), "object/pod-0"))
    assert former(demands, plan(Plane.QUOTA, WORKLOAD), lineage) == (Stage(Plane.IDLE, "idle-1"),)
    assert former(demands, plan(Plane.QUOTA, WORKLOAD), "group/pod-0") == ()
    assert former(demands, plan(Plane.SCHEDULING, POD), "") == (Stage(Plane.IDLE, "idle-1"),)


def test_a_record_goes_on_from_one_that_placed_its_pods() -> None:
    demands = Demands()
    demands.written("idle-1", spec(plan(Plane.IDLE, WORKLOAD, "pod-0"), ""))
    pod = plan(Plane.SCHEDULING, POD)
    assert former(demands, pod, "object/pod-0") == (Stage(Plane.IDLE, "idle-1"),)


def test_a_record_that_ended_counts_for_a_while_and_only_where_somebody_went() -> None:
    demands = Demands()
    first, pod = plan(Plane.QUOTA, WORKLOAD), plan(Plane.SCHEDULING, POD)
    demands.written("quota-1", spec(first, "owner/job"))
    demands.closed("quota-1", evicted=False, at=NOW)
    assert former(demands, pod, "owner/job") == ()
    demands.written("quota-2", spec(first, "owner/job"))
    demands.closed("quota-2", evicted=True, at=NOW)
    last = NOW + GOES_ON_WITHIN
    assert former(demands, pod, "owner/job", last - 1) == (Stage(Plane.QUOTA, "quota-2"),)
    assert former(demands, pod, "owner/job", last) == ()


def test_what_a_former_process_wrote_is_gone_on_from() -> None:
    written = spec(plan(Plane.QUOTA, WORKLOAD), "owner/job")
    went = VictimStatus("uid", VictimState.EVICTED)
    stayed = VictimStatus("uid", VictimState.SPARED)
    ended = PreemptionStatus(IntentPhase.ABANDONED, finished_at=format_instant(NOW))
    pod = plan(Plane.SCHEDULING, POD)
    for status, found in (
        (PreemptionStatus(IntentPhase.EVICTING), (Stage(Plane.QUOTA, "quota-1"),)),
        (replace(ended, victims=[went]), (Stage(Plane.QUOTA, "quota-1"),)),
        (replace(ended, victims=[stayed]), ()),
    ):
        demands = Demands()
        demands.recovered([Preemption(Metadata("quota-1"), written, status)])
        assert former(demands, pod, "owner/job") == found


def test_what_does_not_count_any_more_is_forgotten() -> None:
    demands = Demands()
    for number in range(3):
        demands.written(f"quota-{number}", spec(plan(Plane.QUOTA, WORKLOAD), f"owner/{number}"))
        demands.closed(f"quota-{number}", evicted=True, at=Nanos(NOW + number * GOES_ON_WITHIN))
    assert len(demands) == 1
    alone = intent_spec(plan(Plane.QUOTA, WORKLOAD), 1, NOW, at_stake=AtStake("owner/job", []))
    demands.written("quota-9", alone)
    assert len(demands) == 1, "of a plane that decides alone nothing is kept"
