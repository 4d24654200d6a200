"""The columns of built-in kinds: name, type, whether `-o wide` is needed, and the cell.

They stand in `layouts/columns.txt` (`layouts/NOTATION.md`). Source: the columns that a 1.37 server
gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from kubelocal.server.printing import cells, event_cells, pod_cells
from kubelocal.server.printing.ages import age
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.layout import GROUPS, layout_text
from kubeworld.units.instants import Nanos

__all__ = ["ColumnSpec", "columns_of"]

Object = Mapping[str, Any]
Cell = Callable[[Object, Nanos], Any]


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column; `priority` 1 shows with `-o wide` only."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    description: str = ""


def columns_of(kind: Kind, served: str = "") -> Sequence[ColumnSpec]:
    """Return the columns; a kind without its own has name and age.

    `served`: the kind of the objects where it is another one, as `Scale` is for a subresource.
    """
    if served == "Scale":
        return (_NAME, *_columns()["autoscaling", "Scale"])
    own = _columns().get((kind.group, kind.kind), (ColumnSpec("Age", _cell("age")),))
    # Events are distinguished by their contents: their names come last and wide only.
    return own if own[-1].name == "Name" else (_NAME, *own)


@cache
def _columns() -> Mapping[tuple[str, str], Sequence[ColumnSpec]]:
    found: dict[tuple[str, str], list[ColumnSpec]] = {}
    current: list[ColumnSpec] = []
    for line in layout_text("columns.txt").splitlines():
        if line.startswith("  "):
            name, source, *more = (part.strip() for part in line.split("|"))
            wide = more[-1:] == ["wide"]
            current.append(ColumnSpec(name, _cell(source), (more or ["string"])[0], int(wide)))
        else:
            current = []
            for word in line.split():
                group, _, kind = word.partition("/")
                found[GROUPS[group], kind] = current
    return found


def _cell(source: str) -> Cell:
    """Return what makes the cells of a column: a field, or a function of the cells' modules."""
    if source == "age":
        return lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now)
    if source.startswith((".", "#.", "?.")):
        path, _, default = source.partition("=")
        mark, *names = path.split(".")
        empty = json.loads(default) if default[:1].isdigit() else default
        return _field(tuple(names), mark, empty)
    word, _, argument = source.partition(":")
    function: Any = next(
        getattr(module, word) for module in (cells, event_cells, pod_cells) if hasattr(module, word)
    )
    if argument:
        return lambda obj, now: function(obj, argument)
    takes_time = function.__code__.co_argcount == 2
    return function if takes_time else lambda obj, now: function(obj)


def _field(names: Sequence[str], mark: str, default: Any) -> Cell:
    def cell(obj: Object, now: Nanos) -> Any:
        del now
        value: Any = obj
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        if mark:
            return len(value or ()) if mark == "#" else bool(value)
        return default if value is None else value

    return cell


_NAME: Final = ColumnSpec(
    "Name",
    _cell(".metadata.name"),
    description="Name of the object, unique among those of its kind and namespace.",
)
