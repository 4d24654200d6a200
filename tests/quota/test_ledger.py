"""The ledger of who preempted whom: what is taken back, what passes, what restarts leave of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    PreemptionStatus,
    Proof,
    Victim,
)
from reprieve.controllers.quota.held_pairs import HeldPairs
from reprieve.engine.quota.protection import Ledger
from reprieve.units.durations import HOUR, SECOND
from reprieve.units.instants import Nanos, format_instant
from tests.quota.cases import NOW


def later(seconds: int) -> Nanos:
    return Nanos(NOW + seconds * SECOND)


def test_a_preemption_that_did_not_happen_is_taken_back_from_who_would_have_done_it() -> None:
    ledger = Ledger(limit=1)
    ledger.record("x", "y", later(0))
    ledger.record("y", "x", later(1))
    ledger.undo("x", "y")
    # It is the turn of y that counts on.
    assert ledger.held_until("y", "x", later(2), above=1) == later(1) + HOUR
    assert ledger.held_until("x", "y", later(2), above=1) is None
    ledger.undo("x", "y")
    assert ledger.held_until("y", "x", later(2), above=1) == later(1) + HOUR


def test_without_a_window_nobody_is_held() -> None:
    ledger = Ledger(window=0)
    for seconds in range(4):
        ledger.record("x", "y", later(seconds))
        assert ledger.held_until("x", "y", later(seconds)) is None
    assert not ledger.concerns("x")


@pytest.mark.parametrize(
    ("phase", "held"), [(IntentPhase.COMPLETED, False), (IntentPhase.ABANDONED, True)]
)
def test_a_restart_holds_no_higher_priority_for_preemptions_that_were_completed(
    phase: IntentPhase, held: bool
) -> None:
    former = [record(1, phase), record(2, phase)]
    options = SimpleNamespace(loop_limit=2, loop_window=HOUR)
    context = SimpleNamespace(options=options, clock=SimpleNamespace(wall=lambda: later(3)))
    pairs = HeldPairs(cast("Any", context))
    pairs.restore(reversed(former))
    assert pairs.ledger is not None
    end = later(1) + HOUR
    assert pairs.ledger.held_until("high", "low", later(3), above=5) == (end if held else None)
    # Who is not above the other is held as before.
    assert pairs.ledger.held_until("high", "low", later(3)) == end


def record(seconds: int, phase: IntentPhase) -> Preemption:
    high, low = (ObjectRef("v1", "Workload", name, name, "ns") for name in ("high", "low"))
    spec = PreemptionSpec(
        plane="quota",
        plan_id=f"p{seconds}",
        attempt=0,
        proof=Proof("Quota"),
        victims=[Victim(low, low, {}, "rule")],
        decided_at=format_instant(later(seconds)),
        preemptor=high,
    )
    return Preemption(Metadata(f"p{seconds}"), spec, PreemptionStatus(phase))
