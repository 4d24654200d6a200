"""What Kueue's webhooks say of the annotations by which pod templates ask for a topology.

Source: specification of topology-aware scheduling, section 1.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.units.untrusted import Unreadable, integer_or_none, read_json
from reprieve.api import field_errors as wrong
from reprieve.api.kueue_topology import (
    CONSTRAINTS,
    GROUP,
    PREFERRED,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    UNCONSTRAINED,
)

__all__ = ["Template", "asked_of_topology", "group_errors", "topology_errors"]

_ONE_OF: Final = (REQUIRED, PREFERRED, UNCONSTRAINED)
_SLICES: Final = (SLICE_LEVEL, SLICE_SIZE, CONSTRAINTS)
_MOST_LAYERS: Final = 3


@dataclass(frozen=True, slots=True)
class Template:
    """A pod template: the path of its annotations, what they say, and how many pods it is of.

    `count` None: that is not known where the template stands.
    """

    path: str
    annotations: Mapping[str, str]
    count: int | None

    def at(self, name: str) -> str:
        """Return the path of an annotation."""
        return f"{self.path}[{name}]"


def asked_of_topology(annotations: object) -> dict[str, str]:
    """Return the annotations that are about topologies, as far as they are text."""
    given = annotations if isinstance(annotations, dict) else {}
    names = (*_ONE_OF, *_SLICES, GROUP)
    return {name: given[name] for name in names if isinstance(given.get(name), str)}


def topology_errors(template: Template) -> Iterator[str]:
    """Yield what is wrong with what one pod template asks for."""
    notes = template.annotations
    given = [name for name in _ONE_OF if name in notes]
    if len(given) > 1:
        names = ", ".join(f'"{name}"' for name in _ONE_OF)
        why = f"must not contain more than one topology annotation: [{names}]"
        yield f"{template.path}: Invalid value: {why}"
    for name in (REQUIRED, PREFERRED, SLICE_LEVEL):
        if name in notes:
            for why in wrong.qualified_name(notes[name]):
                yield wrong.invalid(template.at(name), notes[name], why)
    if UNCONSTRAINED in notes and notes[UNCONSTRAINED] not in _BOOLEANS:
        at = template.at(UNCONSTRAINED)
        yield wrong.invalid(at, notes[UNCONSTRAINED], "must be a boolean value")
    yield from _slice_errors(template)
    if CONSTRAINTS in notes:
        yield from _layer_errors(template)
    if GROUP in notes:
        yield from _group_name_errors(template)


#: What Go reads as a boolean.
_BOOLEANS: Final = frozenset(
    ("1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False")
)


def _slice_errors(template: Template) -> Iterator[str]:
    notes, at = template.annotations, template.at(SLICE_SIZE)
    if SLICE_SIZE not in notes:
        if SLICE_LEVEL in notes:
            yield wrong.required(at, f"must be set when '{SLICE_LEVEL}' is specified")
        return
    if SLICE_LEVEL not in notes:
        yield wrong.forbidden(at, f"may not be set when '{SLICE_LEVEL}' is not specified")
    size = integer_or_none(notes[SLICE_SIZE])
    if size is None:
        yield wrong.invalid(at, notes[SLICE_SIZE], "must be a numeric value")
    elif size < 1:
        yield wrong.invalid(at, size, "must be greater than or equal to 1")
    elif template.count is not None and size > template.count:
        yield wrong.invalid(at, size, f"must not be greater than pod set count {template.count}")


def _layer_errors(template: Template) -> Iterator[str]:
    notes, at = template.annotations, template.at(CONSTRAINTS)
    for name in (SLICE_LEVEL, SLICE_SIZE):
        if name in notes:
            yield wrong.forbidden(at, f"may not be set when '{name}' is specified")
    try:
        layers = read_json(notes[CONSTRAINTS])
    except Unreadable as error:
        yield wrong.invalid(at, notes[CONSTRAINTS], f"must be a valid JSON array: {error}")
        return
    if not isinstance(layers, list) or not all(isinstance(each, dict) for each in layers):
        yield wrong.invalid(at, notes[CONSTRAINTS], "must be a valid JSON array: not a list")
        return
    if not 1 <= len(layers) <= _MOST_LAYERS:
        why = "topology constraints must contain between 1 and 3 entries"
        yield wrong.invalid(at, notes[CONSTRAINTS], why)
        return
    seen: dict[str, int] = {}
    parent: int | None = None
    for index, each in enumerate(layers):
        here, level, size = f"{at}[{index}]", each.get("topology"), each.get("size")
        level = level if isinstance(level, str) else ""
        yield from (
            wrong.invalid(f"{here}.topology", level, why) for why in wrong.qualified_name(level)
        )
        if level in seen:
            yield wrong.duplicate(f"{here}.topology", f"{level} (also at index {seen[level]})")
        seen.setdefault(level, index)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            yield wrong.invalid(f"{here}.size", size, "must be greater than or equal to 1")
            parent = None
            continue
        if parent is not None and parent % size:
            why = f"must evenly divide the parent layer size {parent}"
            yield wrong.invalid(f"{here}.size", size, why)
        if index == 0 and template.count is not None and size > template.count:
            why = f"must not be greater than pod set count {template.count}"
            yield wrong.invalid(f"{here}.size", size, why)
        parent = size


def _group_name_errors(template: Template) -> Iterator[str]:
    notes, at = template.annotations, template.at(GROUP)
    if integer_or_none(notes[GROUP]) is not None:
        yield wrong.invalid(at, notes[GROUP], "must not be a number")
    for name in _SLICES:
        if name in notes:
            yield wrong.forbidden(at, f"may not be set when '{name}' is specified")
    if REQUIRED not in notes and PREFERRED not in notes:
        why = f"may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified"
        yield wrong.forbidden(at, why)


def group_errors(templates: Sequence[Template]) -> Iterator[str]:
    """Yield what is wrong with the groups that the pod templates of a job form."""
    groups: dict[str, list[Template]] = {}
    for each in templates:
        if GROUP in each.annotations:
            groups.setdefault(each.annotations[GROUP], []).append(each)
    for name, members in groups.items():
        at = members[0].at(GROUP)
        if len(members) != 2:
            why = f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
            yield wrong.invalid(at, name, why)
            continue
        first, second = members
        if first.count != 1 and second.count != 1:
            yield wrong.invalid(
                at,
                name,
                "can only define groups where at least one pod set has only 1 replica, got: "
                f"{first.count} replica(s) and {second.count} replica(s) in the group",
            )
        if _level(first.annotations) != _level(second.annotations):
            yield wrong.invalid(
                second.path,
                name,
                f"must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with "
                f"'{first.path}' in group '{name}'",
            )


def _level(notes: Mapping[str, str]) -> tuple[Any, ...]:
    return tuple(notes.get(name) for name in (REQUIRED, PREFERRED))
