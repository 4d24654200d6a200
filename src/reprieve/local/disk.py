"""The objects on disk: one SQLite file in WAL mode, one synchronous transaction for each batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["Disk", "DiskError", "Row"]

DiskError = sqlite3.Error

# resource, namespace, name, revision, body; a body of None is a deletion.
Row = tuple[str, str, str, int, bytes | None]


class Disk:
    """The current version of every object, and the number of the last write.

    Raises `DiskError` wherever SQLite does.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS objects (resource TEXT, namespace TEXT, name TEXT,"
            " revision INTEGER, body BLOB, PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID"
        )
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, revision INTEGER)"
        )

    def rows(self) -> Iterator[tuple[str, str, str, int, bytes]]:
        """Yield every object."""
        yield from self._connection.execute(
            "SELECT resource, namespace, name, revision, body FROM objects"
        )

    def revision(self) -> int:
        """Return the number of the last write, 0 for an empty file."""
        (found,) = self._connection.execute("SELECT max(revision) FROM counter").fetchone()
        return found or 0

    def write(self, rows: Iterable[Row]) -> None:
        """Store all rows or none; they are on the disk when this returns."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            revision = 0
            for resource, namespace, name, revision, body in rows:
                if body is None:
                    execute(
                        "DELETE FROM objects WHERE resource=? AND namespace=? AND name=?",
                        (resource, namespace, name),
                    )
                else:
                    execute(
                        "INSERT OR REPLACE INTO objects VALUES (?,?,?,?,?)",
                        (resource, namespace, name, revision, body),
                    )
            execute("INSERT OR REPLACE INTO counter VALUES (1, ?)", (revision,))
            execute("COMMIT")
        except sqlite3.Error:
            execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._connection.close()
