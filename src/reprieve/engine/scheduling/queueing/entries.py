"""Entries of the scheduling queue and their backoff.

An entry is a plain pod or a group with all its queued members. Times are nanoseconds; a backoff
ends within a whole second, in which it is not over yet. Source: specification 22.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kubeworld.units.durations import SECOND
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.scheduling.queueing.events import Happening
from reprieve.units.ids import Uid

__all__ = ["Backoff", "Entry", "Gate", "Place", "QueuedMember", "cycle_order", "own_changes"]


class Place(StrEnum):
    """Where an entry is; the values are the `queue` labels of the metrics."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    ERRORS = "errors"  # the second heap of backoff: what is in it waits its time out
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


@dataclass(frozen=True, slots=True)
class Gate:
    """Why PreEnqueue refused a pod: the plugin, and its words."""

    plugin: str
    message: str


@dataclass(slots=True)
class QueuedMember:
    """A queued pod. `rejected_by`: the plugins that rejected it in its last cycle."""

    row: PodRow
    since: int
    attempts: int = 0
    rejected_by: frozenset[str] = frozenset()


@dataclass(slots=True)
class Entry:
    """A plain pod (`group` empty) or a group with its members.

    `since` orders equals, and those of one instant `number`, as they came; `until`: the second in
    which the backoff ends; `pooled`: when it came into the pool of unschedulable and gated ones;
    `early`: when a hint last ended its backoff; `ticket` distinguishes the valid place in a heap
    from those left behind; `reminder`: when it is worth another try whatever happens
    (`Queue.remind`); `futile`: what it was rejected on, None where it is to be tried whatever
    stands (`Queue.note`).
    """

    key: str
    group: str
    namespace: str
    priority: int
    since: int
    number: int
    place: Place = Place.ACTIVE
    members: dict[Uid, QueuedMember] = field(default_factory=dict)
    arrived: dict[Uid, QueuedMember] = field(default_factory=dict)  # while it is in flight
    flight: frozenset[Uid] = frozenset()
    rejections: int = 0
    errors: int = 0
    until: int = -1
    pooled: int = 0
    early: int | None = None
    gate: Gate | None = None
    missed: bool = False  # a hint stated "queue" while its preemption was being carried out
    ticket: int = 0
    reminder: int | None = None
    futile: object = None
    revision: int | None = None  # of the cluster, on which it was rejected last
    called: bool = False  # it was activated while it was in flight

    @property
    def order(self) -> tuple[int, int, int]:
        """Priority descending, queue time, and of one instant who came first (22)."""
        return (-self.priority, self.since, self.number)

    @property
    def queue(self) -> Place:
        """The `queue` label of the metrics."""
        return Place.BACKOFF if self.place is Place.ERRORS else self.place

    @property
    def kind(self) -> str:
        """The `type` label of the metrics."""
        return "podgroup" if self.group else "pod"

    @property
    def pods(self) -> int:
        """How many pods it stands for."""
        return len(self.members) + len(self.arrived)


@dataclass(frozen=True, slots=True)
class Backoff:
    """`initial` is doubled with every failure up to `most` (0: no backoff), times sqrt(members)."""

    initial: int = SECOND
    most: int = 10 * SECOND

    def end(self, entry: Entry, now: int) -> int:
        """Return the second in which the backoff ends that begins now; -1 for none."""
        failures = entry.errors or entry.rejections
        if not failures or not self.most:
            return -1
        most = self.most
        if entry.group:
            most = int(most * math.sqrt(max(1, entry.pods)))
        # Beyond this every doubling is over the limit.
        doublings = min(failures - 1, _DOUBLINGS)
        return (now + min(self.initial << doublings, most)) // SECOND


_DOUBLINGS: Final = 40


def cycle_order(member: QueuedMember) -> tuple[int, int, int, str]:
    """Order members by priority and attempts descending, then queue time and name (5.2)."""
    return (-member.row.priority, -member.attempts, member.since, member.row.name)


def own_changes(before: PodRow, row: PodRow) -> list[Happening]:
    """Return what has happened to a waiting pod itself."""
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
