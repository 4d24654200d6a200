"""Which demands an open record of another plane serves, by what a record names."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    ObjectRef,
    Placement,
    Preemption,
    PreemptionSpec,
    PreemptionStatus,
    Proof,
)
from reprieve.engine.plan import Plane
from reprieve.planes.idle.joint.owned_elsewhere import owners_by_name

SPEC = PreemptionSpec(
    plane="scheduling",
    plan_id="p",
    attempt=1,
    proof=Proof("Placement"),
    victims=[],
    decided_at="2026-03-04T10:15:00Z",
    preemptor=ObjectRef("v1", "Pod", "train-0", "pod-0", "team"),
    placement=[Placement("pod-0", "n0"), Placement("pod-1", "n1")],
    preemptor_lineage="owner/job",
)


def record(spec: PreemptionSpec, phase: IntentPhase) -> Preemption:
    return Preemption(Metadata("one"), spec, PreemptionStatus(phase))


def test_an_open_record_serves_its_lineage_its_preemptor_and_all_pods_that_it_placed() -> None:
    assert owners_by_name([record(SPEC, IntentPhase.EVICTING)]) == dict.fromkeys(
        ("owner/job", "job", "pod-0", "pod-1"), Plane.SCHEDULING
    )


@pytest.mark.parametrize(
    ("spec", "phase"),
    [
        (SPEC, IntentPhase.COMPLETED),
        (SPEC, IntentPhase.ABANDONED),
        (replace(SPEC, plane="idle"), IntentPhase.EVICTING),
        (replace(SPEC, dry_run=True), IntentPhase.PLANNED),
    ],
    ids=["completed", "abandoned", "of idle", "dry run"],
)
def test_what_is_over_tried_only_or_the_planes_own_serves_nobody(
    spec: PreemptionSpec, phase: IntentPhase
) -> None:
    assert owners_by_name([record(spec, phase)]) == {}
