"""What of a plan's record is in parts of a bounded size, in which order, and in how few bytes.

A victim is a line with its name and uid; what victims have in common, be it the reason, the name of
its subject or what is guarded, is stated once in each part, so that each can be read by itself.
`parts` reads what is written here. Pure: a spec is the input, specs of parts are the output.
Source: the design's "Intent log and executor".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from reprieve.api.reprieve import (
    Guard,
    ObjectRef,
    PartSpec,
    PreemptionSpec,
    SubjectClass,
    Victim,
    VictimClass,
    VictimGuard,
)

__all__ = ["packed", "subject_name"]

_RANGE: Final = 24  # bytes by which the end of a range may grow
_NAME: Final = "*"  # neither this nor the next stands in the name of an object
_UID: Final = "#"
_LETTERS: Final = 8  # of a uid
_BEFORE_LINEAGE: Final = 7  # fields of a `PartVictim`


def packed(spec: PreemptionSpec, name: str, size: int) -> Iterator[PartSpec]:
    """Yield the parts of the record `name`, of at most `size` bytes each.

    Those that hold anything: the first is empty where its size limit is too small.
    """
    index = 0
    for part in _Content(spec, name, size).items():
        if part.victims or part.placement or part.guards:
            yield msgspec.structs.replace(part, index=index)
            index += 1


def subject_name(pattern: str, root: ObjectRef) -> str:
    """Return the name of a victim's subject by the pattern of its class."""
    return pattern.replace(_UID, root.uid[:_LETTERS], 1).replace(_NAME, root.name, 1)


@dataclass(slots=True)
class _Room:
    """One part while it is filled; `left` in bytes."""

    left: int
    classes: dict[bytes, int] = field(default_factory=dict)
    rows: list[VictimClass] = field(default_factory=list)
    units: dict[str, int] = field(default_factory=dict)
    victims: list[str] = field(default_factory=list)  # lines, as are those of placement
    placement: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    ranges: list[VictimGuard] = field(default_factory=list)  # of its victims


