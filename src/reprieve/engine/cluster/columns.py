"""Numbers for values, and columns in slots: the memory that `Cluster` keeps its state in.

Everything here is O(resources) per change. Sums are kept modulo 2**64, so that removing a pod
restores them exactly; nodes with an amount beyond `HUGE` are summed anew, saturating, when they are
read. Source: the design's "State that can be trusted".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from reprieve.engine.cluster.arrays import I32, I64, U8
from reprieve.engine.cluster.limits import HUGE, LIMIT
from reprieve.engine.cluster.rows import PODS, PodClass
from reprieve.engine.cluster.texts import CHUNK, TextColumn
from reprieve.units.ids import Uid

__all__ = [
    "ClassColumns",
    "Numbers",
    "PodColumns",
    "grown",
    "sum_of",
]

_AT_ONCE: Final = 4_096  # pods that are counted together at most

V = TypeVar("V", bound=Hashable)
A = TypeVar("A", I64, I32, U8)


class Numbers(Generic[V]):
    """Small numbers for values in use, with a count of the users; free numbers are given again."""

    def __init__(self, first: int = 0, *, kept: bool = False) -> None:
        """`first`: the lowest number given; those below stand for no value.

        `kept`: equal values mostly are the same object, and are long to hash.
        """
        self.values: list[V | None] = [None] * first
        self.numbers: dict[V, int] = {}
        self.changed = True  # since the reader last set it to False
        self.touched: set[int] = set()  # numbers whose value changed since the reader cleared it
        self._users: list[int] = [0] * first
        self._free: list[int] = []
        self._next = first  # the number that the next new value gets
        self._identities: dict[int, int] | None = {} if kept else None  # by id of the values

    def acquire(self, value: V) -> int:
        """Return the value's number, with one user more."""
        number = None if self._identities is None else self._identities.get(id(value))
        if number is None:
            # Looked up once whether it is there or not: most of the work is to hash it.
            number = self.numbers.setdefault(value, self._next)
            if number == self._next:
                return self._new(value)
        self._users[number] += 1
        return number

    def drop(self, number: int) -> bool:
        """Remove one user; return whether it was the last, and the number is free."""
        users = self._users[number] - 1
        self._users[number] = users
        if users:
            return False
        value = self.values[number]
        assert value is not None
        del self.numbers[value]
        if self._identities is not None:
            del self._identities[id(value)]
        self.values[number] = None
        self._free.append(number)
        self._next = number
        self.touched.add(number)
        self.changed = True
        return True

    def users(self, number: int) -> int:
        """Return how often the number was acquired and not dropped."""
        return self._users[number]

    def _new(self, value: V) -> int:
        number = self._next
        if self._free:
            self._free.pop()
            self.values[number] = value
            self._users[number] = 1
        else:
            self.values.append(value)
            self._users.append(1)
        self._next = self._free[-1] if self._free else len(self.values)
        if self._identities is not None:
            self._identities[id(value)] = number
        self.touched.add(number)
        self.changed = True
        return number


class ClassColumns:
    """What the pods of each class request, by the class's number; number 0 requests nothing."""

    def __init__(self, width: int) -> None:
        self.requests: I64 = np.zeros((64, width), np.int64)
        self.scored: I64 = np.zeros((64, 2), np.int64)
        self.huge: set[int] = set()

    def fill(self, number: int, entry: PodClass, column_of: Mapping[str, int]) -> None:
        """Write the amounts of a class that has just got its number."""
        if number >= len(self.requests):
            self.requests = grown(self.requests, number + 1)
            self.scored = grown(self.scored, number + 1)
        amounts = [0] * self.requests.shape[1]
        amounts[column_of[PODS]] = 1
        for name, amount in entry.requests:
            if name in column_of:
                amounts[column_of[name]] = min(amount, LIMIT)
        scored = min(entry.scored_cpu, LIMIT), min(entry.scored_memory, LIMIT)
        self.requests[number] = amounts
        self.scored[number] = scored
        if max(*amounts, *scored) > HUGE:
            self.huge.add(number)
        else:
            self.huge.discard(number)

    def fill_in(self, number: int, entry: PodClass, columns: Mapping[str, int]) -> bool:
        """Write the amounts of new columns; return whether the class is huge by them."""
        most = 0
        for name, amount in entry.requests:
            if name in columns:
                self.requests[number, columns[name]] = min(amount, LIMIT)
                most = max(most, amount)
        if most <= HUGE or number in self.huge:
            return False
        self.huge.add(number)
        return True


