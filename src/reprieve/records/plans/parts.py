"""A plan of any size in objects of a bounded one: split into a head and parts, and joined.

The head is the `Preemption`. As long as it is small it holds everything, each victim in full. What
is larger stands in `PreemptionPart` objects that the head names: the input of the decision in parts
of its own, so that it can be left out without a victim, and victims, placement and guards in
others. How these are packed is in `packed_parts`.

A part's name is made of its content and the time of the decision: writing it twice is harmless, and
no later decision uses a part of an earlier one. Pure: specs are input and output. Source: the
design's "Intent log and executor".
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from reprieve.api.reprieve import (
    PREEMPTION_LABEL,
    Guard,
    Metadata,
    ObjectRef,
    PartSpec,
    PartVictim,
    Placement,
    PreemptionPart,
    PreemptionSpec,
    SubjectClass,
    Victim,
    VictimGuard,
)
from reprieve.records.plans.packed_parts import packed, subject_name
from reprieve.units.errors import ReprieveError

__all__ = [
    "SIZES",
    "PartsMissing",
    "Sizes",
    "Split",
    "joined",
    "left",
    "omitted",
    "split",
    "whole",
]

T = TypeVar("T")
_DIGITS: Final = 12
_LONGEST_LABEL: Final = 63
_DATA: Final = "data"


class PartsMissing(ReprieveError):
    """Parts that a record names are not there, or are those of another plan."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Most bytes of JSON of a spec: of a head, above which it is split, and of a part.

    With its metadata and managed fields an object stays below 1 MiB, of 1.5 MiB that etcd accepts.
    """

    head: int = 16 * 1024
    part: int = 768 * 1024


SIZES: Final = Sizes()


@dataclass(frozen=True, slots=True)
class Split:
    """What is written: all of `parts` and `inputs`, then the head with this spec."""

    head: PreemptionSpec
    parts: tuple[PreemptionPart, ...] = ()
    inputs: tuple[PreemptionPart, ...] = ()


def split(name: str, namespace: str, spec: PreemptionSpec, sizes: Sizes = SIZES) -> Split:
    """Return the objects that record a plan under the head's name."""
    identity = Metadata(name, namespace)
    head, inputs = _input_apart(identity, spec, sizes)
    if not _too_large(head, sizes):
        return Split(head, (), inputs)
    parts = tuple(_part(identity, part) for part in packed(head, name, sizes.part))
    head = msgspec.structs.replace(
        head,
        victims=[],
        placement=[],
        guards=[],
        parts=[part.metadata.name for part in parts],
        victim_count=len(spec.victims),
    )
    return Split(head, parts, inputs)


def joined(head: PreemptionSpec, parts: Iterable[PartSpec]) -> PreemptionSpec:
    """Return the spec with the victims, placement and guards of its parts, in their order.

    Raises:
        PartsMissing: some are not there. The message counts them.
    """
    known = _ordered(head, parts)
    victims = [victim for part in known for victim in _victims(part)]
    if len(known) != len(head.parts) or len(victims) != head.victim_count:
        raise PartsMissing(
            f"{len(known)} of {len(head.parts)} parts are there, "
            f"with {len(victims)} of {head.victim_count} victims"
        )
    return msgspec.structs.replace(
        head,
        victims=victims,
        placement=[place for part in known for place in _placement(part)],
        guards=[guard for part in known for guard in _guards(part)],
    )


def left(head: PreemptionSpec, parts: Iterable[PartSpec]) -> PreemptionSpec:
    """Return the spec with what is left where not all of its parts are there, or can be read."""
    spec = head
    for part in _ordered(head, parts):
        with contextlib.suppress(PartsMissing):
            spec = msgspec.structs.replace(
                spec,
                victims=[*spec.victims, *_victims(part)],
                placement=[*spec.placement, *_placement(part)],
                guards=[*spec.guards, *_guards(part)],
            )
    return spec


def whole(head: PreemptionSpec, parts: Iterable[PartSpec]) -> PreemptionSpec:
    """Return the spec as it was before it was split; `parts`: of both sorts.

    Where a part of the input is missing, the input states it.

    Raises:
        PartsMissing: some of the others are not there.
    """
    known = [part for part in parts if part.plan_id == head.plan_id]
    spec = joined(head, [part for part in known if not part.input]) if head.parts else head
    if head.input_parts:
        pieces = sorted((part for part in known if part.input), key=lambda part: part.index)
        if len(pieces) != len(head.input_parts):
            said = f"{len(pieces)} of {len(head.input_parts)} parts of it are there"
            found = omitted(said)
        else:
            found = {**(head.input or {}), _DATA: "".join(part.input for part in pieces)}
        spec = msgspec.structs.replace(spec, input=found)
    return msgspec.structs.replace(spec, parts=[], input_parts=[], victim_count=0)


