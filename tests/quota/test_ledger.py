"""The ledger of who preempted whom: what is taken back, what passes, what restarts leave of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api import kueue
from reprieve.api.reprieve import (
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
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.model import Workload
from reprieve.planes.quota.context import QuotaOptions
from reprieve.planes.quota.deciding.held_pairs import HeldPairs
from reprieve.planes.quota.watches import Held
from reprieve.records.displacements import stored
from reprieve.telemetry.metrics import Metrics
from tests.quota.cases import NOW


def later(seconds: int) -> Nanos:
    return Nanos(NOW + seconds * SECOND)


def work(name: str) -> Workload:
    return Workload("ns", name, uid=name)


def test_a_preemption_that_did_not_happen_is_taken_back_from_who_would_have_done_it() -> None:
    memory, x, y = Displacements(limit=1), work("x"), work("y")
    memory.record(x, y, later(0))
    memory.record(y, x, later(1))
    memory.undo(x, "y")
    # It is the turn of y that counts on.
    assert memory.held_until(y, x, later(2), above=1) == later(11)
    assert memory.held_until(x, y, later(2), above=1) is None
    memory.undo(x, "y")
    assert memory.held_until(y, x, later(2), above=1) == later(11)


def test_without_a_window_nobody_is_held() -> None:
    memory, x, y = Displacements(window=0), work("x"), work("y")
    for seconds in range(4):
        memory.record(x, y, later(seconds))
        assert memory.held_until(x, y, later(seconds)) is None
    assert memory.held(later(4)) == {}


def restored(
    *former: Preemption, known: bool = True, waits: bool = False, interrupted: tuple[str, ...] = ()
) -> HeldPairs:
    options = SimpleNamespace(loop_limit=2, loop_window=HOUR)
    context = SimpleNamespace(
        options=options,
        clock=SimpleNamespace(wall=lambda: later(3)),
        loops=None,
        metrics=Metrics(),
        events=None,
        disruptions=None,
        writes=True,
    )

    def there(ref: ObjectRef) -> Participant | None:
        return Participant(Lineage(f"owner/{ref.name}"), "ns") if known else None

    pairs = HeldPairs(cast("Any", context), there, lambda ref, since: waits)
    pairs.restore(reversed(former), interrupted)
    assert pairs.ledger is not None
    return pairs


@pytest.mark.parametrize(
    ("phase", "waits", "held"),
    [
        (IntentPhase.COMPLETED, False, False),
        (IntentPhase.COMPLETED, True, True),
        (IntentPhase.ABANDONED, True, False),
    ],
)
def test_a_restart_pauses_a_higher_priority_for_completed_plans_alone_while_it_waits(
    phase: IntentPhase, waits: bool, held: bool
) -> None:
    pairs = restored(record(1, phase), record(2, phase), known=False, waits=waits)
    high, low = work("high"), work("low")
    assert pairs.ledger is not None
    end = later(12)
    assert pairs.ledger.held_until(high, low, later(3), above=5) == (end if held else None)


def test_a_restart_knows_new_objects_again_from_what_the_records_say_of_their_lineage() -> None:
    memory = Displacements()
    for turn in range(2):
        memory.record(of("a", turn), of("b", turn), later(2 * turn))
        memory.record(of("b", turn + 1), of("a", turn), later(2 * turn + 1))
    records = []
    for number, (uids, row) in enumerate(memory.recorded.items()):
        plain = record(number, IntentPhase.COMPLETED, *uids)
        told = msgspec.json.decode(msgspec.json.encode(stored([row])))
        records.append(replace(plain, spec=replace(plain.spec, input=told)))
    pairs = restored(*records)
    assert pairs.ledger is not None
    assert pairs.ledger.loops(later(4)) == memory.loops(later(4)) != ()
    new = of("a", 9), of("b", 9)
    held = [ledger.held_until(*new, later(4)) for ledger in (memory, pairs.ledger)]
    assert held[0] == held[1] is not None
    # What is no record of displacements is passed over.
    spoilt = replace(plain, spec=replace(plain.spec, input={"displacements": {"x": 1}}))
    assert restored(spoilt).ledger is not None


def test_records_of_earlier_versions_count_for_the_work_of_objects_that_are_there() -> None:
    phase = IntentPhase.COMPLETED
    pairs = restored(record(1, phase), record(2, phase), waits=True)
    assert pairs.ledger is not None
    high, low = of("high", 0), of("low", 7)
    assert pairs.ledger.held_until(high, low, later(3), above=5) == later(12)


@pytest.mark.parametrize("state", [None, VictimState.SPARED, VictimState.FAILED, VictimState.GONE])
def test_who_was_not_evicted_by_an_abandoned_plan_counts_for_nothing(
    state: VictimState | None,
) -> None:
    states = [] if state is None else [VictimStatus("low", state)]
    former = [
        replace(each, status=replace(each.status, victims=states))
        for each in (record(number, IntentPhase.ABANDONED) for number in range(3))
    ]
    pairs = restored(*former, waits=True)
    assert pairs.ledger is not None and not pairs.ledger.governor.rows


def test_what_an_interrupted_plan_did_not_bring_its_preemptor_is_not_held_against_it() -> None:
    former = [record(number, IntentPhase.COMPLETED) for number in range(3)]
    names = tuple(each.metadata.name for each in former)
    high, low = of("high", 0), of("low", 7)
    for interrupted, held in ((), True), (names, False):
        pairs = restored(*former, waits=True, interrupted=interrupted)
        assert pairs.ledger is not None and len(pairs.ledger.governor.rows) == 3
        assert (pairs.ledger.held_until(high, low, later(3), above=5) is not None) == held


def test_a_dry_run_displaced_nobody() -> None:
    plain = record(1, IntentPhase.PLANNED)
    pairs = restored(replace(plain, spec=replace(plain.spec, dry_run=True)))
    assert pairs.ledger is not None and not pairs.ledger.governor.rows


@pytest.mark.parametrize("finished", [False, True])
def test_a_line_of_work_is_named_by_its_newest_workload_that_is_not_finished(
    finished: bool,
) -> None:
    pairs, named = restored(), list[tuple[str, str]]()
    pairs._loops = cast(
        "Any",
        SimpleNamespace(
            knows_any=True,
            again=lambda participant, known: named.append((participant.lineage, known.uid)),
        ),
    )
    condition = {"type": "Finished", "status": str(finished), "reason": "Succeeded"}
    since = {"message": "", "lastTransitionTime": format_instant(later(0))}
    status = {"conditions": [condition | since]}
    metadata = {"name": "low", "namespace": "ns", "uid": "new"}
    new = Held.of(msgspec.convert({"metadata": metadata, "status": status}, kueue.Workload))
    pairs.seen(None, new)
    pairs.seen(new, new)  # which is no news
    pairs.seen(new, None)
    assert named == ([] if finished else [("owner/low", "new")])


def of(name: str, number: int) -> Workload:
    participant = Participant(Lineage(f"owner/{name}"), "ns")
    return Workload("ns", f"{name}{number}", uid=f"{name}{number}", participant=participant)


def record(
    seconds: int, phase: IntentPhase, preemptor: str = "high", victim: str = "low"
) -> Preemption:
    high, low = (ObjectRef("v1", "Workload", name, name, "ns") for name in (preemptor, victim))
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


def test_other_numbers_of_the_quota_plane_reach_the_governor_unless_it_has_its_own() -> None:
    pairs = restored()
    assert pairs.ledger is not None
    governor = pairs.ledger.governor
    before, now = QuotaOptions(loop_limit=2), QuotaOptions(loop_limit=5, loop_window=60 * SECOND)
    pairs.use(before, now)
    assert (governor.policy.loop_limit, governor.policy.loop_window) == (5, 60 * SECOND)
    # Its section says 5: what the quota plane had was another number.
    pairs.use(before, QuotaOptions(loop_limit=9, loop_window=HOUR))
    assert governor.policy.loop_limit == 5
