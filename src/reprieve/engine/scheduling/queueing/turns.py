"""Whose turn it is among entries that are ready: priority first, then turns between namespaces.

1. The highest priority.
2. Of its namespaces the one that has had the fewest turns. One that comes in has as many as the one
   whose turn it was last, or as many as it had, if these are more: it saves none up.
3. Of equal ones that whose first entry has not been rejected yet, then in queue time.
4. Within a namespace queue time; of one instant who came first.

With one namespace this is kube-scheduler's PrioritySort. Source: specification 22; turns are our
own, so that one tenant's backlog is in no other work's way.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from reprieve.engine.scheduling.queueing.entries import Entry

__all__ = ["Turns"]

_Place: TypeAlias = tuple[int, int, str, int]  # queue time, number, key, ticket
# Turns had, whether it was rejected, queue time, number, namespace, ticket.
_Turn: TypeAlias = tuple[int, bool, int, int, str, int]
_SLACK: Final = 1_024


@dataclass(slots=True)
class _Equals:
    """Ready entries of one priority: places and turns left behind are no entry's any more."""

    spaces: dict[str, list[_Place]] = field(default_factory=dict)
    had: dict[str, int] = field(default_factory=dict)
    turns: list[_Turn] = field(default_factory=list)
    current: dict[str, _Turn] = field(default_factory=dict)  # the one of `turns` that counts
    last: int = 0  # turns that whose turn it was last had had before


class Turns:
    """Ready entries of `entries`, which the queue owns; an entry leaves by another ticket."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        self._equals: dict[int, _Equals] = {}  # by priority
        self._places = 0  # those left behind as well

    def add(self, entry: Entry) -> None:
        """Add an entry, or give it its place anew."""
        if self._places > 2 * len(self._entries) + _SLACK:
            self._tidy()
        equals = self._equals.setdefault(entry.priority, _Equals())
        space = entry.namespace
        if space not in equals.spaces:
            equals.spaces[space] = []
            equals.had[space] = max(equals.had.get(space, 0), equals.last)
        places = equals.spaces[space]
        heapq.heappush(places, (entry.since, entry.number, entry.key, entry.ticket))
        self._places += 1
        current = equals.current.get(space)
        if places[0][2] == entry.key or current is None or current[0] != equals.had[space]:
            self._renew(equals, space)

    def first(self) -> Entry | None:
        """Return the entry whose turn it is, None where none is ready."""
        while self._equals:
            priority = max(self._equals)
            entry = self._first_of(self._equals[priority])
            if entry is not None:
                return entry
            del self._equals[priority]
        return None

    def count(self, entry: Entry) -> None:
        """Count the turn that an entry has now."""
        equals = self._equals.get(entry.priority)
        if equals is not None:
            had = equals.had[entry.namespace]
            equals.last = max(equals.last, had)
            equals.had[entry.namespace] = had + 1

    def give_back(self, entry: Entry) -> None:
        """Count a turn no longer, since nothing was tried in it."""
        equals = self._equals.get(entry.priority)
        if equals is not None and equals.had.get(entry.namespace, 0) > 0:
            had = equals.had[entry.namespace] = equals.had[entry.namespace] - 1
            equals.last = min(equals.last, had)

    def _first_of(self, equals: _Equals) -> Entry | None:
        while equals.turns:
            turn = equals.turns[0]
            had, *_, space, ticket = turn
            counts = equals.current.get(space) == turn
            head = self._head(equals, space) if counts else None
            if head is not None and (head.ticket, equals.had[space]) == (ticket, had):
                return head
            heapq.heappop(equals.turns)
            if counts:
                self._renew(equals, space)
        return None

    def _renew(self, equals: _Equals, space: str) -> None:
        """Have a namespace's first entry be the one that waits for its turn."""
        head = self._head(equals, space)
        if head is None:
            del equals.spaces[space]
            equals.current.pop(space, None)
            if len(equals.had) > 2 * len(equals.spaces) + _SLACK:
                kept = (n for n, had in equals.had.items() if had > equals.last)
                equals.had = {n: equals.had[n] for n in (*kept, *equals.spaces)}
            return
        tried = bool(head.rejections or head.errors)
        turn = (equals.had[space], tried, head.since, head.number, space, head.ticket)
        equals.current[space] = turn
        heapq.heappush(equals.turns, turn)
        if len(equals.turns) > 2 * len(equals.spaces) + _SLACK:
            equals.turns = sorted(equals.current.values())

    def _head(self, equals: _Equals, space: str) -> Entry | None:
        places = equals.spaces.get(space)
        while places:
            entry = self._of(places[0])
            if entry is not None:
                return entry
            heapq.heappop(places)
            self._places -= 1
        return None

    def _of(self, place: _Place) -> Entry | None:
        *_, key, ticket = place
        entry = self._entries.get(key)
        return entry if entry is not None and entry.ticket == ticket else None

    def _tidy(self) -> None:
        """Forget places left behind, also where no turn comes."""
        for equals in self._equals.values():
            for space in list(equals.spaces):
                kept = sorted(filter(self._of, equals.spaces[space]))
                equals.spaces[space] = kept
                if not kept:
                    self._renew(equals, space)
        self._places = sum(map(len, self._all()))
        self._equals = {p: each for p, each in self._equals.items() if each.spaces}

    def _all(self) -> Iterator[list[_Place]]:
        for equals in self._equals.values():
            yield from equals.spaces.values()