def omitted(why: str) -> dict[str, Any]:
    """Return what stands in place of an input that is not there."""
    return {"version": 1, "unwritten": why}


def _ordered(head: PreemptionSpec, parts: Iterable[PartSpec]) -> list[PartSpec]:
    return sorted((p for p in parts if p.plan_id == head.plan_id), key=lambda part: part.index)


def _input_apart(
    identity: Metadata, spec: PreemptionSpec, sizes: Sizes
) -> tuple[PreemptionSpec, tuple[PreemptionPart, ...]]:
    recorded: Mapping[str, Any] = spec.input or {}
    data = recorded.get(_DATA)
    if not isinstance(data, str) or len(data) <= sizes.head // 2:
        return spec, ()
    parts = tuple(
        _part(identity, PartSpec(identity.name, spec.plan_id, spec.decided_at, index, input=piece))
        for index, piece in enumerate(
            data[start : start + sizes.part] for start in range(0, len(data), sizes.part)
        )
    )
    rest = {key: value for key, value in recorded.items() if key != _DATA}
    names = [part.metadata.name for part in parts]
    return msgspec.structs.replace(spec, input=rest, input_parts=names), parts


def _too_large(head: PreemptionSpec, sizes: Sizes) -> bool:
    # No victim in full has less than that: thousands need not be encoded to be counted.
    return len(head.victims) * 128 > sizes.head or len(msgspec.json.encode(head)) > sizes.head


def _part(identity: Metadata, spec: PartSpec) -> PreemptionPart:
    digest = hashlib.sha256(msgspec.json.encode(spec)).hexdigest()[:_DIGITS]
    name = identity.name
    labels = {PREEMPTION_LABEL: name} if len(name) <= _LONGEST_LABEL else {}
    return PreemptionPart(Metadata(f"{name}-{digest}", identity.namespace, labels=labels), spec)


def _victims(part: PartSpec) -> Iterator[Victim]:
    for line in _lines(part.victims):
        each = _decoded(line, PartVictim)
        shared = _at(part.classes, each.number)
        root = ObjectRef(shared.api_version, shared.kind, each.name, each.uid, shared.namespace)
        yield Victim(
            subject=_subject(shared.subject, each, root),
            root=root,
            amounts=shared.amounts,
            rule=shared.rule,
            reason=shared.reason if each.reason is None else each.reason,
            action=shared.action,
            unit="" if each.unit is None else _at(part.units, each.unit),
            lineage=each.lineage or "",
            lost_device_seconds=each.lost or 0,
            plane=shared.plane,
            frees=shared.frees,
            notice=shared.notice,
            notice_withheld=shared.notice_withheld,
        )


def _subject(shared: SubjectClass | None, each: PartVictim, root: ObjectRef) -> ObjectRef:
    if shared is None:
        return root
    name = subject_name(shared.name, root) if shared.name else each.subject_name
    if not name or not each.subject_uid:
        raise PartsMissing(f"a part contradicts itself: the subject of {root.name} has no name")
    return ObjectRef(shared.api_version, shared.kind, name, each.subject_uid, shared.namespace)


def _guards(part: PartSpec) -> Iterator[Guard]:
    subjects: list[ObjectRef] | None = None
    for line in _lines(part.guards):
        if line.startswith("{"):
            yield _decoded(line, Guard)
            continue
        if subjects is None:
            subjects = [victim.subject for victim in _victims(part)]
        about = _decoded(line, VictimGuard)
        for number in range(about.first, about.last + 1):
            yield Guard(_at(subjects, number), about.phases)


def _placement(part: PartSpec) -> Iterator[Placement]:
    for line in _lines(part.placement):
        uid, node = _decoded(line, tuple[str, str])
        yield Placement(uid, node)


def _lines(text: str) -> list[str]:
    # Other characters that end lines may stand in a line's texts.
    return text.split("\n") if text else []


def _decoded(line: str, form: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=form)
    except msgspec.DecodeError as error:
        raise PartsMissing(f"a part cannot be read: {error}") from None


def _at(rows: Sequence[T], number: int) -> T:
    if not 0 <= number < len(rows):
        raise PartsMissing(f"a part contradicts itself: number {number} of {len(rows)}")
    return rows[number]
