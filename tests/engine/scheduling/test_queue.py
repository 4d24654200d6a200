"""Who is tried next, who waits for what, and for how long (specification 22)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from kubeworld.units.durations import MILLISECOND, MINUTE, SECOND
from reprieve.engine.cluster.forest import Forest
from reprieve.engine.cluster.rows import GroupRow, Kind, Labels, PodRow
from reprieve.engine.cluster.trees import Way
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.queueing.entries import Entry, Gate
from reprieve.engine.scheduling.queueing.events import Event, Happening
from reprieve.engine.scheduling.queueing.places import Places
from reprieve.engine.scheduling.queueing.queue import Outcome, Queue
from reprieve.units.ids import Uid
from tests.engine.builders import group, node, pod

FIT = FilterName.NODE_RESOURCES_FIT
TAINTS = FilterName.TAINT_TOLERATION


@dataclass(slots=True)
class Facts:
    """The cluster as PreEnqueue sees it."""

    forest: Forest = field(default_factory=lambda: Forest(trees=True))
    pods: dict[str, set[Uid]] = field(default_factory=dict)
    missing_claims: set[str] = field(default_factory=set)
    classes: dict[str, str] = field(default_factory=dict)  # by extended resource

    def group(self, key: str) -> GroupRow | None:
        return self.forest.get(key)

    def root(self, key: str) -> tuple[Way, str]:
        return self.forest.root(key)

    def children(self, key: str) -> list[str]:
        return self.forest.children(key)

    def known(self, key: str) -> int:
        return len(self.pods.get(key, ()))

    def claims(self, pod: PodRow) -> str:
        names = [name for _, name in pod.claims if name in self.missing_claims]
        return f'resourceclaim "{names[0]}" not found' if names else ""

    def gang_key(self, pod: PodRow) -> str:
        del pod
        return ""

    def namespace_labels(self, namespace: str) -> Labels:
        return ()

    def device_class(self, resource: str) -> str:
        return self.classes.get(resource, "")


@dataclass(slots=True)
class Site:
    """A queue and the time."""

    facts: Facts = field(default_factory=Facts)
    now: int = 10 * SECOND
    queue: Queue = field(init=False)

    def __post_init__(self) -> None:
        self.queue = Queue(self.facts)

    def add(self, *rows: PodRow) -> None:
        for row in rows:
            if row.group:
                self.facts.pods.setdefault(f"{row.namespace}/{row.group}", set()).add(row.uid)
            self.queue.add(row, self.now)

    def add_group(self, row: GroupRow) -> None:
        before = self.facts.forest.get(row.key)
        self.facts.forest.apply(row)
        lowered = before is not None and (row.min_count or 0) < (before.min_count or 0)
        self.queue.group_changed(row.key, self.now, lowered=lowered)

    def gang(self, size: int, priority: int = 0) -> list[PodRow]:
        self.add_group(group("g", min_count=size, priority=priority))
        members = [pod(f"g-{i}", group="g", priority=priority) for i in range(size)]
        self.add(*members)
        return members

    def pop(self) -> Unit | None:
        self.queue.flush(self.now)
        return self.queue.pop(self.now)

    def reject(self, *plugins: str) -> Unit:
        unit = self.pop()
        assert unit is not None
        return self.done(unit, Outcome.REJECTED, dict.fromkeys(unit.pods, plugins))

    def done(
        self, unit: Unit, outcome: Outcome, rejected: Mapping[Uid, Collection[str]] | None = None
    ) -> Unit:
        self.queue.done(unit, outcome, self.now, rejected_by=rejected or {})
        return unit

    def tries(self, until: int, *plugins: str) -> list[int]:
        """Reject whoever comes, whenever; return the times in milliseconds."""
        found = []
        while self.now <= until:
            unit = self.pop()
            if unit is not None:
                found.append(self.now // MILLISECOND)
                self.done(unit, Outcome.REJECTED, dict.fromkeys(unit.pods, plugins))
            self.now += 100 * MILLISECOND
        return found

    def event(self, what: Happening, **facts: object) -> None:
        self.queue.on_event(Event(what, **facts), self.now)  # type: ignore[arg-type]


def names(unit: Unit | None) -> list[str]:
    return [] if unit is None else [uid.removeprefix("pod-") for uid in unit.pods]


def test_the_higher_priority_goes_first_and_among_equals_who_came_first() -> None:
    site = Site()
    site.add(pod("late-low", priority=1))
    site.now += 1
    site.add(pod("high", priority=5), pod("b", priority=3))
    site.now += 1
    site.add(pod("a", priority=3))
    assert [names(site.pop()) for _ in range(5)] == [["high"], ["b"], ["a"], ["late-low"], []]


def test_of_one_instant_and_priority_who_came_first_goes_first_whatever_the_uid() -> None:
    site = Site()
    site.add(pod("c"), pod("a"), pod("b"))
    assert [names(site.pop()) for _ in range(3)] == [["c"], ["a"], ["b"]]


def test_a_group_is_ordered_by_its_own_priority_and_popped_with_all_its_members() -> None:
    site = Site()
    site.add(pod("plain", priority=5))
    site.gang(3, priority=10)
    unit = site.pop()
    assert unit == Unit((Uid("pod-g-0"), Uid("pod-g-1"), Uid("pod-g-2")), "default/g")
    assert names(site.pop()) == ["plain"]


def test_members_come_by_priority_attempts_queue_time_and_name() -> None:
    site = Site()
    site.add_group(group("g"))
    site.add(pod("z", group="g"), pod("y", group="g"))
    assert names(site.reject()) == ["y", "z"]  # both have one attempt now
    site.now += 5 * SECOND
    site.add(pod("b", group="g"), pod("a", group="g"), pod("first", group="g", priority=1))
    assert names(site.pop()) == ["first", "y", "z", "a", "b"]


def test_a_rejected_pair_is_tried_at_the_seconds_that_the_specification_names() -> None:
    site = Site(now=10_400 * MILLISECOND)
    site.gang(2)
    tries = site.tries(60 * SECOND, FIT)
    assert tries == [10_400, 12_000, 15_000, 20_000, 29_000, 44_000, 59_000]


@pytest.mark.parametrize("size", [1, 2, 64])
def test_a_gang_that_cannot_fit_is_tried_at_most_twelve_times_a_minute(size: int) -> None:
    site = Site()
    site.gang(size)
    assert 5 <= len(site.tries(site.now + 60 * SECOND, FIT)) <= 12


def test_a_rejected_pod_waits_for_an_event_of_a_plugin_that_rejected_it() -> None:
    site = Site()
    site.add(pod("p", cpu=100))
    site.reject(FIT)
    assert site.tries(site.now + 4 * MINUTE) == []
    site.event(Happening.POD_ADDED, pod=pod("other", node="n"))
    assert names(site.pop()) == []
    site.event(Happening.POD_DELETED, pod=pod("other", node="n"))
    assert names(site.pop()) == ["p"]


def test_a_pod_whose_backoff_goes_on_is_popped_when_nobody_else_is_ready() -> None:
    site = Site()
    site.add(pod("a"), pod("b"))
    site.reject(FIT)
    site.event(Happening.POD_DELETED, pod=pod("other", node="n"))
    assert site.queue.place(Uid("pod-a")) == "backoff"
    assert [names(site.pop()), names(site.pop())] == [["b"], ["a"]]


def test_a_pod_that_failed_by_an_error_waits_its_time_out() -> None:
    site = Site()
    site.add(pod("a"))
    unit = site.pop()
    assert unit is not None
    site.done(unit, Outcome.ERROR)
    assert site.pop() is None
    site.now += 2 * SECOND
    assert names(site.pop()) == ["a"]


def test_an_event_during_the_cycle_is_not_lost() -> None:
    site = Site()
    site.add(pod("p"))
    unit = site.pop()
    assert unit is not None
    site.event(Happening.POD_DELETED, pod=pod("other", node="n"))
    site.done(unit, Outcome.REJECTED, {Uid("pod-p"): [FIT]})
    assert names(site.pop()) == ["p"]


def test_events_are_of_interest_to_who_is_being_tried_or_was_rejected_and_to_nobody_else() -> None:
    site = Site()
    assert not site.queue.listens
    site.add(pod("p"))
    assert not site.queue.listens, "it is tried whatever happens"
    unit = site.pop()
    assert unit is not None and site.queue.listens
    site.done(unit, Outcome.REJECTED, {Uid("pod-p"): [FIT]})
    assert site.queue.listens
    site.queue.remove(Uid("pod-p"))
    assert not site.queue.listens


def test_a_hint_ends_a_groups_backoff_at_most_once_a_second() -> None:
    site = Site()
    site.gang(2)
    tried = []
    for _ in range(50):
        unit = site.pop()
        if unit is not None:
            tried.append(site.now)
            site.done(unit, Outcome.REJECTED, dict.fromkeys(unit.pods, (FIT,)))
        site.now += 100 * MILLISECOND
        site.event(Happening.POD_DELETED, pod=pod("other", node="n"))
    gaps = [later - earlier for earlier, later in pairwise(tried[1:])]
    assert len(tried) == 6
    assert min(gaps) >= SECOND


def test_a_hint_that_comes_too_soon_after_another_is_put_off_and_not_lost() -> None:
    site = Site()
    site.gang(64)
    for _ in range(5):
        site.reject(FIT)
        site.event(Happening.POD_DELETED, pod=pod("first", node="n"))
        site.now += SECOND
    site.reject(FIT)
    site.event(Happening.POD_DELETED, pod=pod("first", node="n"))
    site.reject(FIT)
    site.now += 100 * MILLISECOND
    site.event(Happening.POD_DELETED, pod=pod("second", node="n"))
    (tried,) = site.tries(site.now + 5 * SECOND, FIT)
    assert tried * MILLISECOND <= site.now - 3 * SECOND


def test_after_five_minutes_a_pod_is_tried_whatever_the_hints_say() -> None:
    site = Site()
    site.add(pod("p"))
    site.reject(TAINTS)
    (tried,) = site.tries(site.now + 9 * MINUTE, TAINTS)
    assert 5 * MINUTE < tried * MILLISECOND - 10 * SECOND <= 5 * MINUTE + 31 * SECOND


def test_members_wait_for_their_group_and_their_gang_for_its_members() -> None:
    site = Site()
    site.add(pod("g-0", group="g"))
    assert site.pop() is None
    assert site.queue.place(Uid("pod-g-0")) == "incomplete"
    assert site.queue.gate(Uid("pod-g-0")) == Gate(
        "GangScheduling", 'waiting for pods\'s pod group "g" to appear in scheduling queue'
    )
    site.add_group(group("g", min_count=2))
    assert site.pop() is None
    assert site.queue.gate(Uid("pod-g-0")) == Gate(
        "GangScheduling", "waiting for minCount pods from a gang to appear in scheduling queue"
    )
    site.add(pod("g-1", group="g"))
    assert names(site.pop()) == ["g-0", "g-1"]


def test_a_lower_min_count_releases_a_gang_and_another_change_does_not() -> None:
    site = Site()
    owner = group("g", min_count=3)
    site.add_group(owner)
    site.add(pod("g-0", group="g"), pod("g-1", group="g"))
    site.add_group(replace(owner, priority=7))
    assert site.pop() is None
    site.add_group(replace(owner, min_count=2))
    assert names(site.pop()) == ["g-0", "g-1"]


def test_a_group_whose_object_is_deleted_is_set_aside_and_comes_back_with_it() -> None:
    site = Site()
    site.gang(2)
    row = site.facts.forest.get("default/g")
    assert row is not None
    site.facts.forest.remove("default/g")
    site.queue.group_changed("default/g", site.now)
    assert site.pop() is None
    assert site.queue.pods()["incomplete"] == 2
    site.add_group(row)
    assert names(site.pop()) == ["g-0", "g-1"]


def test_scheduling_gates_hold_a_pod_and_its_whole_group() -> None:
    site = Site()
    gated = pod("g-0", group="g", gates=("a", "b"))
    site.add_group(group("g", min_count=2))
    site.add(gated, pod("g-1", group="g"))
    assert site.pop() is None
    assert site.queue.gate(gated.uid) == Gate(
        "SchedulingGates", "waiting for scheduling gates: [a b]"
    )
    site.add(replace(gated, gates=()))
    assert names(site.pop()) == ["g-0", "g-1"]


def test_a_pod_waits_for_its_claim() -> None:
    site = Site()
    site.facts.missing_claims.add("gpus")
    site.add(pod("p", claims=(("gpu", "gpus"),)))
    assert site.pop() is None
    site.facts.missing_claims.clear()
    site.event(Happening.OBJECT, kind=Kind.RESOURCE_CLAIM, namespace="default", name="gpus")
    assert names(site.pop()) == ["p"]


def test_members_that_come_during_the_cycle_join_when_it_ends() -> None:
    site = Site()
    site.add_group(group("g"))
    site.add(pod("a", group="g"))
    unit = site.pop()
    assert unit is not None
    site.add(pod("b", group="g"))
    assert site.queue.place(Uid("pod-b")) == "pending"
    site.queue.done(unit, Outcome.PLACED, site.now, placed=unit.pods)
    assert names(site.pop()) == ["b"]


def test_the_rest_of_a_placed_group_is_next_among_equals() -> None:
    site = Site()
    site.gang(2)
    site.now += 1
    site.add(pod("plain"))
    unit = site.pop()
    assert unit is not None
    site.queue.done(unit, Outcome.PLACED, site.now, placed=unit.pods[:1])
    assert [names(site.pop()), names(site.pop())] == [["g-1"], ["plain"]]


def test_a_group_is_held_while_its_victims_are_being_deleted() -> None:
    site = Site()
    site.gang(2)
    unit = site.pop()
    assert unit is not None
    site.queue.hold("default/g")
    site.done(unit, Outcome.REJECTED, dict.fromkeys(unit.pods, (FIT,)))
    site.now += 60 * SECOND
    site.event(Happening.POD_DELETED, pod=pod("victim", node="n"))
    assert site.pop() is None
    assert site.queue.gate(Uid("pod-g-0")) == Gate(
        "DefaultPreemption", "waiting for the preemption for this pod group to be finished"
    )
    site.queue.release("default/g", site.now)
    assert names(site.pop()) == ["g-0", "g-1"]  # the deletion seen meanwhile is not lost


def test_a_released_group_waits_for_a_deletion() -> None:
    site = Site()
    site.gang(2)
    unit = site.pop()
    assert unit is not None
    site.queue.hold("default/g")
    site.done(unit, Outcome.REJECTED, dict.fromkeys(unit.pods, (FIT,)))
    site.queue.release("default/g", site.now)
    site.now += 60 * SECOND
    assert site.pop() is None
    site.event(Happening.POD_DELETED, pod=pod("victim", node="n"))
    assert names(site.pop()) == ["g-0", "g-1"]


def test_a_failed_preemption_makes_its_preemptor_active_at_once() -> None:
    site = Site()
    site.add(pod("p"))
    unit = site.pop()
    assert unit is not None
    site.queue.hold("pod-p")
    site.done(unit, Outcome.REJECTED, {Uid("pod-p"): [FIT]})
    site.queue.release("pod-p", site.now, activate=True)
    assert names(site.pop()) == ["p"]


def test_an_undecided_unit_comes_again_at_once_and_nothing_is_counted() -> None:
    site = Site()
    site.gang(2)
    unit = site.pop()
    assert unit is not None
    assert names(site.done(unit, Outcome.AGAIN)) == names(site.pop())


def test_a_pod_that_goes_leaves_the_others() -> None:
    site = Site()
    members = site.gang(3)
    site.queue.remove(members[1].uid)
    assert names(site.pop()) == ["g-0", "g-2"]
    site.add(pod("plain"))
    site.queue.remove(Uid("pod-plain"))
    assert site.pop() is None


def test_off_the_gate_every_member_is_an_entry_of_its_own() -> None:
    site = Site()
    site.queue = Queue(site.facts, groups=False)
    site.add(pod("a", group="g"), pod("b", group="g"))
    assert [names(site.pop()), names(site.pop())] == [["a"], ["b"]]


def test_only_up_to_the_priority_of_a_nomination_that_went_away_pods_are_asked() -> None:
    site = Site()
    site.add(pod("low", priority=1), pod("high", priority=9))
    site.reject(FIT)
    site.reject(FIT)
    site.event(Happening.POD_DELETED, pod=pod("other", node="n"), at_most=5)
    assert [names(site.pop()), names(site.pop())] == [["low"], []]


def test_what_is_queued_is_counted_by_place_and_kind() -> None:
    site = Site()
    site.gang(3)
    site.add(pod("a"), pod("b", gates=("x",)), pod("m", group="missing"))
    assert {key: n for key, n in site.queue.entities().items() if n} == {
        ("active", "pod"): 1,
        ("active", "podgroup"): 1,
        ("gated", "pod"): 1,
    }
    assert site.queue.pods() == {
        "active": 4,
        "backoff": 0,
        "unschedulable": 0,
        "gated": 1,
        "incomplete": 1,
        "pending": 0,
    }


def test_a_node_is_offered_to_those_whom_it_could_take() -> None:
    site = Site()
    site.add(pod("small", cpu=1000), pod("large", cpu=9000))
    site.reject(FIT)
    site.reject(FIT)
    site.event(Happening.NODE_ADDED, node=node("n", cpu=4000))
    assert [names(site.pop()), names(site.pop())] == [["small"], []]


def test_a_device_class_is_offered_to_those_who_ask_for_what_it_stands_for() -> None:
    site = Site()
    site.add(*(pod(name, extended={f"example.com/{name}": 1}) for name in ("a", "b")))
    site.reject(FIT)
    site.reject(FIT)
    site.facts.classes["example.com/b"] = "of-b"
    site.event(Happening.OBJECT, kind=Kind.DEVICE_CLASS, name="of-b")
    assert [names(site.pop()), names(site.pop())] == [["b"], []]


@pytest.mark.parametrize("grouped", [False, True], ids=["pod", "gang"])
def test_whoever_is_reminded_is_tried_then_without_a_hint(grouped: bool) -> None:
    site = Site()
    if grouped:
        site.gang(2)
    else:
        site.add(pod("p"))
    for _ in range(8):  # until its backoff is as long as it gets
        unit = site.reject(FIT)
        site.now += MINUTE
        if not grouped:
            site.queue.activate(unit.pods, site.now)
    unit = site.reject(FIT)
    at = site.now + 3 * SECOND
    site.queue.remind(unit, at)
    due = site.queue.next_flush(site.now)
    assert due is not None and due <= at
    site.now = at - 1
    assert site.pop() is None
    site.now = at
    site.queue.flush(site.now)
    if grouped:
        assert site.pop() == unit
    else:
        # Its backoff is not over, and nobody else is ready: it need not wait.
        assert site.queue.place(unit.pods[0]) == "backoff"
        assert site.pop() == unit


def test_a_reminder_is_forgotten_once_the_unit_is_tried_or_gone() -> None:
    site = Site()
    site.add(pod("p"), pod("q"))
    first, second = site.reject(FIT), site.reject(FIT)
    for unit in (first, second):
        site.queue.remind(unit, site.now + MINUTE)
    site.queue.remind(first, site.now + 2 * MINUTE)  # it has been decided anew
    site.queue.remove(second.pods[0])
    site.now += MINUTE
    assert site.pop() is None
    site.queue.activate(first.pods, site.now)
    assert site.reject(FIT) == first
    site.now += MINUTE
    assert site.pop() is None


def test_who_was_rejected_on_an_older_revision_is_moved_the_most_important_first() -> None:
    site = Site()
    site.add(pod("a"), pod("b"), pod("top", priority=5))
    for revision in (7, 7, 7):
        site.queue.tried_on(site.reject(FIT), revision)
    assert site.queue.retry(7, site.now, 1)
    assert site.pop() is None
    assert not site.queue.retry(8, site.now, 1)
    assert [names(site.pop()), names(site.pop())] == [["top"], []]
    assert site.queue.retry(8, site.now, 2)
    assert [names(site.pop()), names(site.pop())] == [["a"], ["b"]]


def test_a_group_that_is_tried_on_an_older_revision_is_moved_at_most_once_a_second() -> None:
    site = Site()
    site.gang(2)
    tries = 0
    for revision in range(1, 51):
        site.queue.retry(revision, site.now, 10)
        unit = site.pop()
        if unit is not None:
            tries += 1
            site.done(unit, Outcome.REJECTED, dict.fromkeys(unit.pods, (FIT,)))
            site.queue.tried_on(unit, revision)
        site.now += 100 * MILLISECOND
    assert 3 <= tries <= 7


def test_a_member_that_comes_asks_its_own_group_and_none_of_those_that_wait_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the work for many groups would grow with the square of their number."""
    site, asked = Site(), list[str]()
    wanted = Places.wanted

    def counted(places: Places, entry: Entry, event: Event) -> bool:
        asked.append(entry.key)
        return wanted(places, entry, event)

    for number in range(50):
        site.add_group(group(f"g-{number}", min_count=2))
        site.add(pod(f"g-{number}-0", group=f"g-{number}"))
    monkeypatch.setattr(Places, "wanted", counted)
    site.add(pod("g-7-1", group="g-7"))
    assert asked == ["default/g-7"]
    unit = site.pop()
    assert unit is not None and unit.group == "default/g-7"
