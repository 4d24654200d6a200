"""What each ClusterQueue and LocalQueue holds, for their statuses and metrics: counts and amounts.

A workload stands in one phase. It counts for its LocalQueue in every phase, and for the
ClusterQueue of its reservation while it has one; the caller sums what waits or is finished over the
LocalQueues of a ClusterQueue. One change costs what the workload holds, never a pass over all of
them. Source: specification of the quota plane, section 1.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from reprieve.api import kueue
from reprieve.engine.quota.model import FlavorResource, Workload
from reprieve.intake.quota_workloads import condition_of, is_true, queue_key

__all__ = ["Phase", "Standing", "Tallies", "Tally", "standing_of"]


class Phase(Enum):
    """How far a workload has come. `ASIDE` neither waits nor holds anything: it is not active."""

    ASIDE = "aside"
    PENDING = "pending"
    RESERVING = "reserving"
    ADMITTED = "admitted"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Standing:
    """What one workload counts as.

    `local_queue` is a key, `cluster_queue` that of its reservation or empty, `amounts` what it
    holds in engine units; `unadmitted` the reasons of `Admitted=False` and `QuotaReserved=False`.
    """

    local_queue: str
    phase: Phase
    cluster_queue: str = ""
    amounts: tuple[tuple[FlavorResource, int], ...] = ()
    unadmitted: tuple[str, str] | None = None


def standing_of(
    found: kueue.Workload,
    row: Workload | None,
    amounts: tuple[tuple[FlavorResource, int], ...] = (),
) -> Standing:
    """Return what a workload counts as; `row` None is finished, `amounts` are those it reserves."""
    if row is None:
        return Standing(queue_key(found), Phase.FINISHED, "")
    admitted = condition_of(found.status.conditions, "Admitted")
    reserved = condition_of(found.status.conditions, "QuotaReserved")
    unadmitted = None
    if row.admission is not None:
        phase = Phase.ADMITTED if is_true(admitted) else Phase.RESERVING
    else:
        phase = Phase.PENDING if row.active and not row.admission_gated else Phase.ASIDE
    if admitted is not None and admitted.status == "False":
        waits = reserved is not None and reserved.status == "False"
        unadmitted = (admitted.reason, reserved.reason if reserved is not None and waits else "")
    queue = row.admission.cluster_queue if row.admission is not None else ""
    return Standing(row.queue, phase, queue, amounts, unadmitted)


@dataclass(slots=True)
class Tally:
    """What one queue holds. Amounts in engine units; `reserving` counts what is admitted too."""

    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    finished: int = 0
    reservation: Counter[FlavorResource] = field(default_factory=Counter)
    usage: Counter[FlavorResource] = field(default_factory=Counter)
    unadmitted: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, standing: Standing, sign: int) -> None:
        """Count a workload, or with `sign` -1 subtract it."""
        phase = standing.phase
        if phase is Phase.PENDING:
            self.pending += sign
        elif phase is Phase.FINISHED:
            self.finished += sign
        if phase in (Phase.RESERVING, Phase.ADMITTED):
            self.reserving += sign
            for pair, amount in standing.amounts:
                self.reservation[pair] += sign * amount
        if phase is Phase.ADMITTED:
            self.admitted += sign
            for pair, amount in standing.amounts:
                self.usage[pair] += sign * amount
        if standing.unadmitted is not None:
            self.unadmitted[standing.unadmitted] += sign
            if not self.unadmitted[standing.unadmitted]:
                del self.unadmitted[standing.unadmitted]

    def join(self, other: Tally) -> None:
        """Add what waits, what is finished, and what is not admitted in another queue."""
        self.pending += other.pending
        self.finished += other.finished
        self.unadmitted.update(other.unadmitted)


class Tallies:
    """Tallies by key: `NAME` of a ClusterQueue, `NAMESPACE/NAME` of a LocalQueue.

    `changed` are the keys of queues whose numbers, or whose workloads, changed.
    """

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._standings: dict[str, Standing] = {}
        self.changed: set[str] = set()

    def count(self, workload: str, standing: Standing | None) -> None:
        """Count a workload by what it is now, None for nothing."""
        before = self._standings.get(workload)
        if before == standing:
            return
        if before is not None:
            self._add(before, -1)
            del self._standings[workload]
        if standing is not None:
            self._add(standing, 1)
            self._standings[workload] = standing

    def standing(self, workload: str) -> Standing | None:
        """Return what a workload is counted as."""
        return self._standings.get(workload)

    def of(self, queue: str) -> Tally:
        """Return the tally of a queue."""
        return self._tallies.get(queue) or Tally()

    def sum_of(self, local_queues: Iterable[str]) -> Tally:
        """Return what waits, is finished or not admitted in a ClusterQueue's LocalQueues."""
        found = Tally()
        for key in local_queues:
            held = self._tallies.get(key)
            if held is not None:
                found.join(held)
        return found

    def _add(self, standing: Standing, sign: int) -> None:
        keys = [standing.local_queue]
        if standing.cluster_queue:
            keys.append(standing.cluster_queue)
        for key in keys:
            tally = self._tallies.setdefault(key, Tally())
            if key == standing.local_queue:
                tally.add(standing, sign)
            else:
                tally.add(_reserved(standing), sign)
            self.changed.add(key)


def _reserved(standing: Standing) -> Standing:
    return Standing("", standing.phase, "", standing.amounts)
