"""What waits in the scheduling plane and why: in events, counted, and answered on query.

A unit is a pod, or a group with its queued pods. Its reason is that of its last attempt, or of what
keeps it from being tried (`engine.diagnosis.scheduling`). The conditions and events of
kube-scheduler keep their words; beside them a unit gets one event `Waiting` for each new reason
that has stood for some seconds: on its group where that exists, else on its pods. What waited
before this process began was reported then, and is reported again once its reason changes. Source:
the design's "Why work waits".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.cluster.rows import COMPOSITE, GroupRow, PodRow
from reprieve.engine.cluster.trees import Way
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.diagnosis.scheduling import of_attempt
from reprieve.engine.diagnosis.untried import (
    backing_off,
    group_incomplete,
    group_missing,
    of_barring,
    refused_claims,
    set_aside,
    victims_leaving,
)
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.gangs.cycle import GANG_KEY
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.queueing.entries import Entry, Gate, Place
from reprieve.engine.scheduling.queueing.events import DEFAULT_PREEMPTION, GANG, GATES
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.gangs.book import GangBook
from reprieve.planes.scheduling.references import group_reference, pod_reference
from reprieve.planes.scheduling.set_aside import SetAside
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.diagnosis import waiting_event

__all__ = ["Waiting", "WaitingUnit"]

_Held: TypeAlias = Entry | list[PodRow]
_PERIOD: Final = 5 * SECOND
_PATIENCE: Final = 5 * SECOND
_MOST_REPORTED: Final = 100  # events in one period, so that others have capacity in the budget


@dataclass(frozen=True, slots=True)
class WaitingUnit:
    """One unit that waits.

    `kind`: `Pod`, `PodGroup` or `CompositePodGroup`; a gang of an older API is a `PodGroup`,
    whether or not it has an object. `pods`: those in the queue, by name.
    """

    key: str
    kind: str
    namespace: str
    name: str
    pods: tuple[PodRow, ...]
    diagnosis: Diagnosis


@dataclass(slots=True)
class _Stand:
    """Since when a reason stands, and whether it was reported."""

    reason: Reason
    since: int
    reported: bool = False


class Waiting:
    """All units that wait in one plane.

    `asides`: who else keeps units from being tried. `deadline` returns by when the victims of a
    unit are to have ended, in monotonic nanoseconds.
    """

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        gangs: GangBook,
        asides: Sequence[SetAside],
        deadline: Callable[[str], int | None],
    ) -> None:
        self._context = context
        self._state = state
        self._gangs = gangs
        self._asides = asides
        self._deadline = deadline
        self._began = format_instant(context.clock.wall())
        self._found: dict[str, Diagnosis] = {}  # of the last attempt, by key of the unit
        self._stands: dict[str, _Stand] = {}
        self._looked: int | None = None

    # What decisions report.

    def decided(self, attempt: Attempt) -> None:
        """Apply what an attempt ended in."""
        found = of_attempt(attempt)
        if found is None:
            self._found.pop(attempt.unit.name, None)
        else:
            self._found[attempt.unit.name] = found

    def is_sampled(self) -> bool:
        """Count a refusal; return whether what it was decided on is to be written to the log."""
        decision_log = self._context.decision_log
        return decision_log is not None and decision_log.samples.is_due()

    def sampled(self, unit: Unit, decision_input: Mapping[str, Any]) -> None:
        """Write to the decision log what a unit was refused on."""
        decision_log, key = self._context.decision_log, unit.name
        found = self._found.get(key)
        rows = [row for uid in unit.pods if (row := self._state.pod(uid)) is not None]
        if decision_log is not None and found is not None and rows:
            ref = self._ref(self._unit(key, rows, found))
            decision_log.decided_on(Plane.SCHEDULING, ref, found.reason, decision_input)

    def failed(self, unit: Unit) -> None:
        """Nothing was decided about the unit: what was known of it counts no more."""
        self._found.pop(unit.name, None)

    # Queries.

    def units(self) -> Iterator[WaitingUnit]:
        """Yield every unit that waits for a reason that is known."""
        for key, held, found in self._each():
            yield self._unit(key, held, found)

    def unit(self, kind: str, namespace: str, name: str) -> WaitingUnit | None:
        """Return the unit that a pod is in, or that a group is, None where it does not wait."""
        for each in self.units():
            if (each.kind, each.namespace, each.name) == (kind, namespace, name):
                return each
            for row in each.pods:
                if kind == "Pod" and (row.namespace, row.name) == (namespace, name):
                    return each
                if kind == "PodGroup" and f"{namespace}/{name}" in _groups_of(row):
                    return each
        return None

    def with_deadline(self, unit: WaitingUnit) -> Diagnosis:
        """Return the unit's diagnosis, with the instant by which its victims are to have ended."""
        found = unit.diagnosis
        end = self._deadline(unit.key) if found.reason is Reason.VICTIMS_LEAVING else None
        if end is None:
            return found
        instant = self._wall(end)
        values = {**found.values, "until": format_instant(instant)}
        return replace(found, values=values, earliest=instant)

    # Reports.

    def reconcile(self, now: int) -> None:
        """Count what waits, and report new reasons; called every second or so."""
        if self._looked is not None and now - self._looked < _PERIOD:
            return
        self._looked = now
        before, self._stands = self._stands, {}
        counts: Counter[Reason] = Counter()
        left = _MOST_REPORTED
        for key, held, found in self._each():
            reason = found.reason
            counts[reason] += 1
            stand = before.get(key)
            if stand is None:
                reported = self._reported_before(self._unit(key, held, found))
                stand = _Stand(reason, now, reported)
                self._log(key, held, found)
            elif stand.reason is not reason:
                stand = _Stand(reason, now)
                self._log(key, held, found)
            self._stands[key] = stand
            if not stand.reported and left > 0 and now - stand.since >= _PATIENCE:
                stand.reported = True
                left -= self._announce(self._unit(key, held, found))
        for key in self._found.keys() - self._stands.keys():
            del self._found[key]
        if self._context.decision_log is not None:
            for key in before.keys() - self._stands.keys():
                self._context.decision_log.waits_no_longer(Plane.SCHEDULING, key)
        self._context.metrics.show_waiting(Plane.SCHEDULING, counts)

    def _reported_before(self, unit: WaitingUnit) -> bool:
        """Whether the unit was notified that it waits before this process began."""
        group = self._state.group(unit.key)
        objects = [row.uid for row in unit.pods] if group is None else [group.uid]
        standing = [self._state.written.get(uid) for uid in objects]
        return any(
            each is not None and each.condition[0] == "False" and "" < each.since < self._began
            for each in standing
        )

    def _announce(self, unit: WaitingUnit) -> int:
        """Send the events of a unit; return how many."""
        text = waiting_event(self.with_deadline(unit))
        scheduler = unit.pods[0].pod_class.scheduler_name
        abouts = list(self._about(unit))
        for about in abouts:
            self._context.announce(about, text, scheduler)
        return len(abouts)

    def _log(self, key: str, held: _Held, found: Diagnosis) -> None:
        """Write a new reason to the decision log, if there is one."""
        decision_log = self._context.decision_log
        if decision_log is not None:
            unit = self._unit(key, held, found)
            decision_log.waits(key, self._ref(unit), self.with_deadline(unit))

    def _ref(self, unit: WaitingUnit) -> Reference:
        """Return the unit itself; without version and uid where it has no object."""
        about = next(iter(self._about(unit)), None)
        known = about is not None and (about.kind, about.name) == (unit.kind, unit.name)
        return Reference(
            about.api_version if about is not None and known else "",
            unit.kind,
            unit.namespace,
            unit.name,
            Uid(about.uid if about is not None and known else ""),
        )

    def _about(self, unit: WaitingUnit) -> Iterable[Reference]:
        """Yield the unit's group, or its pods where it has none."""
        group = self._state.group(unit.key)
        if group is not None:
            return (group_reference(group, self._context.group_version),)
        if unit.key.startswith(GANG_KEY):
            groups = [self._gang_reference(id) for id in sorted({row.gang for row in unit.pods})]
            if all(groups):
                return (each for each in groups if each is not None)
        return (pod_reference(row) for row in unit.pods[:_MOST_REPORTED])

    def _gang_reference(self, id: str) -> Reference | None:
        known = self._gangs.pod_group(id)
        if known is None:
            return None
        door, group = known
        data = group.metadata
        version = data.resource_version
        return Reference(
            door.api_version, "PodGroup", data.namespace, data.name, Uid(data.uid), version
        )

    # How.

    def _each(self) -> Iterator[tuple[str, _Held, Diagnosis]]:
        """Yield key, who holds the pods, and reason of every unit that waits.

        All of them are looked at every few seconds, so that nothing is made for those that are as
        they were.
        """
        seen = set()
        for key, gate, rows in self._state.queue.incomplete():
            seen.add(key)
            ungated = [row for row in rows if not row.gates]
            found = self._not_entered(key, gate, ungated) if ungated else None
            if found is not None:
                yield key, ungated, found
        for entry in self._state.queue.entries():
            seen.add(entry.key)
            found = self._of_entry(entry)
            if found is not None and entry.members:
                yield entry.key, entry, found
        parked: dict[str, list[PodRow]] = {}
        for each in self._gangs.parked.values():
            parked.setdefault(self._gangs.key_of(each.row), []).append(each.row)
        for key, rows in parked.items():
            if key not in seen:
                yield key, rows, self._found.get(key) or group_incomplete(None, None)

    def _unit(self, key: str, held: _Held, found: Diagnosis) -> WaitingUnit:
        rows = [each.row for each in held.members.values()] if isinstance(held, Entry) else held
        pods = tuple(sorted(rows, key=lambda row: (row.namespace, row.name)))
        group = self._state.group(key)
        if group is not None:
            kind, namespace, name = str(group.kind), group.namespace, group.name
        elif key == pods[0].uid:
            kind, namespace, name = "Pod", pods[0].namespace, pods[0].name
        else:
            kind = "PodGroup"
            namespace, _, name = (pods[0].gang or key).partition("/")
        return WaitingUnit(key, kind, namespace, name, pods, found)

    def _not_entered(self, key: str, gate: Gate, rows: Sequence[PodRow]) -> Diagnosis | None:
        """Return why members wait outside the queue."""
        if key.startswith(GANG_KEY):
            return self._of_gang(key, rows)
        way, root = self._state.root(key)
        if way is Way.MISSING and root.startswith(COMPOSITE):
            name = root.removeprefix(COMPOSITE)
            return group_missing(f"CompositePodGroup {name}")
        del gate  # it states the same in kube-scheduler's words
        return group_missing(f"PodGroup {key}")

    def _of_gang(self, key: str, rows: Sequence[PodRow]) -> Diagnosis | None:
        for row in rows:
            barring = self._gangs.barrier(row)
            if barring is None:
                continue
            gang = self._gangs.gangs.get(barring.gang)
            present, minimum = (0, 0) if gang is None else (len(gang.children), gang.minimum)
            return of_barring(barring, present, minimum)
        held = self._gangs.held_until(key)
        found = self._found.get(key)
        if found is not None or held is None:
            return found
        return backing_off(self._wall(held))

    def _of_entry(self, entry: Entry) -> Diagnosis | None:
        found = self._found.get(entry.key)
        if entry.place is Place.GATED and entry.gate is not None:
            return self._of_gate(entry, entry.gate, found)
        for aside in self._asides:
            until = aside.until(entry.key)
            if until is not None:
                return set_aside(self._wall(until))
        if found is None and entry.place in (Place.BACKOFF, Place.ERRORS):
            return backing_off(self._wall((entry.until + 1) * SECOND))
        return found

    def _of_gate(self, entry: Entry, gate: Gate, found: Diagnosis | None) -> Diagnosis | None:
        if gate.plugin == GATES:
            return None  # the API server reports it, and no part of ours waits for anything
        if gate.plugin == DEFAULT_PREEMPTION:
            leaving = found is not None and found.reason is Reason.VICTIMS_LEAVING
            return found if leaving else victims_leaving()
        if gate.plugin != GANG:
            return refused_claims(gate.message)
        if entry.key.startswith(GANG_KEY):
            return self._of_gang(entry.key, [each.row for each in entry.members.values()])
        return self._incomplete(entry.group, self._state.group(entry.group))

    def _incomplete(self, key: str, group: GroupRow | None) -> Diagnosis:
        if group is None:
            return group_missing(f"PodGroup {key}")
        if group.composite:
            why = "not enough of the groups below it have their minimum"
            return group_incomplete(None, None, why)
        return group_incomplete(self._state.known(key), group.min_count)

    def _wall(self, monotonic: int) -> Nanos:
        clock = self._context.clock
        return Nanos(clock.wall() + monotonic - clock.monotonic())


def _groups_of(row: PodRow) -> tuple[str, ...]:
    """Return namespace and name of the groups that a pod is in."""
    own = (f"{row.namespace}/{row.group}",) if row.group else ()
    return (*own, row.gang) if row.gang else own