class PodColumns:
    """Placed pods in slots, and what they use on each node.

    A free slot has node number 0, class 0, labels 0, group -1 and no uid. Node numbers are the
    cluster's own, not indices of a snapshot.
    """

    def __init__(self, width: int) -> None:
        self.size = 0  # slots ever used; those above hold nothing
        self.uids = TextColumn(Uid(""))
        self.keys = TextColumn("")
        self.node: I32 = np.zeros(CHUNK, np.int32)
        self.priority: I64 = np.zeros(CHUNK, np.int64)
        self.group: I32 = np.full(CHUNK, -1, np.int32)
        self.pod_class: I32 = np.zeros(CHUNK, np.int32)
        self.labels: I32 = np.zeros(CHUNK, np.int32)
        self.start: I64 = np.zeros(CHUNK, np.int64)
        self.checkpoint: I64 = np.zeros(CHUNK, np.int64)
        self.protections: dict[int, str] = {}  # by slot, of the few pods that have one
        self.min_runtimes: dict[int, int] = {}  # likewise
        self.flags: U8 = np.zeros(CHUNK, np.uint8)
        self.used: I64 = np.zeros((64, width), np.int64)  # by node number
        self.scored: I64 = np.zeros((64, 2), np.int64)
        self.huge: dict[int, int] = {}  # node number: pods there with huge amounts
        self._free: list[int] = []
        self._uncounted: list[int] = []  # slots whose pods are not in `used` and `scored` yet

    def __len__(self) -> int:
        return self.size - len(self._free)

    def add(
        self,
        uid: Uid,
        key: str,
        node: int,
        pod_class: int,
        labels: int,
        group: int,
        classes: ClassColumns,
    ) -> int:
        """Give the pod a slot and count it on its node; `set_facts` sets the rest."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self.size
            self.size += 1
            if slot >= len(self.node):
                self._grow(slot + 1)
        self.uids[slot] = uid
        self.keys[slot] = key
        self.node[slot] = node
        self.pod_class[slot] = pod_class
        self.labels[slot] = labels
        self.group[slot] = group
        if pod_class in classes.huge:
            self.huge[node] = self.huge.get(node, 0) + 1
        self._uncounted.append(slot)
        if len(self._uncounted) >= _AT_ONCE:
            self.count(classes)
        return slot

    def count(self, classes: ClassColumns) -> None:
        """Add what pods use that came since the last time: of many at once in a tenth of the time.

        Due before anything is removed or read, and before a class requests something else.
        """
        if self._uncounted:
            slots = np.array(self._uncounted)
            node, pod_class = self.node[slots], self.pod_class[slots]
            np.add.at(self.used, node, classes.requests[pod_class])
            np.add.at(self.scored, node, classes.scored[pod_class])
            self._uncounted.clear()

    def set_facts(
        self,
        slot: int,
        priority: int,
        start: int,
        checkpoint: int,
        flags: int,
        protection: str,
        min_runtime: int | None,
    ) -> None:
        """Write what a pod has besides what it uses."""
        if min_runtime is not None:
            self.min_runtimes[slot] = min_runtime
        elif self.min_runtimes:
            self.min_runtimes.pop(slot, None)
        if protection:
            self.protections[slot] = protection
        elif self.protections:
            self.protections.pop(slot, None)
        self.priority[slot] = priority
        self.start[slot] = start
        self.checkpoint[slot] = checkpoint
        self.flags[slot] = flags

    def remove(self, slot: int, node: int, pod_class: int, classes: ClassColumns) -> None:
        """Free the slot; `node` and `pod_class` are what it was added with."""
        self.count(classes)
        self.used[node] -= classes.requests[pod_class]
        self.scored[node] -= classes.scored[pod_class]
        if pod_class in classes.huge:
            left = self.huge[node] - 1
            if left:
                self.huge[node] = left
            else:
                del self.huge[node]
        self.uids[slot] = Uid("")
        self.keys[slot] = ""
        self.node[slot] = self.pod_class[slot] = self.labels[slot] = 0
        self.group[slot] = -1
        self.protections.pop(slot, None)
        self.min_runtimes.pop(slot, None)
        self.priority[slot] = self.start[slot] = self.checkpoint[slot] = self.flags[slot] = 0
        self._free.append(slot)

    def count_in(self, columns: list[int], huge: set[int], classes: ClassColumns) -> None:
        """Sum new columns up; `huge`: classes that have become so by them."""
        node, pod_class = self.node[: self.size], self.pod_class[: self.size]
        for column in columns:
            np.add.at(self.used[:, column], node, classes.requests[pod_class, column])
        for number in huge:
            for each in node[pod_class == number].tolist():
                self.huge[each] = self.huge.get(each, 0) + 1

    def usage(self, nodes: NDArray[np.intp], classes: ClassColumns) -> tuple[I64, I64]:
        """Return new arrays `used` and `scored` of the node numbers, saturating."""
        self.count(classes)
        used, scored = self.used.take(nodes, axis=0), self.scored.take(nodes, axis=0)
        for number in self.huge:
            for place in np.flatnonzero(nodes == number):
                there = self.pod_class[: self.size][self.node[: self.size] == number]
                used[place] = sum_of(classes.requests[there])
                scored[place] = sum_of(classes.scored[there])
        return used, scored

    def cover_nodes(self, count: int) -> None:
        """Allocate columns for node numbers below `count`."""
        if count > len(self.used):
            self.used = grown(self.used, count)
            self.scored = grown(self.scored, count)

    def _grow(self, count: int) -> None:
        self.node = grown(self.node, count)
        self.priority = grown(self.priority, count)
        used = len(self.group)
        self.group = grown(self.group, count)
        self.group[used:] = -1
        self.pod_class = grown(self.pod_class, count)
        self.labels = grown(self.labels, count)
        self.start = grown(self.start, count)
        self.checkpoint = grown(self.checkpoint, count)
        self.flags = grown(self.flags, count)


def grown(column: A, count: int) -> A:
    """Return the column with zeros below, at least `count` and at least twice as long."""
    longer = np.zeros((max(count, 2 * len(column)), *column.shape[1:]), column.dtype)
    longer[: len(column)] = column
    return longer


def sum_of(amounts: I64) -> I64:
    """Return the sum over the first axis, each column cut at `LIMIT` from both sides."""
    totals = [sum(column) for column in amounts.T.tolist()]
    return np.array([max(-LIMIT, min(LIMIT, total)) for total in totals], np.int64)
