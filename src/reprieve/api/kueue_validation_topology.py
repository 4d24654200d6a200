"""What Kueue's webhooks state of the annotations by which pod templates request a topology.

Source: specification of topology-aware scheduling, section 1.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
    boolean_or_none,
)

__all__ = ["Template", "asked_of_topology", "group_errors", "topology_errors"]

_INT32: Final = (-(2**31), 2**31 - 1)
_ONE_OF: Final = (REQUIRED, PREFERRED, UNCONSTRAINED)
_SLICES: Final = (SLICE_LEVEL, SLICE_SIZE, CONSTRAINTS)
_MOST_LAYERS: Final = 3


@dataclass(frozen=True, slots=True)
class Template:
    """A pod template: the path of its annotations, what they state, and how many pods it is of.

    `count` None: that is not known where the template stands. `alone`: the pods of this template
    are all that `count` counts, and not those of other shapes as well.
    """

    path: str
    annotations: Mapping[str, str]
    count: int | None
    alone: bool = True

    def at(self, name: str) -> str:
        """Return the path of an annotation."""
        return f"{self.path}[{name}]"


def asked_of_topology(annotations: object) -> dict[str, str]:
    """Return the annotations that are about topologies, as far as they are text."""
    given = annotations if isinstance(annotations, dict) else {}
    names = (*_ONE_OF, *_SLICES, GROUP)
    return {name: given[name] for name in names if isinstance(given.get(name), str)}


def topology_errors(template: Template, *, layered: bool = True) -> Iterator[str]:
    """Yield what is wrong with what one pod template requests.

    `layered`: the gate TASMultiLayerTopology permits slices in several layers.
    """
    found = [*_errors(template, layered)]
    # As in the reference, which looks at the number of pods last.
    yield from found or _against_count(template)


def _errors(template: Template, layered: bool) -> Iterator[str]:
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
    if GROUP in notes:
        yield from _group_name_errors(template)
    if UNCONSTRAINED in notes and boolean_or_none(notes[UNCONSTRAINED]) is None:
        at = template.at(UNCONSTRAINED)
        yield wrong.invalid(at, notes[UNCONSTRAINED], "must be a boolean value")
    yield from _slice_errors(template)
    if CONSTRAINTS in notes and not layered:
        why = "the TASMultiLayerTopology feature gate must be enabled to use this annotation"
        yield wrong.forbidden(template.at(CONSTRAINTS), why)
    elif CONSTRAINTS in notes:
        yield from _layer_errors(template)


def _slice_errors(template: Template) -> Iterator[str]:
    notes, at = template.annotations, template.at(SLICE_SIZE)
    if SLICE_SIZE in notes:
        size = integer_or_none(notes[SLICE_SIZE], *_INT32)
        if size is None:
            yield wrong.invalid(at, notes[SLICE_SIZE], "must be a numeric value")
        elif size < 1:
            yield wrong.invalid(at, notes[SLICE_SIZE], "must be greater than or equal to 1")
        if SLICE_LEVEL not in notes:
            yield wrong.forbidden(at, f"may not be set when '{SLICE_LEVEL}' is not specified")
    elif SLICE_LEVEL in notes:
        yield wrong.required(at, f"must be set when '{SLICE_LEVEL}' is specified")


def _against_count(template: Template) -> Iterator[str]:
    """Yield which slices are larger than the pod set, or leave pods without a slice.

    Unlike in the reference, where the pods of an incomplete slice wait for ever.
    """
    notes, count = template.annotations, template.count
    if count is None:
        return
    sizes: list[tuple[str, int, object]] = []
    size = integer_or_none(notes.get(SLICE_SIZE, ""), *_INT32)
    if size is not None:
        sizes.append((SLICE_SIZE, size, notes[SLICE_SIZE]))
    if CONSTRAINTS in notes:
        first = read_json(notes[CONSTRAINTS])[0]["size"]
        sizes.append((CONSTRAINTS, first, first))
    for name, size, shown in sizes:
        if size > count:
            why = f"must not be greater than pod set count {count}"
            yield wrong.invalid(template.at(name), shown, why)
        elif template.alone and count % size:
            why = f"must evenly divide pod set count {count}"
            yield wrong.invalid(template.at(name), shown, why)


def _layer_errors(template: Template) -> Iterator[str]:
    notes, at = template.annotations, template.at(CONSTRAINTS)
    for name in (SLICE_LEVEL, SLICE_SIZE):
        if name in notes:
            yield wrong.forbidden(at, f"may not be set when '{name}' is specified")
    if GROUP in notes:
        why = f"may not be set when '{CONSTRAINTS}' is specified"
        yield wrong.forbidden(template.at(GROUP), why)
    try:
        layers = read_json(notes[CONSTRAINTS])
    except Unreadable as error:
        yield wrong.invalid(at, notes[CONSTRAINTS], f"must be a valid JSON array: {error}")
        return
    fault = _not_layers(layers)
    if fault:
        yield wrong.invalid(at, notes[CONSTRAINTS], f"must be a valid JSON array: {fault}")
        return
    if not 1 <= len(layers) <= _MOST_LAYERS:
        why = "topology constraints must contain between 1 and 3 entries"
        yield wrong.invalid(at, notes[CONSTRAINTS], why)
        return
    yield from _each_layer(at, [(e.get("topology") or "", e.get("size") or 0) for e in layers])


def _not_layers(given: Any) -> str:
    """Return why a value is no list of layers, empty if it is one."""
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        return "it is no list of objects"
    for each in given:
        if not isinstance(each.get("topology") or "", str):
            return "a topology is no text"
        size = each.get("size") or 0
        if isinstance(size, bool) or not isinstance(size, int):
            return "a size is no integer"
    return ""


def _each_layer(at: str, layers: Sequence[tuple[str, int]]) -> Iterator[str]:
    for index, (level, size) in enumerate(layers):
        here = f"{at}[{index}]"
        yield from (
            wrong.invalid(f"{here}.topology", level, why) for why in wrong.qualified_name(level)
        )
        if size < 1:
            yield wrong.invalid(f"{here}.size", size, "must be greater than or equal to 1")
    seen: dict[str, int] = {}
    for index, (level, _) in enumerate(layers):
        if level in seen:
            said = f"{level} (also at index {seen[level]})"
            yield wrong.duplicate(f"{at}[{index}].topology", said)
        seen.setdefault(level, index)
    for index, ((_, parent), (_, size)) in enumerate(pairwise(layers), 1):
        if size > 0 and parent % size:
            why = f"must evenly divide the parent layer size {parent}"
            yield wrong.invalid(f"{at}[{index}].size", size, why)


def _group_name_errors(template: Template) -> Iterator[str]:
    notes, at = template.annotations, template.at(GROUP)
    if integer_or_none(notes[GROUP], 0, 2**64 - 1) is not None:
        yield wrong.invalid(at, notes[GROUP], "must not be a number")
    for name in (SLICE_SIZE, SLICE_LEVEL):
        if name in notes:
            yield wrong.forbidden(at, f"may not be set when '{name}' is specified")
    if REQUIRED not in notes and PREFERRED not in notes:
        why = f"may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified"
        yield wrong.forbidden(at, why)


def group_errors(templates: Sequence[Template]) -> Iterator[str]:
    """Yield what is wrong with the groups that the pod templates of a job form."""
    groups: dict[str, list[Template]] = {}
    for each in templates:
        # As in the reference a name counts beside a level alone.
        if GROUP in each.annotations and any(_level(each.annotations)):
            groups.setdefault(each.annotations[GROUP], []).append(each)
    for name, members in groups.items():
        if len(members) != 2:
            why = f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
            yield from (wrong.invalid(each.at(GROUP), name, why) for each in members)
            continue
        first, second = members
        if first.count != 1 and second.count != 1:
            why = (
                "can only define groups where at least one pod set has only 1 replica, got: "
                f"{first.count} replica(s) and {second.count} replica(s) in the group"
            )
            yield from (wrong.invalid(each.at(GROUP), name, why) for each in members)
        if _level(first.annotations) != _level(second.annotations):
            for each, other in ((first, second), (second, first)):
                yield (
                    f"{each.path}: Invalid value: must specify '{REQUIRED}' or '{PREFERRED}' "
                    f"topology consistent with '{other.path}' in group '{name}'"
                )


def _level(notes: Mapping[str, str]) -> tuple[Any, ...]:
    return tuple(notes.get(name) for name in (REQUIRED, PREFERRED))
