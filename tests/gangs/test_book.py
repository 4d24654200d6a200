"""What the book of gangs tells the queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kubeworld.units.durations import SECOND
from reprieve.api.gangs import KOORDINATOR, SCHEDULER_PLUGINS, Door, PodGroup
from reprieve.engine.cluster.rows import PodRow
from reprieve.planes.scheduling.gangs.book import GangBook
from reprieve.settings.coscheduling import CoschedulingSettings
from tests.engine.builders import later, pod

PREFIX = "gang.scheduling.koordinator.sh/"


class Told:
    """A book, and what it told."""

    def __init__(self, **settings: Any) -> None:
        self.requeued: list[str] = []
        self.changed: list[str] = []
        given = CoschedulingSettings(**settings)
        self.book = GangBook(lambda: given, self._requeue, self.changed.append)

    def _requeue(self, rows: Iterable[PodRow]) -> None:
        self.requeued += [row.name for row in rows]

    def group(
        self, name: str = "g", minimum: int = 2, door: Door = KOORDINATOR, **notes: Any
    ) -> None:
        body = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "annotations": {f"{PREFIX}{key}": value for key, value in notes.items()},
            },
            "spec": {"minMember": minimum, "scheduleTimeoutSeconds": 10},
        }
        self.book.apply_group(door, msgspec.convert(body, PodGroup))


def member(name: str, gang: str = "g", **facts: Any) -> Any:
    labels = {KOORDINATOR.label: gang}
    return pod(name, labels=labels, gang=f"default/{gang}", priority=5, **facts)


def test_a_group_comes_into_the_queue_with_its_last_member_and_leaves_with_one() -> None:
    told = Told()
    told.group()
    first, second = member("p-0"), member("p-1")
    told.book.see(first)
    assert told.book.key_of(first) == "gang:default/g"
    assert (told.book.fact("gang:default/g"), told.changed) == (None, [])
    told.book.see(second)
    fact = told.book.fact("gang:default/g")
    assert fact is not None and fact.priority == 5
    told.book.gone(second.uid)
    assert told.book.fact("gang:default/g") is None
    assert told.changed == ["gang:default/g"] * 2


def test_members_change_their_entry_with_the_group_of_their_gang() -> None:
    told = Told()
    told.group(minimum=1)
    told.book.see(member("p-0"))
    told.group(minimum=1, groups='["default/g", "x/h"]')
    assert told.requeued == ["p-0"]
    assert told.book.key_of(member("p-0")) == "gang:default/g,x/h"
    # The partner is missing, so neither entry may be tried.
    assert told.book.fact("gang:default/g") is None
    assert told.book.fact("gang:default/g,x/h") is None


def test_a_gang_is_judged_anew_when_a_member_goes_over_to_another() -> None:
    told = Told()
    told.group()
    told.group("h", minimum=1)
    first, second = member("p-0"), member("p-1")
    told.book.see(first)
    told.book.see(second)
    told.book.park(second, "n1", 10)
    assert told.book.fact("gang:default/g") is not None
    told.changed.clear()
    moved = later(second, gang="default/h", labels=member("p-1", "h").labels)
    # It waits no longer in Permit for the gang that it has left.
    assert told.book.see(moved) == [second.uid]
    assert told.changed == ["gang:default/h", "gang:default/g"]
    assert told.book.fact("gang:default/g") is None
    assert [row.name for row in told.book.pending("gang:default/g")] == ["p-0"]


def test_a_group_of_gangs_that_comes_again_was_not_satisfied_before() -> None:
    told = Told()
    groups: dict[str, Any] = {"groups": '["default/g", "default/h"]'}
    for name in ("g", "h"):
        told.group(name, minimum=1, **groups)
        told.book.see(member(f"{name}-0", name))
    told.book.satisfy("gang:default/g,default/h")
    assert told.book.key_of(member("g-0")) == ""
    for name in ("g", "h"):
        told.group(name, minimum=1)
    for name in ("g", "h"):
        told.group(name, minimum=1, **groups)
    assert told.book.key_of(member("g-0")) == "gang:default/g,default/h"


def test_pods_of_a_gang_that_was_satisfied_once_are_entries_of_their_own() -> None:
    told = Told()
    told.group()
    for name in ("p-0", "p-1", "p-2"):
        told.book.see(member(name))
    told.book.satisfy("gang:default/g")
    assert told.requeued == ["p-0", "p-1", "p-2"]
    assert told.book.key_of(member("p-0")) == ""


def test_all_of_a_strict_gang_leave_permit_with_the_first_whose_time_is_over() -> None:
    for mode, expected in (("Strict", {"p-0", "p-1"}), ("NonStrict", {"p-0"})):
        told = Told()
        told.group(minimum=3, mode=mode)
        rows = [member(name) for name in ("p-0", "p-1")]
        for deadline, row in enumerate(rows, start=10):
            told.book.see(row)
            told.book.park(row, "n1", deadline)
        assert told.book.overdue(9) == []
        (gone,) = told.book.overdue(10)
        assert {each.row.name for each in gone} == expected
        assert set(told.book.parked) == {r.uid for r in rows if r.name not in expected}


def test_members_in_permit_are_tried_again_when_a_sibling_is_seen_bound() -> None:
    told = Told()
    policy: dict[str, Any] = {"match-policy": "waiting-and-running"}
    told.group(**policy)
    first, second = member("p-0"), member("p-1")
    told.book.see(first)
    told.book.see(second)
    told.book.park(first, "n1", 10)
    assert told.book.see(later(second, node="n2")) == [first.uid]
    assert told.book.see(later(second, node="n2")) == []


def test_a_rejected_pod_group_of_scheduler_plugins_is_held_back() -> None:
    told = Told(pod_group_backoff_seconds=3)
    told.group(minimum=1, door=SCHEDULER_PLUGINS)
    told.book.see(member("p-0"))
    told.book.hold_back("gang:default/g", 0)
    assert told.book.fact("gang:default/g") is None
    told.book.let_go(3 * SECOND - 1)
    assert told.book.fact("gang:default/g") is None
    told.book.let_go(3 * SECOND)
    assert told.book.fact("gang:default/g") is not None
    told.group(minimum=1)
    told.book.hold_back("gang:default/g", 0)
    assert told.book.fact("gang:default/g") is not None


def test_a_gang_whose_pod_group_goes_waits_for_another() -> None:
    told = Told()
    told.group(minimum=1)
    told.book.see(member("p-0"))
    told.book.remove_group(KOORDINATOR, "default/g")
    assert told.book.fact("gang:default/g") is None
    told.group(minimum=1)
    assert told.book.fact("gang:default/g") is not None
