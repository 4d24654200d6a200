"""What changed between two pages, in columns, and a whole page in columns.

A row is numbered by a slot that it keeps for as long as it is in the page; a new row gets a new
slot, so that what a reader holds is never mistaken for another row. Rows are compared by identity
first: a page gives a row that did not change as the same tuple. Values are compared as they are
written, by name. What a difference cannot express (other tables, other columns) needs a new
snapshot. Pure: no clock, no network. Time is linear in the rows of a page, without touching
unchanged cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from reprieve.web.tables import Cell, Column, Page, Table

__all__ = ["AddedRows", "Difference", "State", "TableDifference", "advanced", "begun", "columns_of"]

_ENCODER: Final = msgspec.json.Encoder()


class AddedRows(msgspec.Struct):
    """New rows: for each column the cells, in the order of the slots."""

    slots: list[int] = []
    data: list[list[Cell]] = []


class TableDifference(msgspec.Struct):
    """What became of a table; first rows are removed, then added, then cells set.

    `set` has (index of the column, slots, new cells).
    """

    remove: list[int] = []
    add: AddedRows = msgspec.field(default_factory=AddedRows)
    set: list[tuple[int, list[int], list[Cell]]] = []

    def __bool__(self) -> bool:
        return bool(self.remove or self.add.slots or self.set)


class Difference(msgspec.Struct):
    """What became of a page."""

    values: dict[str, msgspec.Raw] = {}
    gone: list[str] = []
    tables: dict[str, TableDifference] = {}

    def __bool__(self) -> bool:
        return bool(self.values or self.gone or self.tables)


@dataclass(frozen=True, slots=True)
class TableState:
    """A table with its slots; `slots` and `rows` have the same keys."""

    columns: tuple[Column, ...]
    rows: Mapping[str, tuple[Cell, ...]]
    slots: Mapping[str, int]
    #: Larger than every slot that was ever given.
    next_slot: int


@dataclass(frozen=True, slots=True)
class State:
    """A page as readers of it have it; values as they are written."""

    values: Mapping[str, bytes]
    tables: Mapping[str, TableState]


def begun(page: Page) -> State:
    """Return a page with slots given to its rows."""
    return State(
        {name: _ENCODER.encode(value) for name, value in page.values.items()},
        {name: _numbered(table) for name, table in page.tables.items()},
    )


def advanced(state: State, page: Page) -> tuple[State, Difference | None]:
    """Return the state that holds `page`, and how it differs; None where only a snapshot has it."""
    if not _same_shape(state, page):
        return begun(page), None
    values = {name: _ENCODER.encode(value) for name, value in page.values.items()}
    reported = {
        name: msgspec.Raw(written)
        for name, written in values.items()
        if state.values.get(name) != written
    }
    result = Difference(reported, [name for name in state.values if name not in values])
    tables: dict[str, TableState] = {}
    for name, table in page.tables.items():
        tables[name], difference = _advanced_table(state.tables[name], table)
        if difference:
            result.tables[name] = difference
    return State(values, tables), result


def columns_of(table: TableState) -> tuple[list[int], list[list[Cell]]]:
    """Return the slots of a table in its order, and the cells of each column in that order."""
    return [table.slots[row] for row in table.rows], _turned(table, list(table.rows.values()))


def _numbered(table: Table) -> TableState:
    rows = dict(table.rows)
    return TableState(table.columns, rows, {row: i for i, row in enumerate(rows)}, len(rows))


def _same_shape(state: State, page: Page) -> bool:
    return state.tables.keys() == page.tables.keys() and all(
        state.tables[name].columns == table.columns for name, table in page.tables.items()
    )


def _advanced_table(old: TableState, new: Table) -> tuple[TableState, TableDifference]:
    # A copy, since the maker of the page may continue to use the mapping that it is made of.
    rows = dict(new.rows)
    added: list[str] = []
    cells: dict[int, tuple[list[int], list[Cell]]] = {}
    for key, row in rows.items():
        before = old.rows.get(key)
        if before is row:
            continue
        if before is None:
            added.append(key)
            continue
        for index, (was, becomes) in enumerate(zip(before, row, strict=True)):
            if was != becomes:
                slots, values = cells.setdefault(index, ([], []))
                slots.append(old.slots[key])
                values.append(becomes)
    removed = (
        [key for key in old.rows if key not in rows]
        if len(rows) != len(old.rows) + len(added)
        else []
    )
    difference = TableDifference(
        [old.slots[key] for key in removed],
        set=[(index, *cells[index]) for index in sorted(cells)],
    )
    if not added and not removed:
        return TableState(old.columns, rows, old.slots, old.next_slot), difference
    gone = set(removed)
    slots_now = {key: slot for key, slot in old.slots.items() if key not in gone}
    fresh = range(old.next_slot, old.next_slot + len(added))
    slots_now.update(zip(added, fresh, strict=True))
    if added:
        difference.add = AddedRows(list(fresh), _turned(old, [rows[key] for key in added]))
    state = TableState(old.columns, rows, slots_now, old.next_slot + len(added))
    return state, difference


def _turned(table: TableState, rows: list[tuple[Cell, ...]]) -> list[list[Cell]]:
    if not rows:
        return [[] for _ in table.columns]
    return [list(column) for column in zip(*rows, strict=True)]
