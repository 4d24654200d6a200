"""The rows of a table as a file: CSV for spreadsheets, JSON for programs.

Exactly what the viewer is shown. Instants are written in RFC 3339 with whole seconds, lists with
`; ` between. A text that a spreadsheet would read as a formula is kept from it by a quotation mark
in front, since names of objects are tenants' text (OWASP, CSV injection).
"""

from __future__ import annotations

import csv
import io
from typing import Final

import msgspec

from kubeworld.units.instants import Nanos, format_instant
from reprieve.web.live.differences import TableState
from reprieve.web.tables import Cell, Kind

__all__ = ["csv_of", "json_of"]

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


def csv_of(table: TableState) -> bytes:
    """Return a table as CSV (RFC 4180), with the names of its columns as the first row."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([column.name for column in table.columns])
    kinds = [column.kind for column in table.columns]
    for row in table.rows.values():
        writer.writerow([_written(cell, kind) for cell, kind in zip(row, kinds, strict=True)])
    return text.getvalue().encode()


def json_of(table: TableState) -> bytes:
    """Return a table as a list of objects."""
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows.values()]
    return msgspec.json.encode(rows)


def _written(cell: Cell, kind: Kind) -> str:
    match cell:
        case None:
            return ""
        case bool():
            return "true" if cell else "false"
        case int() | float():
            if kind is Kind.INSTANT:
                return format_instant(Nanos(round(cell * 1_000_000_000)))
            return str(cell)
        case list():
            return _harmless("; ".join(cell))
    return _harmless(cell)


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
