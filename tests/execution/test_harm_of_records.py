"""What harm budgets count of a record whose victims had saved after a notice."""

from __future__ import annotations

import msgspec
import pytest

from reprieve.api.reprieve import Preemption
from reprieve.records.displacements import displacements_of
from reprieve.records.harm import harms_in


def record(phase: str) -> Preemption:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "old", "uid": "o", "namespace": "team"}
    victim = {
        "subject": reference,
        "root": reference,
        "rule": "Priority",
        "amounts": {"nvidia.com/gpu": 1},
        "action": "Delete",
        "lineage": "owner/old",
        "lostDeviceSeconds": 100,
    }
    spec = {
        "planId": "p",
        "attempt": 1,
        "proof": {"level": "Placement"},
        "plane": "scheduling",
        "decidedAt": "2026-03-04T10:00:00Z",
        "preemptor": {**reference, "name": "new", "uid": "n"},
        "victims": [victim],
    }
    status = {
        "phase": phase,
        "lostAfterSave": {"o": 7},
        "victims": [{"uid": "o", "state": "Evicted"}],
    }
    found = {"metadata": {"name": "r", "namespace": "n"}, "spec": spec, "status": status}
    return msgspec.convert(found, Preemption)


@pytest.mark.parametrize(("phase", "lost", "saved"), [("Completed", 7, 93), ("Evicting", 100, 0)])
def test_the_record_of_a_plan_that_is_over_says_what_was_lost_in_truth(
    phase: str, lost: int, saved: int
) -> None:
    """Of an open one the decision counts, until its end says the rest."""
    intent = record(phase)
    (harm,) = harms_in(intent, list(displacements_of(intent, lambda ref: None)))
    assert (harm.lost_device_seconds, harm.saved_device_seconds) == (lost, saved)
