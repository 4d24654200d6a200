"""`harmOrder`: who saved last goes first among equals; a save that is worth it is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import msgspec
import pytest

from kubeworld.units.durations import HOUR, MINUTE
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api import kueue
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Workload,
)
from reprieve.engine.quota.targets.harm import longest_wait, worth_waiting_for
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.intake.quota_workloads import PodSetRows, workload_row
from reprieve.records.idle.replay import unpacked
from reprieve.records.quota.record import QuotaInput, inputs_of, restored

GPU = "nvidia.com/gpu"
NOW = Nanos(1_000_000 * 1_000_000_000)
HOURS = Nanos(NOW + 10 * HOUR)


def minutes(count: float) -> Nanos:
    """Return the instant so many minutes from now."""
    return Nanos(NOW + int(count * MINUTE))


def queue(harm_order: bool = True) -> Configuration:
    quota = FlavorQuotas("a100", {GPU: Quota(8)})
    rules = Preemption(Policy.LOWER_PRIORITY)
    return Configuration(
        {"team": ClusterQueue("team", "", (ResourceGroup((GPU,), (quota,)),), rules)},
        {},
        {"a100": ResourceFlavor("a100")},
        {"ns/main": LocalQueue("ns/main", "team")},
        {"ns": {}},
        Settings(harm_order=harm_order),
    )


def waiting(gpus: int, priority: int = 10) -> Workload:
    pods = (PodSet("main", 1, {GPU: gpus}),)
    return Workload("ns", "train", "uid-train", "ns/main", priority, pod_sets=pods)


def running(
    name: str,
    gpus: int,
    since: float,
    saved: float | None = None,
    again: float | None = None,
    priority: int = 1,
) -> Workload:
    """A workload with quota; instants in minutes from now."""
    held = AdmittedPodSet("main", 1, {GPU: "a100"}, {GPU: gpus})
    return Workload(
        "ns",
        name,
        f"uid-{name}",
        "ns/main",
        priority,
        pod_sets=(PodSet("main", 1, {GPU: gpus}),),
        admission=Admission("team", (held,)),
        reserved_at=minutes(since),
        checkpoint=None if saved is None else minutes(saved),
        next_checkpoint=None if again is None else minutes(again),
    )


def decided(
    holders: list[Workload], gpus: int, harm_order: bool = True, now: Nanos = NOW
) -> CycleResult:
    configuration = queue(harm_order)
    holdings, queues = Holdings(configuration), Queues(configuration)
    for each in holders:
        holdings.hold(each)
    queues.push(waiting(gpus))
    return cycle(holdings, queues, now)


def victims(result: CycleResult) -> list[str]:
    return [target.holder.workload.name for entry in result.entries for target in entry.issued]


def test_who_saved_last_goes_first_among_equals_only_and_only_if_asked() -> None:
    old_but_saved = running("saved", 4, -100, saved=-1)
    young = running("young", 4, -20)
    assert victims(decided([old_but_saved, young], 4, harm_order=False)) == ["young"]
    assert victims(decided([old_but_saved, young], 4)) == ["saved"]
    # A save before it got its quota says nothing, and a priority goes before all of it.
    assert victims(decided([replace(old_but_saved, checkpoint=minutes(-200)), young], 4)) == [
        "young"
    ]
    assert victims(decided([replace(old_but_saved, priority=2), young], 4)) == ["young"]


def test_a_save_that_is_worth_the_wait_is_waited_for_and_then_its_work_goes() -> None:
    result = decided([running("a", 8, -25, again=5)], 8)
    (entry,) = result.entries
    assert (entry.outcome, entry.issued) == (Outcome.PREEMPTING, ())
    assert entry.message.endswith(
        ". Preempts 1 workload(s) once their work is saved, which is expected by "
        f"{format_instant(minutes(5))}"
    )
    assert result.retries == {"team": minutes(5)}
    saved = running("a", 8, -25, saved=5, again=35)
    assert victims(decided([saved], 8, now=minutes(5))) == ["a"]
    assert victims(decided([running("a", 8, -25, again=5)], 8, harm_order=False)) == ["a"]


def test_a_save_that_is_overdue_or_comes_late_is_not_waited_for() -> None:
    assert victims(decided([running("a", 8, -25, again=0)], 8)) == ["a"]
    assert victims(decided([running("a", 8, -25, again=-1)], 8)) == ["a"]
    # A minute is lost; the wait would be six, of which each counts a fifth.
    assert victims(decided([running("a", 8, -1, again=6)], 8)) == ["a"]
    assert victims(decided([running("a", 8, -1, again=4)], 8)) == []


def test_the_room_is_kept_while_a_save_is_waited_for() -> None:
    configuration = queue()
    holdings, queues = Holdings(configuration), Queues(configuration)
    holdings.hold(running("a", 6, -25, again=5))
    queues.push(waiting(8))
    small = replace(waiting(2, priority=0), name="small", uid="uid-small")
    queues.push(small)
    for number in range(3):
        (entry,) = cycle(holdings, queues, NOW, number).entries
        assert (entry.workload.name, entry.outcome) == ("train", Outcome.PREEMPTING)


def test_of_several_saves_the_one_is_waited_for_at_which_least_is_lost() -> None:
    one, other = running("a", 4, -28, again=2), running("b", 4, -29, again=1)
    both = [(one, 4), (other, 4)]
    assert worth_waiting_for(both, 8, NOW, HOURS) == minutes(2)
    # Beyond the first save nothing is gained by a second one that is far away.
    late = running("b", 4, -1, again=29)
    assert worth_waiting_for([(one, 4), (late, 4)], 8, NOW, HOURS) == minutes(2)
    assert worth_waiting_for([(running("b", 4, -1), 4)], 8, NOW, HOURS) is None
    assert worth_waiting_for([(one, 0)], 8, NOW, HOURS) is None
    assert worth_waiting_for(both, 8, NOW, minutes(1)) == minutes(1)
    assert worth_waiting_for(both, 8, NOW, minutes(0.5)) is None


def test_a_wide_victim_is_not_kept_for_long_by_how_narrow_the_preemptor_is() -> None:
    """Others may wait for the rest of what comes free."""
    wide = running("a", 8, -2, again=28)
    assert worth_waiting_for([(wide, 8)], 1, NOW, HOURS) is None
    assert worth_waiting_for([(running("a", 8, -20, again=10), 8)], 1, NOW, HOURS) == minutes(10)


def deferred(each: Workload, at: Nanos, again: float) -> Workload:
    return replace(each, next_checkpoint=Nanos(at + int(again * MINUTE)))


def test_who_says_again_and_again_that_it_saves_soon_goes_when_the_bound_ends() -> None:
    configuration = queue()
    holdings, queues = Holdings(configuration), Queues(configuration)
    queues.push(waiting(8))
    silent = running("a", 8, -600)
    told = []
    for minute in range(0, 70, 2):
        now = minutes(minute)
        holdings.hold(deferred(silent, now, 4))
        queues.flush(["team"])
        (entry,) = cycle(holdings, queues, now, minute).entries
        told.append((minute, [target.holder.workload.name for target in entry.issued]))
        if entry.issued:
            break
    # At 56 min a save is expected at 60, by then it has waited for long enough.
    assert told == [*((minute, []) for minute in range(0, 58, 2)), (58, ["a"])]


@pytest.mark.parametrize(
    ("since", "again", "bound", "expected"),
    [
        pytest.param(-25, 5, 60, 40, id="a third more than half an hour"),
        pytest.param(-40, 5, 60, 60, id="a third more than 45 minutes"),
        pytest.param(-170, 10, 60, 60, id="three hours: the bound"),
        pytest.param(-8, 2, 60, 13 + 1 / 3, id="ten minutes"),
        pytest.param(-25, 5, 15, 15, id="a bound of less"),
    ],
)
def test_how_long_a_preemptor_waits_follows_the_interval_within_the_bound(
    since: int, again: int, bound: int, expected: float
) -> None:
    victims = [running("a", 4, since, again=again), running("b", 4, -1)]
    assert longest_wait(victims, bound * MINUTE) == int(expected * MINUTE)
    assert longest_wait(victims[1:], bound * MINUTE) == 0


def test_without_any_time_for_it_no_save_is_waited_for() -> None:
    configuration = queue()
    settings = replace(configuration.settings, max_save_wait=0)
    configuration = replace(configuration, settings=settings)
    holdings, queues = Holdings(configuration), Queues(configuration)
    holdings.hold(running("a", 8, -25, again=5))
    queues.push(waiting(8))
    assert victims(cycle(holdings, queues, NOW)) == ["a"]


def test_what_a_preemptor_waited_counts_until_it_has_quota_or_is_gone() -> None:
    configuration = queue()
    queues = Queues(configuration)
    queues.push(waiting(8))
    queues.note_save_wait("ns/train", NOW)
    queues.note_save_wait("ns/train", minutes(5))
    queues.push(replace(waiting(8), boost=3))
    queues.configure(configuration)
    assert queues.waits_for_saves_since("ns/train") == NOW
    queues.delete("ns/train")
    queues.push(waiting(8))
    assert queues.waits_for_saves_since("ns/train") is None


def test_no_preemptor_waits_longer_than_the_bound_whatever_work_says_of_its_saves() -> None:
    random = Random(19)
    waited = 0
    for _ in range(150):
        bound = random.choice((5, 17, 30, 60))
        configuration = queue()
        settings = replace(configuration.settings, max_save_wait=bound * MINUTE)
        configuration = replace(configuration, settings=settings)
        holdings, queues = Holdings(configuration), Queues(configuration)
        widths = random.choice(((8,), (4, 4), (2, 2, 4), (1,) * 8))
        holders = [
            running(f"w{place}", width, -random.randint(1, 90), priority=random.randint(0, 2))
            for place, width in enumerate(widths)
        ]
        queues.push(waiting(random.randint(1, 8)))
        now, first, number = NOW, None, 0
        while True:
            for each in holders:
                holdings.hold(deferred(each, now, random.uniform(-1, 30)))
            queues.flush(["team"])
            result = cycle(holdings, queues, now, number)
            (entry,) = result.entries
            assert entry.outcome is Outcome.PREEMPTING
            if entry.issued:
                break
            first = now if first is None else first
            assert now < first + bound * MINUTE
            due = result.retries["team"]
            now, number = Nanos(min(due, now + random.randint(1, 5) * MINUTE)), number + 1
        waited += first is not None
        assert first is None or now <= first + bound * MINUTE
    assert waited > 75


def test_what_was_waited_is_recorded_and_decided_with_again() -> None:
    configuration = queue()
    holdings, queues = Holdings(configuration), Queues(configuration)
    holdings.hold(running("a", 8, -25, again=20))
    queues.push(waiting(8))
    queues.note_save_wait("ns/train", minutes(-45))
    result = cycle(holdings, queues, NOW)
    assert victims(result) == ["a"]
    ((_, written),) = inputs_of(result, holdings, queues, NOW).items()
    again, waiting_again, _ = restored(unpacked(written, QuotaInput))
    assert waiting_again.waits_for_saves_since("ns/train") == minutes(-45)
    assert victims(cycle(again, waiting_again, NOW)) == ["a"]


def row(annotations: Mapping[str, str], reserved: str = "2026-01-01T00:00:00Z") -> Workload:
    conditions = []
    if reserved:
        conditions.append(
            {
                "type": "QuotaReserved",
                "status": "True",
                "reason": "QuotaReserved",
                "message": "",
                "lastTransitionTime": reserved,
            }
        )
    written = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "annotations": dict(annotations)},
        "spec": {"podSets": []},
        "status": {"conditions": conditions},
    }
    return workload_row(msgspec.convert(written, kueue.Workload), PodSetRows())


@pytest.mark.parametrize(
    ("interval", "after_min"),
    [("30m", 30), ("168h", 168 * 60), ("169h", None), ("0s", None), ("-1m", None), ("soon", None)],
)
def test_a_workload_says_when_it_saves_by_its_annotations(
    interval: str, after_min: int | None
) -> None:
    said = {"reprieve.dev/checkpoint-interval": interval}
    start = row({}).reserved_at
    assert start is not None

    def after(count: int) -> Nanos | None:
        return None if after_min is None else Nanos(start + (count + after_min) * MINUTE)

    assert (row(said).checkpoint, row(said).next_checkpoint) == (None, after(0))
    saved = row({**said, "reprieve.dev/last-checkpoint": "2026-01-01T01:00:00Z"})
    assert (saved.checkpoint, saved.next_checkpoint) == (Nanos(start + 60 * MINUTE), after(60))
    before = row({**said, "reprieve.dev/last-checkpoint": "2025-12-31T00:00:00Z"})
    assert before.next_checkpoint == after(0)
    assert row(said, reserved="").next_checkpoint is None
    assert row({"reprieve.dev/last-checkpoint": "yesterday"}).checkpoint is None
