"""Where the queue's entries are, and how they move between the places.

Active entries are tried in turns (`queue_turns`), backoff is two heaps; gated and unschedulable
entries are a pool, from which hints and time bring them back. An entry leaves its place by a new
ticket, and what is left of it in a heap is skipped. A hint ends a group's backoff at most once a
second.
Source: specification 22.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Set
from typing import Final, TypeAlias

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.engine.scheduling.queueing.entries import Entry, Gate, Place
from reprieve.engine.scheduling.queueing.events import DEFAULT_PREEMPTION, GANG, Event
from reprieve.engine.scheduling.queueing.hints import ASKED, asks
from reprieve.engine.scheduling.queueing.pre_enqueue import Facts, refusal
from reprieve.engine.scheduling.queueing.turns import Turns

__all__ = ["Places"]

_POOL_LIMIT: Final = 5 * MINUTE
_POOL_PERIOD: Final = 30 * SECOND
_EARLY: Final = SECOND
_REMINDED: Final = "MinRuntimeEnded"
_Place: TypeAlias = tuple[int, int, int, int, str, int]  # second, order..., key, ticket
_EMPTY: Final[frozenset[str]] = frozenset()


class Places:
    """The places of `entries`, which the queue owns.

    `held`: entries whose preemption is being carried out; PreEnqueue refuses them. `incoming`
    counts entries that came into a place, by (place, event, type).
    """

    def __init__(self, facts: Facts, entries: Mapping[str, Entry]) -> None:
        self.held: set[str] = set()
        self.incoming: Counter[tuple[str, str, str]] = Counter()
        self._facts = facts
        self._entries = entries
        # Places left behind have another ticket.
        self._active = Turns(entries)
        self._waiting: dict[Place, list[_Place]] = {
            Place.BACKOFF: [],
            Place.ERRORS: [],
        }
        self._asked: dict[str, set[str]] = {}  # plugin -> entries that wait for its hint
        self._plain: set[str] = set()  # of those that wait for a group's hint, those of one pod
        self._pool: dict[str, None] = {}  # keys of gated and unschedulable entries
        self._pool_flushed: int | None = None
        self._reminders: list[tuple[int, str]] = []  # those left behind are not their entry's

    def first(self) -> Entry | None:
        """Return the entry to try next, None when none is ready."""
        # SchedulerPopFromBackoffQ: no other work is ready, so waiting helps no one.
        return self._active.first() or self._head(self._waiting[Place.BACKOFF])

    def remove(self, entry: Entry) -> None:
        """Remove the entry that is tried now."""
        if entry.place is Place.ACTIVE:
            self._active.count(entry)
        self.leave(entry)

    def give_back(self, entry: Entry) -> None:
        """Give an entry that was removed and not tried its turn again."""
        self._active.give_back(entry)

    @property
    def listens(self) -> bool:
        """Whether an event could move any entry."""
        return bool(self._asked) and any(self._asked.values())

    def on_event(self, event: Event, now: int) -> None:
        """Move those for whom a rejecting plugin holds the event for helpful."""
        found: set[str] = set()
        for plugin in ASKED[event.what]:
            asked = self._asked.get(plugin, _EMPTY)
            found |= self._of_group(event, asked) if plugin == GANG else asked
        for key in sorted(found):
            entry = self._entries[key]
            if self.wanted(entry, event):
                self.wake(entry, now, event.what)

    def _of_group(self, event: Event, asked: Set[str]) -> Set[str]:
        """Return those of these entries that hold members of the event's group or of its tree.

        An entry of a group has the key of the group, or of the root above it. Thousands of groups
        wait for members at a time, and each member that comes is an event.
        """
        if not event.group:
            return _EMPTY
        keys = {event.group, *event.tree, self._facts.root(event.group)[1]}
        return (keys & asked) | self._plain

    def flush(self, now: int) -> None:
        """Move those whose backoff is over, and those that have been in the pool for too long.

        Those who are reminded move as by a hint.
        """
        while (reminder := self._next_reminder()) is not None and reminder[0] <= now:
            heapq.heappop(self._reminders)
            reminded = self._entries[reminder[1]]
            reminded.reminder = reminded.futile = None
            self.wake(reminded, now, _REMINDED)
        second = now // SECOND
        for heap in self._waiting.values():
            while (entry := self._head(heap)) is not None and entry.until < second:
                self.leave(entry)
                self.activate(entry, "BackoffComplete")
        if self._pool_flushed is None:
            self._pool_flushed = now
        if now - self._pool_flushed < _POOL_PERIOD:
            return
        self._pool_flushed = now
        old = [key for key in self._pool if now - self._entries[key].pooled > _POOL_LIMIT]
        for key in old:
            entry = self._entries[key]
            self.leave(entry)
            self.enqueue(entry, now, "UnschedulableTimeout")

    def next_flush(self, now: int) -> int | None:
        """Return when `flush` has something to do next, None while no entry waits for the time."""
        times = [
            (entry.until + 1) * SECOND
            for heap in self._waiting.values()
            if (entry := self._head(heap)) is not None
        ]
        if self._pool:
            since = now if self._pool_flushed is None else self._pool_flushed
            times.append(since + _POOL_PERIOD)
        if (reminder := self._next_reminder()) is not None:
            times.append(reminder[0])
        return min(times) if times else None

    def remind(self, entry: Entry, at: int) -> None:
        """Move the entry at that time as by a hint, unless it is tried before."""
        entry.reminder = at
        heapq.heappush(self._reminders, (at, entry.key))

    def _next_reminder(self) -> tuple[int, str] | None:
        while self._reminders:
            at, key = self._reminders[0]
            entry = self._entries.get(key)
            if entry is not None and entry.reminder == at:
                return at, key
            heapq.heappop(self._reminders)
        return None

    def enqueue(self, entry: Entry, now: int, event: str) -> None:
        """Bring an entry that is nowhere into active, backoff or, if refused, the gated ones."""
        gate = self.refusal(entry)
        if gate is not None:
            self.shut_out(entry, gate, now, event)
        elif entry.until >= now // SECOND:
            early = not (entry.group or entry.errors) and bool(_waits_for(entry))
            place = Place.BACKOFF if early else Place.ERRORS
            entry.place = place
            order = (entry.until, *entry.order, entry.key, entry.ticket)
            heapq.heappush(self._waiting[place], order)
            self._count(entry, "backoff", event)
            if entry.group:
                self._ask(entry)
        else:
            self.activate(entry, event)

    def activate(self, entry: Entry, event: str) -> None:
        """Move an entry into active, without a check; one that is there gets its place anew."""
        entry.ticket += 1
        entry.place = Place.ACTIVE
        entry.gate = None
        self._active.add(entry)
        self._count(entry, "active", event)

    def shut_out(self, entry: Entry, gate: Gate, now: int, event: str) -> None:
        """Bring an entry that PreEnqueue refused, and is nowhere, into the gated ones."""
        entry.gate = gate
        entry.missed = False
        self.pool_in(entry, Place.GATED, now, event)

    def pool_in(self, entry: Entry, place: Place, now: int, event: str) -> None:
        """Bring an entry that is nowhere into the pool, as gated or unschedulable."""
        entry.place = place
        entry.pooled = now
        self._pool[entry.key] = None
        self._count(entry, place, event)
        self._ask(entry)

    def _ask(self, entry: Entry) -> None:
        for plugin in _waits_for(entry):
            self._asked.setdefault(plugin, set()).add(entry.key)
            if plugin == GANG and not entry.group:
                self._plain.add(entry.key)

    def leave(self, entry: Entry) -> None:
        """Remove the entry from its place."""
        entry.ticket += 1
        self._pool.pop(entry.key, None)
        for waiting in self._asked.values():
            waiting.discard(entry.key)
        self._plain.discard(entry.key)
        entry.gate = None

    def _head(self, heap: list[_Place]) -> Entry | None:
        while heap:
            *_, key, ticket = heap[0]
            entry = self._entries.get(key)
            if entry is not None and entry.ticket == ticket:
                return entry
            heapq.heappop(heap)
        return None

    def wanted(self, entry: Entry, event: Event) -> bool:
        """Return whether a plugin that rejected the entry holds the event for helpful."""
        if event.at_most is not None and entry.priority > event.at_most:
            return False
        gate = entry.gate
        if gate is not None and gate.plugin != DEFAULT_PREEMPTION:
            test = ASKED[event.what].get(gate.plugin)
            return test is not None and any(
                test(member.row, event, self._facts) for member in entry.members.values()
            )
        return any(
            asks(plugin, member.row, event, self._facts)
            for member in entry.members.values()
            for plugin in member.rejected_by
        )

    def wake(self, entry: Entry, now: int, event: str) -> None:
        """Move an entry because of a hint that wants it, as far as its place allows."""
        if entry.place in (Place.BACKOFF, Place.ERRORS):
            if entry.group:
                self.end_early(entry, now, event)
            return
        if entry.place not in (Place.UNSCHEDULABLE, Place.GATED):
            return
        gate = self.refusal(entry)
        if gate is not None:
            missed = entry.missed or gate.plugin == DEFAULT_PREEMPTION
            gated, pooled = entry.place is Place.GATED, entry.pooled
            if gated and gate == entry.gate:
                # Thousands of victims end while a gang is held for them: it stays where it is.
                entry.missed = missed
                return
            self.leave(entry)
            self.shut_out(entry, gate, pooled if gated else now, "" if gated else event)
            entry.missed = missed
            return
        self.leave(entry)
        self.enqueue(entry, now, event)
        self.end_early(entry, now, event)

    def end_early(self, entry: Entry, now: int, event: str) -> None:
        """End a group's backoff because of a hint; less than a second after the last time, soon."""
        if not entry.group or entry.place is not Place.ERRORS or entry.errors:
            return
        if entry.early is not None and now - entry.early < _EARLY:
            soon = (entry.early + _EARLY) // SECOND
            if soon < entry.until:
                entry.until = soon
                self.leave(entry)
                self.enqueue(entry, now, "")
            return
        entry.early = now
        self.leave(entry)
        self.activate(entry, event)

    def refusal(self, entry: Entry) -> Gate | None:
        """Return why PreEnqueue refuses the entry now, None when it does not."""
        rows = (member.row for member in entry.members.values())
        return refusal(self._facts, entry.group, rows, held=entry.key in self.held)

    def _count(self, entry: Entry, queue: str, event: str) -> None:
        if event:
            self.incoming[str(queue), str(event), entry.kind] += 1


def _waits_for(entry: Entry) -> set[str]:
    gate = entry.gate
    if gate is not None and gate.plugin != DEFAULT_PREEMPTION:
        return {gate.plugin}
    return {plugin for member in entry.members.values() for plugin in member.rejected_by}
