"""Options beyond the reference: each changes decisions where it is on, and none where it is off."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.displacements import Displacements, participant_of
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Policy, Preemption, Settings
from reprieve.engine.quota.waiting.queues import Queues
from tests.quota.cases import NOW, SECOND, Scene, scene
from tests.quota.test_cycle import job, one_queue
from tests.quota.test_rules import held
from tests.quota.test_targets import found

LOWER = Preemption(Policy.LOWER_PRIORITY)


def later(seconds: float) -> Nanos:
    return Nanos(NOW + int(seconds * SECOND))


def decided(holdings: Holdings, queues: Queues, now: Nanos = NOW) -> Entry:
    (entry,) = cycle(holdings, queues, now).entries
    return entry


# Minimum runtimes


def test_a_minimum_runtime_protects_from_its_own_kind_of_preemption() -> None:
    configuration = one_queue(preemption=LOWER)

    def outcome(after_s: float, **runtimes: int) -> Outcome:
        holdings, queues = Holdings(configuration), Queues(configuration)
        holdings.hold(held("a", amount=4, **runtimes))
        queues.push(job("high", 4, priority=2))
        return decided(holdings, queues, later(after_s)).outcome

    assert outcome(0) is outcome(0, reclaim_min_runtime_s=60) is Outcome.PREEMPTING
    assert outcome(59.9, preempt_min_runtime_s=60) is Outcome.NO_CANDIDATES
    assert outcome(60, preempt_min_runtime_s=60) is Outcome.PREEMPTING


def test_who_is_refused_by_a_minimum_runtime_is_told_why_and_tried_again_when_it_ends() -> None:
    configuration = one_queue(preemption=LOWER)
    holdings, queues = Holdings(configuration), Queues(configuration)
    holdings.hold(held("a", amount=2, preempt_min_runtime_s=60))
    holdings.hold(held("b", amount=2, preempt_min_runtime_s=90))
    queues.push(job("high", 2, priority=2))
    queues.push(job("alike", 2, priority=2))
    result = cycle(holdings, queues, NOW)
    (entry,) = result.entries
    assert entry.message.endswith(
        ". Not preempted: 2 workload(s) within their minimum runtime, "
        "the first until 1970-01-12T13:47:40Z"
    )
    assert result.retries == {"team": later(60)}
    # Set aside with everything of its shape: nothing but the end of the protection brings it back.
    assert cycle(holdings, queues, later(61)).entries == []
    queues.flush(result.retries)
    again = decided(holdings, queues, later(60))
    assert [target.holder.workload.name for target in again.targets] == ["a"]


def test_nobody_within_its_minimum_runtime_is_ever_a_target() -> None:
    random = Random(31)
    seen: Counter[str] = Counter()
    for number in range(800):
        case = scene(random)
        runtimes = {
            each.key: (random.choice((0, 2, 100)), random.choice((0, 3, 100)))
            for each in case.admitted
        }
        young = tuple(
            replace(
                each,
                preempt_min_runtime_s=runtimes[each.key][0],
                reclaim_min_runtime_s=runtimes[each.key][1],
            )
            for each in case.admitted
        )
        entries = _entries(replace(case, admitted=young))
        for entry, _ in entries:
            for target in entry.targets:
                victim = target.holder.workload
                assert victim.admission is not None and victim.reserved_at is not None
                own = victim.admission.cluster_queue == entry.cluster_queue
                end = later(0) - victim.reserved_at >= SECOND * runtimes[victim.key][not own]
                assert end or target.holder.evicted, number
                seen["taken"] += end and any(runtimes[victim.key])
        plain = [[t.holder.key for t in entry.targets] for entry, _ in _entries(case)]
        seen["changed"] += plain != [[t.holder.key for t in e.targets] for e, _ in entries]
        seen["retried"] += any(until is not None for _, until in entries)
    assert min(seen[word] for word in ("taken", "changed", "retried")) >= 25, seen


def _entries(case: Scene) -> list[tuple[Entry, Nanos | None]]:
    holdings, queues = Holdings(case.configuration), Queues(case.configuration)
    for workload in case.admitted:
        holdings.hold(workload)
    queues.push(case.incoming)
    result = cycle(holdings, queues, NOW)
    for queue, until in result.retries.items():
        assert until > NOW, queue
    return [(entry, result.retries.get(entry.cluster_queue)) for entry in result.entries]


# Held pairs


def test_two_are_held_from_their_last_allowed_preemption_until_the_window_has_passed() -> None:
    memory, a, b, c = Displacements(2, HOUR), job("a", 1), job("b", 1), job("c", 1)
    for seconds, one, other in ((0, a, b), (300, b, a), (600, a, b)):
        memory.record(one, other, later(seconds))
        memory.admitted(one, later(seconds))
        assert memory.held(later(seconds)) == {}
    memory.record(b, a, later(900))
    memory.admitted(b, later(900))
    pair = (participant_of(a).lineage, participant_of(b).lineage)
    assert {each: hold.until for each, (_, hold) in memory.held(later(900)).items()} == {
        pair: later(3_600)
    }
    assert memory.held_until(a, b, later(3_599)) == later(3_600)
    assert memory.held_until(b, a, later(900)) is None
    assert memory.held_until(a, b, later(3_600)) is None
    memory.undo(b, "a")
    assert memory.held_until(a, b, later(900)) is None
    assert memory.concerns(a) and memory.concerns(b) and not memory.concerns(c)


def test_a_held_pair_sets_nobody_else_of_its_shape_aside_and_is_tried_again_when_it_ends() -> None:
    configuration = one_queue(preemption=LOWER)
    holdings, queues, ledger = Holdings(configuration), Queues(configuration), Displacements()
    holdings.hold(held("a", amount=4))
    queues.push(job("high", 4, priority=2))
    queues.push(job("other", 4, priority=2, created=later(1)))
    for at in (0, 10):
        ledger.record(job("high", 4, priority=2), held("a", amount=4), later(at))
    # The same uid is what a real workload keeps from one attempt to the next.
    assert [w.uid for w in queues.pending()] == ["high", "other"]
    result = cycle(holdings, queues, later(15), 0, ledger)
    (entry,) = result.entries
    assert entry.outcome is Outcome.NO_CANDIDATES
    assert "1 workload(s) that it displaced in turn, the first until" in entry.message
    assert result.retries == {"team": later(20)}
    (entry,) = cycle(holdings, queues, later(15), 1, ledger).entries
    assert (entry.workload.name, entry.outcome) == ("other", Outcome.PREEMPTING)


# Idle ones first


def test_idle_ones_go_first_among_equals_only_and_only_if_asked() -> None:
    configuration = one_queue(preemption=LOWER)

    def victims(idle_first: bool, priority: int = 0, reserved: int = 0) -> list[str]:
        found = replace(configuration, settings=Settings(idle_first=idle_first))
        holdings, queues = Holdings(found), Queues(found)
        holdings.hold(held("busy", amount=2))
        idle = replace(held("idle", amount=2, priority=priority), idle=True)
        holdings.hold(replace(idle, reserved_at=later(reserved)))
        queues.push(job("high", 2, priority=9))
        return [target.holder.workload.name for target in decided(holdings, queues).targets]

    assert victims(False) == ["busy"]
    assert victims(True) == ["idle"]
    assert victims(True, priority=1) == victims(True, reserved=-1) == ["busy"]


def test_idle_ones_are_preferred_exactly_as_if_their_uids_came_first() -> None:
    random, changed = Random(37), 0
    for number in range(1_000):
        case = scene(random)
        idle = {each.key: random.random() < 0.4 for each in case.admitted}
        marked = replace(
            case, admitted=tuple(replace(each, idle=idle[each.key]) for each in case.admitted)
        )
        assert found(marked) == found(case), number
        settings = replace(case.configuration.settings, idle_first=True)
        on = found(replace(marked, configuration=replace(case.configuration, settings=settings)))
        named = tuple(
            replace(each, uid=f"{'0' if idle[each.key] else '1'}{each.uid}")
            for each in case.admitted
        )
        assert on == found(replace(case, admitted=named)), number
        changed += on != found(case)
    assert changed >= 15
