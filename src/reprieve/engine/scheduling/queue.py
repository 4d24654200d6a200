"""The queue of waiting pods and groups: who is tried next, and who waits for what.

A state machine without a clock: `now` (nanoseconds, from any fixed start that agrees with whole
seconds) is handed in. Entries are plain pods or groups; each is in one place:

| place | leaves it by |
| --- | --- |
| active | `pop`: priority, then queue time |
| backoff | its second has passed; a pod also by `pop` when nothing is active, a group by a hint |
| unschedulable | an event that a rejecting plugin holds for helpful (plain pods only) |
| gated | an event of the plugin that refused it at PreEnqueue |
| in flight | `done` |

Members of a group whose object is unknown are `incomplete` and no entry. Source: specification 22,
with 5.1, 5.2 and 9.4; a hint ends a group's backoff at most once a second.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.pre_enqueue import Facts, no_group, refusal
from reprieve.engine.scheduling.queue_entries import Backoff, Entry, Gate, Place, QueuedMember
from reprieve.engine.scheduling.queue_events import (
    ASKED,
    DEFAULT_PREEMPTION,
    Event,
    Happening,
    asks,
)
from reprieve.units.durations import MINUTE, SECOND
from reprieve.units.ids import Uid

__all__ = ["Outcome", "Queue"]

_POOL_LIMIT: Final = 5 * MINUTE
_POOL_PERIOD: Final = 30 * SECOND
_EARLY: Final = SECOND
_MANY_EVENTS: Final = 1_000
_Place: TypeAlias = tuple[int, int, int, str, int]  # second, order..., key, ticket
_NONE: Final[Mapping[Uid, Collection[str]]] = {}


class Outcome(Enum):
    """How the cycle of a unit ended."""

    PLACED = auto()  # at least the minimum; the rest of a group is tried again
    REJECTED = auto()
    ERROR = auto()
    AGAIN = auto()  # nothing was decided: the state had changed


class Queue:
    """All waiting pods of one or more scheduler names.

    `groups`: gate GenericWorkload; off, every pod is an entry of its own. `incoming` counts entries
    that came into a place, by (place, event, type).
    """

    def __init__(
        self, facts: Facts, *, groups: bool = True, backoff: Backoff | None = None
    ) -> None:
        self.incoming: Counter[tuple[str, str, str]] = Counter()
        self._facts = facts
        self._groups = groups
        self._backoff = backoff or Backoff()
        self._entries: dict[str, Entry] = {}
        self._owner: dict[Uid, str] = {}  # entry key of each pod that is in an entry
        self._incomplete: dict[str, dict[Uid, QueuedMember]] = {}
        self._held: set[str] = set()  # entries whose preemption is being carried out
        # Places left behind have another ticket.
        self._active: list[_Place] = []
        self._waiting: dict[Place, list[_Place]] = {
            Place.BACKOFF: [],
            Place.ERRORS: [],
        }
        self._asked: dict[str, set[str]] = {}  # plugin -> entries that wait for its hint
        self._pool: dict[str, None] = {}  # keys of gated and unschedulable entries
        self._pool_flushed: int | None = None
        # Events since the first unit in flight took off; `_dropped` came before them.
        self._events: list[Event] = []
        self._dropped = 0
        self._flying: dict[str, int] = {}  # entries in flight: number of their first event

    # Pods and groups that come, change and go.

    def add(self, row: PodRow, now: int) -> None:
        """Take in a pending pod, or what has changed about one."""
        if row.uid in self._owner or row.uid in self._incomplete.get(self._group_of(row), {}):
            self._update(row, now)
            return
        group = self._group_of(row)
        member = QueuedMember(row, now)
        if group and self._facts.group(group) is None:
            self._incomplete.setdefault(group, {})[row.uid] = member
            return
        self._join(group or row.uid, group, {row.uid: member}, now, "PodAdd")
        if group:
            self.on_event(Event(Happening.PENDING_ADDED, pod=row, group=group), now)

    def remove(self, uid: Uid) -> None:
        """Forget a pod that is bound, deleted or finished."""
        key = self._owner.pop(uid, None)
        if key is None:
            for group, members in list(self._incomplete.items()):
                if members.pop(uid, None) is not None and not members:
                    del self._incomplete[group]
            return
        entry = self._entries[key]
        entry.members.pop(uid, None)
        entry.arrived.pop(uid, None)
        if not entry.pods and entry.place is not Place.IN_FLIGHT:
            self._drop(entry)

    def group_changed(self, key: str, now: int, *, lowered: bool = False) -> None:
        """The group object has come, changed or gone; `lowered`: its minCount is lower now."""
        row = self._facts.group(key)
        entry = self._entries.get(key)
        if row is None:
            if entry is not None and entry.place is not Place.IN_FLIGHT:
                self._set_aside(entry)
            return
        added = self._incomplete.pop(key, None)
        if added:
            self._join(key, key, added, now, Happening.GROUP_ADDED)
        elif entry is not None and entry.priority != row.priority:
            entry.priority = row.priority
            if entry.place is Place.ACTIVE:
                self._activate(entry, "")
        if added or lowered:
            what = Happening.GROUP_LOWERED if lowered else Happening.GROUP_ADDED
            self.on_event(Event(what, group=key), now)

    # Trying.

    def pop(self, now: int) -> Unit | None:
        """Return the next unit to try, its pods in the order of 5.2; None when nobody is ready."""
        entry = self._head(self._active)
        if entry is None:
            # SchedulerPopFromBackoffQ: nobody else is ready, so waiting helps no one.
            entry = self._head(self._waiting[Place.BACKOFF])
        if entry is None:
            return None
        self._leave(entry)
        entry.place = Place.IN_FLIGHT
        entry.flight = frozenset(entry.members)
        self._flying[entry.key] = self._dropped + len(self._events)
        members = sorted(entry.members.values(), key=_order)
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
        """Take back a unit after its cycle.

        `placed`: its pods that are being bound, which leave the queue. `rejected_by`: the plugins
        that rejected each of the others.
        """
        entry = self._entries[unit.group or unit.pods[0]]
        events = self._landed(entry)
        for uid in placed:
            entry.members.pop(uid, None)
            self._owner.pop(uid, None)
        stayed = bool(entry.members)
        entry.members.update(entry.arrived)
        entry.arrived = {}
        if not entry.members:
            self._drop(entry)
            return
        if entry.group and self._facts.group(entry.group) is None:
            self._set_aside(entry)
            return
        for uid, member in entry.members.items():
            if uid in rejected_by:
                member.rejected_by = frozenset(rejected_by[uid])
            if uid in entry.flight:
                if outcome is Outcome.AGAIN:
                    member.attempts -= 1
                else:
                    member.since = now
        if outcome is Outcome.AGAIN:
            self._enqueue(entry, now, "ScheduleAgain")
            return
        if outcome is Outcome.PLACED:
            entry.rejections = entry.errors = 0
            entry.until = -1
            entry.since = entry.since if stayed else now
            self._enqueue(entry, now, "ScheduleAttemptSuccess")
            return
        if outcome is Outcome.ERROR:
            entry.errors += 1
        else:
            entry.errors = 0
            entry.rejections += 1
        entry.since = now
        entry.until = self._backoff.end(entry, now)
        # Whom no plugin rejected, no hint can wake.
        unasked = not any(member.rejected_by for member in entry.members.values())
        wanted = unasked or any(self._wanted(entry, event) for event in events)
        failed = "ScheduleAttemptFailure"
        if outcome is Outcome.REJECTED and not entry.group and not wanted:
            self._pool_in(entry, Place.UNSCHEDULABLE, now, failed)
        elif entry.group and wanted and not unasked and outcome is Outcome.REJECTED:
            self._enqueue(entry, now, failed)
            self._end_early(entry, now, failed)
        else:
            self._enqueue(entry, now, failed)

    def give_up(self, unit: Unit, now: int) -> None:
        """End the cycle of a unit by an error, unless it has ended already."""
        if (unit.group or unit.pods[0]) in self._flying:
            self.done(unit, Outcome.ERROR, now)

    def on_event(self, event: Event, now: int) -> None:
        """Move those for whom a rejecting plugin holds the event for helpful."""
        if self._flying:
            self._events.append(event)
        found: set[str] = set()
        for plugin in ASKED[event.what]:
            found |= self._asked.get(plugin, _EMPTY)
        for key in sorted(found):
            entry = self._entries[key]
            if self._wanted(entry, event):
                self._wake(entry, now, event.what)

    # Preemptions that are being carried out (9.4).

    def hold(self, key: str) -> None:
        """Refuse the entry at PreEnqueue until `release`: its victims are being deleted."""
        self._held.add(key)

    def release(self, key: str, now: int, *, activate: bool = False) -> None:
        """The deletions are sent; `activate`: one failed, so the entry is tried again at once."""
        if key not in self._held:
            return
        self._held.discard(key)
        entry = self._entries.get(key)
        if entry is None or entry.place is Place.IN_FLIGHT:
            return
        if activate:
            self.activate((key,), now)
        elif entry.missed and entry.gate is not None:
            self._wake(entry, now, Happening.POD_DELETED)

    def activate(self, keys: Iterable[str], now: int) -> None:
        """Move entries to active without asking hints; PreEnqueue is asked."""
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None and entry.place not in (Place.ACTIVE, Place.IN_FLIGHT):
                entry.until = -1
                self._leave(entry)
                self._enqueue(entry, now, "ForceActivate")

    # Time.

    def flush(self, now: int) -> None:
        """Move those whose backoff is over, and those that have been in the pool for too long."""
        second = now // SECOND
        for heap in self._waiting.values():
            while (entry := self._head(heap)) is not None and entry.until < second:
                self._leave(entry)
                self._activate(entry, "BackoffComplete")
        if self._pool_flushed is None:
            self._pool_flushed = now
        if now - self._pool_flushed < _POOL_PERIOD:
            return
        self._pool_flushed = now
        old = [key for key in self._pool if now - self._entries[key].pooled > _POOL_LIMIT]
        for key in old:
            entry = self._entries[key]
            self._leave(entry)
            self._enqueue(entry, now, "UnschedulableTimeout")

    def next_flush(self, now: int) -> int | None:
        """Return when `flush` has something to do next, None while nobody waits for the time."""
        times = [
            (entry.until + 1) * SECOND
            for heap in self._waiting.values()
            if (entry := self._head(heap)) is not None
        ]
        if self._pool:
            since = now if self._pool_flushed is None else self._pool_flushed
            times.append(since + _POOL_PERIOD)
        return min(times) if times else None

    # Looking.

    def gate(self, uid: Uid) -> Gate | None:
        """Return why a pod is held before the queue, None when it is not."""
        key = self._owner.get(uid)
        if key is not None:
            return self._entries[key].gate
        for group, members in self._incomplete.items():
            if uid in members:
                return no_group(group)
        return None

    def place(self, uid: Uid) -> str:
        """Return the `queue` label of the pod's place, empty when it is not queued."""
        key = self._owner.get(uid)
        if key is None:
            return "incomplete" if any(uid in m for m in self._incomplete.values()) else ""
        entry = self._entries[key]
        if uid in entry.arrived:
            return "pending"
        return Place.BACKOFF if entry.place is Place.ERRORS else entry.place

    def entities(self) -> Mapping[tuple[str, str], int]:
        """Return the number of entries by (queue, type), for the four queues."""
        found = {
            (place, kind): 0
            for place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
            for kind in ("pod", "podgroup")
        }
        for entry in self._entries.values():
            place = Place.BACKOFF if entry.place is Place.ERRORS else entry.place
            if (place, entry.kind) in found:
                found[place, entry.kind] += 1
        return {(str(place), kind): number for (place, kind), number in found.items()}

    def pods(self) -> Mapping[str, int]:
        """Return the number of pods by queue, `incomplete` and `pending` included."""
        found = dict.fromkeys(
            ("active", "backoff", "unschedulable", "gated", "incomplete", "pending"), 0
        )
        for entry in self._entries.values():
            place = Place.BACKOFF if entry.place is Place.ERRORS else entry.place
            if place in found:
                found[place] += len(entry.members)
            found["pending"] += len(entry.arrived)
        found["incomplete"] = sum(map(len, self._incomplete.values()))
        return found

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._owner or any(uid in m for m in self._incomplete.values())

    # How.

    def _group_of(self, row: PodRow) -> str:
        if self._groups and row.group:
            return f"{row.namespace}/{row.group}"
        return self._facts.gang_key(row) if row.gang else ""

    def _update(self, row: PodRow, now: int) -> None:
        key = self._owner.get(row.uid)
        if key is None:
            self._incomplete[self._group_of(row)][row.uid].row = row
            return
        entry = self._entries[key]
        member = entry.members.get(row.uid) or entry.arrived[row.uid]
        before, member.row = member.row, row
        if not entry.group and entry.priority != row.priority:
            entry.priority = row.priority
            if entry.place is Place.ACTIVE:
                self._activate(entry, "")
        for what in _own_changes(before, row):
            event = Event(what, pod=row, pod_before=before)
            if entry.place is Place.IN_FLIGHT:
                self._events.append(event)
            elif any(
                asks(plugin, row, event, self._facts.namespace_labels)
                for plugin in (*member.rejected_by, *_gate_plugin(entry))
            ):
                self._wake(entry, now, what)

    def _join(
        self, key: str, group: str, members: dict[Uid, QueuedMember], now: int, event: str
    ) -> None:
        self._owner.update(dict.fromkeys(members, key))
        entry = self._entries.get(key)
        if entry is None:
            first = next(iter(members.values())).row
            row = self._facts.group(group) if group else None
            priority = first.priority if row is None else row.priority
            entry = self._entries[key] = Entry(key, group, priority, now, members=dict(members))
            self._enqueue(entry, now, event)
        elif entry.place is Place.IN_FLIGHT:
            entry.arrived.update(members)
        else:
            entry.members.update(members)
            if entry.place in (Place.ACTIVE, Place.BACKOFF, Place.ERRORS):
                gate = self._refusal(entry)
                if gate is not None:
                    self._leave(entry)
                    self._gate(entry, gate, now, event)

    def _drop(self, entry: Entry) -> None:
        self._leave(entry)
        self._held.discard(entry.key)
        for uid in (*entry.members, *entry.arrived):
            self._owner.pop(uid, None)
        del self._entries[entry.key]

    def _set_aside(self, entry: Entry) -> None:
        """The group object is gone: its members wait for it outside."""
        members = {**entry.members, **entry.arrived}
        self._drop(entry)
        if members:
            self._incomplete.setdefault(entry.group, {}).update(members)

    def _landed(self, entry: Entry) -> list[Event]:
        events = self._events[self._flying.pop(entry.key) - self._dropped :]
        if not self._flying:
            self._dropped += len(self._events)
            self._events.clear()
        elif len(self._events) > _MANY_EVENTS:
            over = min(self._flying.values()) - self._dropped
            del self._events[:over]
            self._dropped += over
        return events

    def _enqueue(self, entry: Entry, now: int, event: str) -> None:
        """Bring an entry that is nowhere into active, backoff or, if refused, the gated ones."""
        gate = self._refusal(entry)
        if gate is not None:
            self._gate(entry, gate, now, event)
        elif entry.until >= now // SECOND:
            early = not (entry.group or entry.errors) and bool(_waits_for(entry))
            place = Place.BACKOFF if early else Place.ERRORS
            entry.place = place
            order = (entry.until, -entry.priority, entry.since, entry.key, entry.ticket)
            heapq.heappush(self._waiting[place], order)
            self._count(entry, "backoff", event)
            if entry.group:
                self._ask(entry)
        else:
            self._activate(entry, event)

    def _activate(self, entry: Entry, event: str) -> None:
        entry.ticket += 1
        entry.place = Place.ACTIVE
        entry.gate = None
        order = (0, -entry.priority, entry.since, entry.key, entry.ticket)
        heapq.heappush(self._active, order)
        self._count(entry, "active", event)

    def _gate(self, entry: Entry, gate: Gate, now: int, event: str) -> None:
        entry.gate = gate
        entry.missed = False
        self._pool_in(entry, Place.GATED, now, event)

    def _pool_in(self, entry: Entry, place: Place, now: int, event: str) -> None:
        entry.place = place
        entry.pooled = now
        self._pool[entry.key] = None
        self._count(entry, place, event)
        self._ask(entry)

    def _ask(self, entry: Entry) -> None:
        for plugin in _waits_for(entry):
            self._asked.setdefault(plugin, set()).add(entry.key)

    def _leave(self, entry: Entry) -> None:
        """Take the entry out of its place."""
        entry.ticket += 1
        self._pool.pop(entry.key, None)
        for waiting in self._asked.values():
            waiting.discard(entry.key)
        entry.gate = None

    def _head(self, heap: list[_Place]) -> Entry | None:
        while heap:
            *_, key, ticket = heap[0]
            entry = self._entries.get(key)
            if entry is not None and entry.ticket == ticket:
                return entry
            heapq.heappop(heap)
        return None

    def _wanted(self, entry: Entry, event: Event) -> bool:
        if event.at_most is not None and entry.priority > event.at_most:
            return False
        gate = entry.gate
        if gate is not None and gate.plugin != DEFAULT_PREEMPTION:
            test = ASKED[event.what].get(gate.plugin)
            labels = self._facts.namespace_labels
            return test is not None and any(
                test(member.row, event, labels) for member in entry.members.values()
            )
        labels = self._facts.namespace_labels
        return any(
            asks(plugin, member.row, event, labels)
            for member in entry.members.values()
            for plugin in member.rejected_by
        )

    def _wake(self, entry: Entry, now: int, event: str) -> None:
        if entry.place in (Place.BACKOFF, Place.ERRORS):
            if entry.group:
                self._end_early(entry, now, event)
            return
        if entry.place not in (Place.UNSCHEDULABLE, Place.GATED):
            return
        gate = self._refusal(entry)
        if gate is not None:
            missed = entry.missed or gate.plugin == DEFAULT_PREEMPTION
            gated, pooled = entry.place is Place.GATED, entry.pooled
            self._leave(entry)
            self._gate(entry, gate, pooled if gated else now, "" if gated else event)
            entry.missed = missed
            return
        self._leave(entry)
        self._enqueue(entry, now, event)
        self._end_early(entry, now, event)

    def _end_early(self, entry: Entry, now: int, event: str) -> None:
        """End a group's backoff because of a hint; less than a second after the last time, soon."""
        if not entry.group or entry.place is not Place.ERRORS or entry.errors:
            return
        if entry.early is not None and now - entry.early < _EARLY:
            soon = (entry.early + _EARLY) // SECOND
            if soon < entry.until:
                entry.until = soon
                self._leave(entry)
                self._enqueue(entry, now, "")
            return
        entry.early = now
        self._leave(entry)
        self._activate(entry, event)

    def _refusal(self, entry: Entry) -> Gate | None:
        rows = (member.row for member in entry.members.values())
        return refusal(self._facts, entry.group, rows, held=entry.key in self._held)

    def _count(self, entry: Entry, queue: str, event: str) -> None:
        if event:
            self.incoming[str(queue), str(event), entry.kind] += 1


