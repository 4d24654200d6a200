"""A reader of the wire, as a browser is one: written from the contract, sharing nothing with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from reprieve.web.tables import Page


@dataclass
class Browser:
    """What a page shows that was told these events; rows by slot."""

    position: str = ""
    snapshots: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, dict[int, list[Any]]] = field(default_factory=dict)
    columns: dict[str, list[list[str]]] = field(default_factory=dict)

    def hear(self, text: bytes) -> None:
        for block in text.decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "event" not in lines:
                continue
            document = json.loads(lines["data"])
            if lines["event"] == "snapshot":
                self.snapshot(document)
            else:
                assert lines["event"] == "difference", lines
                self._difference(document)
            assert lines["id"].endswith(f".{document['sequence']}")
            self.position = lines["id"]

    def snapshot(self, document: dict[str, Any]) -> None:
        self.snapshots += 1
        self.position = f"{document['epoch']}.{document['sequence']}"
        self.values = document["values"]
        self.columns = {name: table["columns"] for name, table in document["tables"].items()}
        self.tables = {
            name: {
                slot: [column[at] for column in table["data"]]
                for at, slot in enumerate(table["slots"])
            }
            for name, table in document["tables"].items()
        }

    def _difference(self, document: dict[str, Any]) -> None:
        assert document["sequence"] == int(self.position.rpartition(".")[2]) + 1
        self.values = self.values | document["values"]
        for name in document["gone"]:
            del self.values[name]
        for name, changes in document["tables"].items():
            rows = self.tables[name]
            for slot in changes["remove"]:
                del rows[slot]
            for at, slot in enumerate(changes["add"]["slots"]):
                assert slot not in rows
                rows[slot] = [column[at] for column in changes["add"]["data"]]
            for column, slots, cells in changes["set"]:
                for slot, cell in zip(slots, cells, strict=True):
                    rows[slot][column] = cell

    def shown(self) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """Return the values, and the rows of each table as texts in a fixed order."""
        rows = {
            name: sorted(_text(row) for row in table.values())
            for name, table in self.tables.items()
        }
        return self.values, rows


def meant(page: Page) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return what a browser shows that shows this page."""
    rows = {
        name: sorted(_text(list(row)) for row in table.rows.values())
        for name, table in page.tables.items()
    }
    return json.loads(json.dumps(dict(page.values))), rows


def _text(row: list[Any]) -> str:
    """Return a row as JSON; 2.0 is 2 to a browser."""
    return json.dumps([int(c) if isinstance(c, float) and c.is_integer() else c for c in row])
