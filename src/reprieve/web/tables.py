"""What a page is made of: values that stand alone, and tables of rows under an id.

A page is made anew from the mirror whenever something changed, and compared with what it was: rows
that did not change are the same tuples as before, so that comparing costs next to nothing. Times
are instants, never ages, since ages change by themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kubeworld.units.instants import Nanos
from reprieve.units.errors import ReprieveError, UsageError

__all__ = [
    "Cell",
    "Column",
    "InvalidParameter",
    "Kind",
    "NotFound",
    "Page",
    "Parameters",
    "Table",
    "Viewer",
    "seconds",
]

#: A text, a number, a flag, a list of texts, or None.
Cell: TypeAlias = str | int | float | bool | list[str] | None
#: Query parameters by name, each as often as it was given.
Parameters: TypeAlias = Mapping[str, tuple[str, ...]]

_SECOND: Final = 1_000_000_000


class NotFound(ReprieveError):
    """There is no such page or object, or the viewer may not know that there is."""


class InvalidParameter(UsageError):
    """A parameter of an address cannot be read."""


class Kind(enum.StrEnum):
    """How the cells of a column are shown and sorted."""

    TEXT = "text"
    NUMBER = "number"
    #: Seconds since the epoch.
    INSTANT = "instant"
    #: Seconds.
    DURATION = "duration"
    #: A word of an enumeration.
    WORD = "word"
    FLAG = "flag"
    #: Texts.
    LIST = "list"
    #: A unit, as `kind/namespace/name`.
    UNIT = "unit"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under their ids, in the order in which they are shown at first.

    A row has one cell for each column. A row that did not change is best the same object.
    """

    columns: tuple[Column, ...]
    rows: Mapping[str, tuple[Cell, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """All that one page shows; `values` are whatever JSON can state."""

    values: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Viewer:
    """What of the cluster may be shown: everything, or the work of some namespaces."""

    sees_all: bool
    namespaces: frozenset[str] = frozenset()

    def sees(self, namespace: str) -> bool:
        """Return whether work of this namespace may be named."""
        return self.sees_all or namespace in self.namespaces


def seconds(instant: Nanos | None) -> float | None:
    """Return an instant as seconds since the epoch, in whole milliseconds."""
    return None if instant is None else round(instant / _SECOND, 3)
