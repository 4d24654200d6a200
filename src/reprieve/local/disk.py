"""The objects on disk: one SQLite file in WAL mode, one synchronous transaction for each batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from reprieve.units.errors import UsageError

__all__ = ["Disk", "DiskError", "Row"]

DiskError = sqlite3.Error

# resource, namespace, name, revision, body; a body of None is a deletion.
Row = tuple[str, str, str, int, bytes | None]


class Disk:
    """The current version of every object, and the number of the last write.

    The file belongs to one process at a time. Raises `DiskError` wherever SQLite does.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            UsageError: another process has it open, or it is no file of this kind.
        """
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=0.5)
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise UsageError(
                f"{path}: cannot be opened as the store of a cluster ({error}); accepted: a "
                "folder that no other process uses and whose files were made by Reprieve"
            ) from None

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS objects (resource TEXT, namespace TEXT, name TEXT,"
            " revision INTEGER, body BLOB, PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID"
        )
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, revision INTEGER)"
        )
        # Takes the lock, which is kept until the file is closed.
        self._connection.execute("INSERT OR IGNORE INTO counter VALUES (1, 0)")

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
