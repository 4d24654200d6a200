"""What a unit lost is the same wherever it is told: since its save, where it saved before."""

from __future__ import annotations

import pytest

from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import (
    Action,
    IntentPhase,
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    PreemptionStatus,
    Proof,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.execution.accounts.displaced_units import displaced_units
from reprieve.records.displacements import displacements_of
from reprieve.web.mirror.reported import preemption_record
from reprieve.web.records.victims import victim_units

_AT = format_instant(Nanos(1_800_000_000 * 10**9))


def record(after_save: dict[str, int]) -> Preemption:
    """Return a record of a gang of two pods, and a job of one: 900 and 500 device seconds."""

    def victim(name: str, unit: str, lost: int) -> Victim:
        ref = ObjectRef("v1", "Pod", name, f"uid-{name}", "team")
        return Victim(
            root=ref, subject=ref, amounts={}, rule="LowerPriority", action=Action.DELETE,
            unit=unit, lineage=f"line-{unit}", lost_device_seconds=lost,
        )  # fmt: skip

    victims = [
        victim("gang-0", "team/gang", 900),
        victim("gang-1", "team/gang", 0),
        victim("job-0", "team/job", 500),
    ]
    states = [VictimStatus(each.root.uid, VictimState.EVICTED, _AT) for each in victims]
    spec = PreemptionSpec(
        plan_id="plan", plane="scheduling", attempt=1, decided_at=_AT,
        proof=Proof("Proven"), victims=victims,
    )  # fmt: skip
    status = PreemptionStatus(IntentPhase.COMPLETED, victims=states, lost_after_save=after_save)
    return Preemption(Metadata("plan", "reprieve"), spec, status)


@pytest.mark.parametrize(
    ("after_save", "gang", "job"),
    [
        ({}, 900, 500),
        ({"uid-gang-0": 8, "uid-gang-1": 4}, 12, 500),
        ({"uid-gang-0": 0, "uid-gang-1": 0, "uid-job-0": 0}, 0, 0),
        ({"uid-gang-0": 8}, 900, 500),  # the other pod's is not known
    ],
)
def test_disruption_page_and_ledger_say_the_same(
    after_save: dict[str, int], gang: int, job: int
) -> None:
    intent = record(after_save)
    states = {each.uid: each for each in intent.status.victims}

    assert [each.lost_device_seconds for each in displaced_units(intent, states, {})] == [gang, job]
    assert [each.lost for each in victim_units(intent)] == [gang, job]
    assert preemption_record(intent).lost_device_seconds == gang + job
    rows = displacements_of(intent, lambda ref: None)
    assert [each.lost_device_seconds for each in rows] == [gang, job]
