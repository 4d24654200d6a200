"""`harmOrder`: who saved last goes first among equals; a save that is worth it is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from reprieve.api import kueue
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.harm import worth_waiting_for
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
from reprieve.engine.quota.queues import Queues
from reprieve.engine.quota.state import Holdings
from reprieve.intake.quota_workloads import PodSetRows, workload_row
from reprieve.units.durations import MINUTE
from reprieve.units.instants import Nanos, format_instant

GPU = "nvidia.com/gpu"
NOW = Nanos(1_000_000 * 1_000_000_000)


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
    assert worth_waiting_for(both, 8, NOW) == minutes(2)
    # Beyond the first save nothing is gained by a second one that is far away.
    assert worth_waiting_for([(one, 4), (running("b", 4, -1, again=29), 4)], 8, NOW) == minutes(2)
    assert worth_waiting_for([(running("b", 4, -1), 4)], 8, NOW) is None
    assert worth_waiting_for([(one, 0)], 8, NOW) is None


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