class _Content:
    """What of a spec is in parts, of at most `size` bytes each."""

    def __init__(self, spec: PreemptionSpec, name: str, size: int) -> None:
        self._spec = spec
        self._name = name
        self._size = size
        self._encode = msgspec.json.Encoder().encode
        self._others, self._phases = _guards_apart(spec)

    def items(self) -> Iterator[PartSpec]:
        """Yield the parts in order."""
        rooms = [self._room()]
        for guard in self._others:
            line = self._encode(guard).decode()
            self._fitting(rooms, line).guards.append(line)
        for victim in self._spec.victims:
            if not self._add(rooms[-1], victim):
                rooms.append(self._room())
                self._add(rooms[-1], victim, whatever=True)
        for place in self._spec.placement:
            line = self._encode([place.uid, place.node]).decode()
            self._fitting(rooms, line).placement.append(line)
        spec = self._spec
        for index, room in enumerate(rooms):
            yield PartSpec(
                self._name,
                spec.plan_id,
                spec.decided_at,
                index,
                room.rows,
                list(room.units),
                "\n".join(room.victims),
                "\n".join(room.placement),
                "\n".join((*room.guards, *(self._encode(r).decode() for r in room.ranges))),
            )

    def _room(self) -> _Room:
        spec = self._spec
        empty = PartSpec(self._name, spec.plan_id, spec.decided_at, 10**6)
        names = sum(len(name) + 6 for name in empty.__struct_encode_fields__)
        return _Room(self._size - len(self._encode(empty)) - names)

    def _add(self, room: _Room, victim: Victim, *, whatever: bool = False) -> bool:
        """Add a victim to the part; return whether there was enough space."""
        root = victim.root
        shared = VictimClass(
            root.api_version,
            root.kind,
            victim.rule,
            root.namespace,
            victim.amounts,
            victim.action,
            _subject_class(victim),
            plane=victim.plane,
            frees=victim.frees,
            notice=victim.notice,
            notice_withheld=victim.notice_withheld,
        )
        said = self._encode(shared)
        number, unit = room.classes.get(said), room.units.get(victim.unit)
        cost = 1
        if number is None:
            number = len(room.classes)
            shared = msgspec.structs.replace(shared, reason=victim.reason)
            cost += len(self._encode(shared)) + 1
        else:
            shared = room.rows[number]
        if victim.unit and unit is None:
            unit = len(room.units)
            cost += len(self._encode(victim.unit)) + 1
        row: list[Any] = [root.name, root.uid, number, unit if victim.unit else None]
        row.append(None if victim.reason == shared.reason else victim.reason)
        if shared.subject is not None:
            row.append(victim.subject.uid)
            row.append(None if shared.subject.name else victim.subject.name)
        if victim.lineage or victim.lost_device_seconds:
            row += [None] * (_BEFORE_LINEAGE - len(row))
            row += [victim.lineage or None, victim.lost_device_seconds or None]
        while row[-1] is None:
            row.pop()
        line = self._encode(row).decode()
        cost += len(self._encode(line))
        guarded = self._guarded(room, victim)
        if guarded is not None and guarded.first == len(room.victims):
            cost += len(self._encode(guarded)) + _RANGE
        if cost > room.left and not whatever:
            return False
        room.left -= cost
        room.victims.append(line)
        if guarded is not None:
            if guarded.first < guarded.last:
                room.ranges.pop()
            room.ranges.append(guarded)
        if number == len(room.classes):
            room.classes[said] = number
            room.rows.append(shared)
        if victim.unit:
            assert unit is not None, "every unit has a number by now"
            room.units[victim.unit] = unit
        return True

    def _guarded(self, room: _Room, victim: Victim) -> VictimGuard | None:
        """Return the range of guards that ends with a victim that comes into the part next."""
        phases = self._phases.get(victim.subject.uid)
        if phases is None:
            return None
        place = len(room.victims)
        if room.ranges and (room.ranges[-1].last, room.ranges[-1].phases) == (place - 1, phases):
            return msgspec.structs.replace(room.ranges[-1], last=place)
        return VictimGuard(place, place, phases)

    def _fitting(self, rooms: list[_Room], line: str) -> _Room:
        """Return the part that the line is added to, a new one where the last is full."""
        cost = len(self._encode(line)) + 1
        if cost > rooms[-1].left:
            rooms.append(self._room())
        rooms[-1].left -= cost
        return rooms[-1]


def _guards_apart(spec: PreemptionSpec) -> tuple[list[Guard], dict[str, list[str]]]:
    """Return the guards that are stated in full, and the phases of victims' subjects by uid.

    What planes guard is at most one other object, and then victims in their order; all else is
    stated in full.
    """
    number = 0 if spec.guards and _about_a_victim(spec.guards[0], spec) else 1
    others, rest = spec.guards[:number], spec.guards[number:]
    phases = {guard.subject.uid: guard.phases for guard in rest}
    subjects = [each.subject for each in spec.victims if each.subject.uid in phases]
    if len(phases) < len(rest) or [guard.subject for guard in rest] != subjects:
        return spec.guards, {}
    return others, phases


def _about_a_victim(guard: Guard, spec: PreemptionSpec) -> bool:
    return any(guard.subject == victim.subject for victim in spec.victims)


def _subject_class(victim: Victim) -> SubjectClass | None:
    """Return what is stated of a victim's subject for all of its class, None for the root."""
    root, subject = victim.root, victim.subject
    if subject == root:
        return None
    name = subject.name.replace(root.name, _NAME, 1).replace(root.uid[:_LETTERS], _UID, 1)
    if _NAME not in name or subject_name(name, root) != subject.name:
        name = ""
    return SubjectClass(subject.api_version, subject.kind, subject.namespace, name)
