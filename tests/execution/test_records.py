"""How intents are called, and how long their records stay."""

from __future__ import annotations

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    Preemption,
    PreemptionSpec,
    PreemptionStatus,
    Proof,
)
from reprieve.engine import plan as engine
from reprieve.execution.recovery import expired
from reprieve.records.plans.intent_specs import intent_name, intent_spec
from reprieve.units.ids import PlanId, Uid
from reprieve.units.references import Reference

NOW = Nanos(1_772_618_400 * SECOND)
WEEK = 168 * HOUR


def record(name: str, phase: IntentPhase, hours_ago: int) -> Preemption:
    at = format_instant(Nanos(NOW - hours_ago * HOUR))
    spec = PreemptionSpec("idle", "p", 1, Proof("Sum"), [], at)
    finished = "" if phase.open else at
    return Preemption(
        Metadata(name, "ns", creation_timestamp=at),
        spec,
        PreemptionStatus(phase, finished_at=finished),
    )


def ref(name: str) -> Reference:
    return Reference("kaiwo.silogen.ai/v1alpha1", "GpuWorkload", "ns", name, Uid(f"{name}-uid"))


def plan(preemptor: Reference | None) -> engine.Plan:
    victim = engine.Victim(ref("victim"), ref("root"), {"amd.com/gpu": 4}, "OldestIdle", "because")
    proof = engine.Proof(engine.ProofLevel.SUM, {"amd.com/gpu": 4}, {}, {"amd.com/gpu": 4})
    return engine.Plan(PlanId("p1"), engine.Plane.IDLE, 7, proof, preemptor, (victim,))


def test_records_go_after_their_time_to_live_and_open_intents_never() -> None:
    records = [
        record("old", IntentPhase.COMPLETED, 169),
        record("old-abandoned", IntentPhase.ABANDONED, 168),
        record("young", IntentPhase.COMPLETED, 167),
        record("old-open", IntentPhase.EVICTING, 500),
        record("old-planned", IntentPhase.PLANNED, 500),
    ]
    gone = expired(records, NOW, WEEK, 5_000)
    assert {found.metadata.name for found in gone} == {"old", "old-abandoned"}


def test_above_the_cap_the_oldest_closed_records_go_first() -> None:
    records = [record(f"r{hours}", IntentPhase.COMPLETED, hours) for hours in (1, 2, 3, 4)]
    records.append(record("open", IntentPhase.EVICTING, 9))
    gone = expired(records, NOW, WEEK, 3)
    assert [found.metadata.name for found in gone] == ["r4", "r3"]


def test_a_name_is_made_of_plane_preemptor_and_attempt() -> None:
    assert intent_name(plan(ref("demand")), 2) == "idle-demand-uid-2"
    assert intent_name(plan(None), 1) == "idle-always-1"
    assert intent_name(plan(None), 9, dry_run=True) == "idle-dry-run-p1"


def test_the_record_names_each_victims_rule_reason_and_the_proof() -> None:
    spec = intent_spec(plan(ref("demand")), 2, NOW)
    assert spec.proof == Proof("Sum", need={"amd.com/gpu": 4}, freed={"amd.com/gpu": 4})
    assert spec.plan_id == "p1"
    assert spec.revision == 7
    assert spec.preemptor is not None
    assert spec.preemptor.uid == "demand-uid"
    assert [(v.subject.name, v.rule, v.reason) for v in spec.victims] == [
        ("victim", "OldestIdle", "because")
    ]
