"""The queue of waiting pods and groups: who is tried next, and who waits for what.

A state machine without a clock: `now` (nanoseconds, from any fixed start that agrees with whole
seconds) is handed in. Entries are plain pods or groups; each is in one place:

| place | leaves it by |
| --- | --- |
| active | `pop`: priority, turns between namespaces, then queue time (`queue_turns`) |
| backoff | its second has passed; a pod also by `pop` when nothing is active, a group by a hint |
| unschedulable | an event that a rejecting plugin holds for helpful (plain pods only); `remind` |
| gated | an event of the plugin that refused it at PreEnqueue |
| in flight | `done` |

A tree of groups is one entry, that of its root. Members whose group is unknown, or one above it,
are `incomplete` and no entry. How entries move between the places is `queue_places`; here is who
they are and how their cycles end. Source: specification 22, with 5.1, 5.2 and 9.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from itertools import count
from typing import Final

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.trees import Way
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.queueing.counts import entities_by_queue, pods_by_queue
from reprieve.engine.scheduling.queueing.entries import (
    Backoff,
    Entry,
    Gate,
    Place,
    QueuedMember,
    cycle_order,
    own_changes,
)
from reprieve.engine.scheduling.queueing.events import GANG, Event, Happening
from reprieve.engine.scheduling.queueing.flights import Flights
from reprieve.engine.scheduling.queueing.hints import asks
from reprieve.engine.scheduling.queueing.incomplete import Incomplete
from reprieve.engine.scheduling.queueing.places import Places
from reprieve.engine.scheduling.queueing.pre_enqueue import Facts, tree_of
from reprieve.units.ids import Uid

__all__ = ["Outcome", "Queue"]

_NONE: Final[Mapping[Uid, Collection[str]]] = {}


class Outcome(Enum):
    """How the cycle of a unit ended."""

    PLACED = auto()  # at least the minimum; the rest of a group is tried again
    REJECTED = auto()
    ERROR = auto()
    AGAIN = auto()  # nothing was decided: the state had changed


class Queue:
    """All waiting pods of one or more scheduler names.

    `groups`: gate GenericWorkload; off, every pod is an entry of its own.
    """

    def __init__(
        self, facts: Facts, *, groups: bool = True, backoff: Backoff | None = None
    ) -> None:
        self._facts = facts
        self._groups = groups
        self._backoff = backoff or Backoff()
        self._entries: dict[str, Entry] = {}
        self._numbers = count()
        self._owner: dict[Uid, str] = {}  # entry key of each pod that is in an entry
        self._trees: set[str] = set()  # keys of entries of groups that name a parent
        self._incomplete = Incomplete(facts)
        self._places = Places(facts, self._entries)
        self._flights = Flights()

    # Pods and groups that are added, changed and deleted.

    def add(self, row: PodRow, now: int) -> None:
        """Apply a pending pod, or what has changed about one."""
        if row.uid in self._owner:
            self._update(row, now)
            return
        group = self._group_of(row)
        if group and self._incomplete.update(group, row):
            return
        member = QueuedMember(row, now)
        if not group:
            self._join(row.uid, "", {row.uid: member}, now, "PodAdd")
            return
        way, root = self._facts.root(group)
        if way is Way.MISSING:
            self._incomplete.add(group, (member,))
            return
        self._join(root, root, {row.uid: member}, now, "PodAdd")
        tree = tree_of(self._facts, root)
        self.on_event(Event(Happening.PENDING_ADDED, pod=row, group=group, tree=tree), now)

    def remove(self, uid: Uid) -> None:
        """Forget a pod that is bound, deleted or finished."""
        key = self._owner.pop(uid, None)
        if key is None:
            self._incomplete.remove(uid)
            return
        entry = self._entries[key]
        entry.members.pop(uid, None)
        entry.arrived.pop(uid, None)
        if not entry.pods and entry.place is not Place.IN_FLIGHT:
            self._drop(entry)

    def group_changed(self, key: str, now: int, *, lowered: bool = False) -> None:
        """The group object was created, changed or deleted; `lowered`: its minCount is lower."""
        row = self._facts.group(key)
        if row is None:
            for each in {key, *self._trees} & self._entries.keys():
                if self._entries[each].place is not Place.IN_FLIGHT:
                    self._set_aside(self._entries[each])
            return
        entry = self._entries.get(key)
        added = self._incomplete.ready(key)
        for owner, members in added.values():
            self._join(owner, owner, members, now, Happening.GROUP_ADDED)
        if not added and entry is not None and entry.priority != row.priority:
            entry.priority = row.priority
            if entry.place is Place.ACTIVE:
                self._places.activate(entry, "")
        root = self._facts.root(key)[1]
        if added or lowered or root != key:
            what = Happening.GROUP_LOWERED if lowered else Happening.GROUP_ADDED
            tree = tree_of(self._facts, root)
            self.on_event(Event(what, group=key, tree=tree), now)

    # Trying.

    def pop(self, now: int) -> Unit | None:
        """Return the next unit to try, its pods in the order of 5.2; None when none is ready."""
        entry = self._places.first()
        if entry is None:
            return None
        self._places.remove(entry)
        entry.place = Place.IN_FLIGHT
        entry.reminder = None
        entry.flight = frozenset(entry.members)
        self._flights.start(entry.key)
        members = sorted(entry.members.values(), key=cycle_order)
        for member in members:
            member.attempts += 1
        return Unit(tuple(member.row.uid for member in members), entry.group)

    def done(
        self,
        unit: Unit,
        outcome: Outcome,
        now: int,
        *,
        placed: Collection[Uid] = (),
        rejected_by: Mapping[Uid, Collection[str]] = _NONE,
    ) -> None:
        """Return a unit to the queue after its cycle.

        `placed`: its pods that are being bound, which leave the queue. `rejected_by`: the plugins
        that rejected each of the others.
        """
        entry = self._entries[unit.group or unit.pods[0]]
        events = self._flights.land(entry.key)
        for uid in placed:
            entry.members.pop(uid, None)
            self._owner.pop(uid, None)
        stayed = bool(entry.members)
        entry.members.update(entry.arrived)
        entry.arrived = {}
        if not entry.members:
            self._drop(entry)
            return
        if entry.group and not self._set_aside(entry):
            return
        if outcome is not Outcome.AGAIN:
            entry.futile = None
        for uid, member in entry.members.items():
            if uid in rejected_by:
                member.rejected_by = frozenset(rejected_by[uid])
            if uid in entry.flight:
                if outcome is Outcome.AGAIN:
                    member.attempts -= 1
                else:
                    member.since = now
        if outcome is Outcome.AGAIN:
            self._places.enqueue(entry, now, "ScheduleAgain")
        elif outcome is Outcome.PLACED:
            entry.rejections = entry.errors = 0
            entry.until = -1
            entry.since = entry.since if stayed else now
            self._places.enqueue(entry, now, "ScheduleAttemptSuccess")
        else:
            self._requeue(entry, outcome, now, events)

    def _requeue(self, entry: Entry, outcome: Outcome, now: int, events: Iterable[Event]) -> None:
        """Restore what was rejected or failed: to wait for events, or for its backoff's end."""
        if outcome is Outcome.ERROR:
            entry.errors += 1
        else:
            entry.errors = 0
            entry.rejections += 1
        entry.since = now
        entry.until = self._backoff.end(entry, now)
        # Whom no plugin rejected, no hint can wake.
        unasked = not any(member.rejected_by for member in entry.members.values())
        wanted = unasked or any(self._places.wanted(entry, event) for event in events)
        failed = "ScheduleAttemptFailure"
        if outcome is Outcome.REJECTED and not entry.group and not wanted:
            self._places.pool_in(entry, Place.UNSCHEDULABLE, now, failed)
        elif entry.group and wanted and not unasked and outcome is Outcome.REJECTED:
            self._places.enqueue(entry, now, failed)
            self._places.end_early(entry, now, failed)
        else:
            self._places.enqueue(entry, now, failed)

    def restore(self, unit: Unit, now: int) -> None:
        """Return a unit to the queue that was not tried: it has its place and its turn again."""
        key = unit.group or unit.pods[0]
        if key in self._flights:
            self._places.give_back(self._entries[key])
            self.done(unit, Outcome.AGAIN, now)

    def pass_over(self, unit: Unit, now: int) -> None:
        """Return a unit to the queue that was not tried, since it would be rejected as before."""
        entry = self._entries[unit.group or unit.pods[0]]
        rejected_on = entry.futile
        self.done(unit, Outcome.REJECTED, now)
        self.note(unit, rejected_on)

    def note(self, unit: Unit, rejected_on: object) -> None:
        """Keep what a unit was rejected on, until it is tried or called for otherwise."""
        entry = self._entries.get(unit.group or unit.pods[0])
        if entry is not None and entry.place is not Place.IN_FLIGHT:
            entry.futile = None if entry.called else rejected_on
            entry.called = False

    def tried_on(self, unit: Unit, revision: int | None) -> None:
        """Keep the revision on which a unit was rejected (`Progress.helped`), None to keep none."""
        entry = self._entries.get(unit.group or unit.pods[0])
        if entry is not None:
            entry.revision = revision

    def retry(self, revision: int, now: int, most: int) -> bool:
        """Move who was rejected on an older revision, as by a hint; return whether all were moved.

        Hints read what rejected a unit. What it would preempt for, and which places its members
        would leave to each other, may depend on more: whatever helps any unit is worth another try.
        """
        old = [
            entry
            for entry in self._entries.values()
            if entry.revision is not None
            and entry.revision < revision
            and entry.place in (Place.UNSCHEDULABLE, Place.ERRORS)
            and not entry.errors
        ]
        old.sort(key=lambda entry: (-entry.priority, entry.revision or 0))
        for entry in old[:most]:
            self._places.wake(entry, now, Happening.CHANGED)
        return len(old) <= most

    def rejected_on(self, unit: Unit) -> object:
        """Return what a unit was rejected on, None where it is to be tried all the same."""
        entry = self._entries.get(unit.group or unit.pods[0])
        return None if entry is None else entry.futile

    def among(self, unit: Unit) -> tuple[int, str]:
        """Return with which others a unit has its turns: its priority and its namespace."""
        entry = self._entries[unit.group or unit.pods[0]]
        return entry.priority, entry.namespace

    def give_up(self, unit: Unit, now: int) -> None:
        """End the cycle of a unit by an error, unless it has ended already."""
        if (unit.group or unit.pods[0]) in self._flights:
            self.done(unit, Outcome.ERROR, now)

    @property
    def listens(self) -> bool:
        """Whether an event is of interest to any entry; certain where the answer is no."""
        return self._flights.any or self._places.listens

    def on_event(self, event: Event, now: int) -> None:
        """Move those for whom a rejecting plugin holds the event for helpful."""
        self._flights.record(event)
        self._places.on_event(event, now)

    # Preemptions that are being carried out (9.4).

    def hold(self, key: str) -> None:
        """Refuse the entry at PreEnqueue until `release`: its victims are being deleted."""
        self._places.held.add(key)

    def hold_back(self, uid: Uid, now: int) -> str:
        """Hold the entry of a pod that is not in flight; return its key, empty without one."""
        key = self._owner.get(uid, "")
        entry = self._entries.get(key)
        if entry is None:
            return ""
        self.hold(key)
        self._places.leave(entry)
        self._places.enqueue(entry, now, "Held")
        return key

    def release(self, key: str, now: int, *, activate: bool = False) -> None:
        """The deletions are sent; `activate`: one failed, so the entry is tried again at once."""
        if key not in self._places.held:
            return
        self._places.held.discard(key)
        entry = self._entries.get(key)
        if entry is None or entry.place is Place.IN_FLIGHT:
            return
        if activate:
            self.activate((key,), now)
        elif entry.missed and entry.gate is not None:
            self._places.wake(entry, now, Happening.POD_DELETED)

    def activate(self, keys: Iterable[str], now: int) -> None:
        """Move entries to active without hints; PreEnqueue is checked."""
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None and entry.place not in (Place.ACTIVE, Place.IN_FLIGHT):
                entry.until = -1
                entry.futile = None
                self._places.leave(entry)
                self._places.enqueue(entry, now, "ForceActivate")
            elif entry is not None:
                entry.futile, entry.called = None, entry.place is Place.IN_FLIGHT

    def remind(self, unit: Unit, at: int) -> None:
        """Try a unit that waits again at that time, without a hint but not before its backoff."""
        entry = self._entries.get(unit.group or unit.pods[0])
        if entry is not None and entry.place is not Place.IN_FLIGHT:
            self._places.remind(entry, at)

    # Time.

    def flush(self, now: int) -> None:
        """Move those whose backoff is over, and those that have been in the pool for too long."""
        self._places.flush(now)

    def next_flush(self, now: int) -> int | None:
        """Return when `flush` has something to do next, None while no entry waits for the time."""
        return self._places.next_flush(now)

    # Looking.

    @property
    def incoming(self) -> Counter[tuple[str, str, str]]:
        """Entries that came into a place, by (place, event, type); a reader may clear it."""
        return self._places.incoming

    def gate(self, uid: Uid) -> Gate | None:
        """Return why a pod is held before the queue, None when it is not."""
        key = self._owner.get(uid)
        return self._incomplete.gate(uid) if key is None else self._entries[key].gate

    def entries(self) -> Iterable[Entry]:
        """Return all entries; nothing about them is changed."""
        return self._entries.values()

    def incomplete(self) -> Iterator[tuple[str, Gate, list[PodRow]]]:
        """Yield groups whose object, or one above it, is not there: key, why, and queued pods."""
        return self._incomplete.waiting()

    def short_groups(self) -> Iterator[tuple[str, Gate, list[PodRow]]]:
        """Yield groups that lack members or their group object: key, why, and queued pods."""
        yield from self._incomplete.waiting()
        for entry in self._entries.values():
            if entry.place is Place.GATED and entry.gate is not None and entry.gate.plugin == GANG:
                yield entry.group, entry.gate, [each.row for each in entry.members.values()]

    def place(self, uid: Uid) -> str:
        """Return the `queue` label of the pod's place, empty when it is not queued."""
        key = self._owner.get(uid)
        if key is None:
            return "incomplete" if uid in self._incomplete else ""
        entry = self._entries[key]
        return "pending" if uid in entry.arrived else entry.queue

    def entities(self) -> Mapping[tuple[str, str], int]:
        """Return the number of entries by (queue, type), for the four queues."""
        return entities_by_queue(self._entries.values())

    def pods(self) -> Mapping[str, int]:
        """Return the number of pods by queue, `incomplete` and `pending` included."""
        return pods_by_queue(self._entries.values(), len(self._incomplete))

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._owner or uid in self._incomplete

    # How.

    def _group_of(self, row: PodRow) -> str:
        if self._groups and row.group:
            return f"{row.namespace}/{row.group}"
        return self._facts.gang_key(row) if row.gang else ""

    def _update(self, row: PodRow, now: int) -> None:
        entry = self._entries[self._owner[row.uid]]
        member = entry.members.get(row.uid) or entry.arrived[row.uid]
        before, member.row = member.row, row
        if not entry.group and entry.priority != row.priority:
            entry.priority = row.priority
            if entry.place is Place.ACTIVE:
                self._places.activate(entry, "")
        for what in own_changes(before, row):
            event = Event(what, pod=row, pod_before=before)
            if entry.place is Place.IN_FLIGHT:
                self._flights.record(event)
            elif any(
                asks(plugin, row, event, self._facts)
                for plugin in (*member.rejected_by, *_gate_plugin(entry))
            ):
                self._places.wake(entry, now, what)

    def _join(
        self, key: str, group: str, members: dict[Uid, QueuedMember], now: int, event: str
    ) -> None:
        self._owner.update(dict.fromkeys(members, key))
        if group and any(self._in_tree(member.row) for member in members.values()):
            self._trees.add(key)
        entry = self._entries.get(key)
        if entry is None:
            first = next(iter(members.values())).row
            row = self._facts.group(group) if group else None
            priority = first.priority if row is None else row.priority
            entry = self._entries[key] = Entry(
                key,
                group,
                first.namespace,
                priority,
                now,
                next(self._numbers),
                members=dict(members),
            )
            self._places.enqueue(entry, now, event)
        elif entry.place is Place.IN_FLIGHT:
            entry.arrived.update(members)
        else:
            entry.members.update(members)
            if entry.place in (Place.ACTIVE, Place.BACKOFF, Place.ERRORS):
                gate = self._places.refusal(entry)
                if gate is not None:
                    self._places.leave(entry)
                    self._places.shut_out(entry, gate, now, event)

    def _drop(self, entry: Entry) -> None:
        self._places.leave(entry)
        self._places.held.discard(entry.key)
        for uid in (*entry.members, *entry.arrived):
            self._owner.pop(uid, None)
        self._trees.discard(entry.key)
        del self._entries[entry.key]

    def _set_aside(self, entry: Entry) -> bool:
        """Have members wait outside without a group, or one above it; return whether some stay.

        Where the entry is a tree these need not be all of them.
        """
        if entry.key not in self._trees:
            if self._facts.group(entry.group) is not None:
                return True
            self._incomplete.add(entry.group, (*entry.members.values(), *entry.arrived.values()))
            self._drop(entry)
            return False
        for held in (entry.members, entry.arrived):
            for uid, member in list(held.items()):
                group = self._group_of(member.row)
                way, root = self._facts.root(group)
                if way is Way.MISSING or root != entry.key:
                    self._incomplete.add(group, (held.pop(uid),))
                    del self._owner[uid]
        if not entry.pods:
            self._drop(entry)
        return bool(entry.pods)

    def _in_tree(self, row: PodRow) -> bool:
        found = self._facts.group(self._group_of(row))
        return found is not None and bool(found.parent)


def _gate_plugin(entry: Entry) -> tuple[str, ...]:
    return () if entry.gate is None else (entry.gate.plugin,)