_EMPTY: Final[frozenset[str]] = frozenset()


def _order(member: QueuedMember) -> tuple[int, int, int, str]:
    # Specification 5.2: priority and attempts descending, queue time and name ascending.
    return (-member.row.priority, -member.attempts, member.since, member.row.name)


def _gate_plugin(entry: Entry) -> tuple[str, ...]:
    return () if entry.gate is None else (entry.gate.plugin,)


def _waits_for(entry: Entry) -> set[str]:
    gate = entry.gate
    if gate is not None and gate.plugin != DEFAULT_PREEMPTION:
        return {gate.plugin}
    return {plugin for member in entry.members.values() for plugin in member.rejected_by}


def _own_changes(before: PodRow, row: PodRow) -> list[Happening]:
    found = []
    if before.labels != row.labels:
        found.append(Happening.OWN_LABELS)
    if before.gates and not row.gates:
        found.append(Happening.OWN_GATES)
    if before.claims != row.claims:
        found.append(Happening.OWN_CLAIM)
    if before.pod_class is not row.pod_class:
        if before.pod_class.tolerations != row.pod_class.tolerations:
            found.append(Happening.OWN_TOLERATIONS)
        if before.pod_class.requests != row.pod_class.requests:
            found.append(Happening.OWN_REQUESTS)
    return found
