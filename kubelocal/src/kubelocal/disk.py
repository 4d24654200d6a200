"""The objects on disk: one SQLite file in WAL mode, one synchronous transaction for each batch.

The files are their owner's alone, since Secrets are in them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from kubelocal.errors import UsageError

__all__ = ["Disk", "DiskError", "DiskFull", "Row"]

DiskError = sqlite3.Error

# resource, namespace, name, revision, body; a body of None is a deletion.
Row = tuple[str, str, str, int, bytes | None]


class DiskFull(Exception):
    """There is no space for a transaction; nothing of it was stored, and the next may succeed."""


class Disk:
    """The current version of every object, and the number of the last write.

    The file belongs to one process at a time. Raises `DiskError` wherever SQLite does.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            UsageError: another process has it open, or it is no file of this kind.
        """
        self.path = path
        try:
            _keep_private(path)
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be opened as the store of a cluster: {error.strerror}; "
                "accepted: a folder that this user may write to"
            ) from None
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=0.5)
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise UsageError(
                f"{path}: cannot be opened as the store of a cluster ({error}); accepted: a "
                "folder that no other process uses and whose files were made by kubelocal"
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
        # Acquires the lock, which is held until the file is closed.
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
        """Store all rows or none; they are on the disk when this returns.

        Raises:
            DiskFull: the disk has no free space.
        """
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
        except sqlite3.Error as error:
            # On some errors, a full disk among them, SQLite has rolled back by itself.
            if self._connection.in_transaction:
                execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise DiskFull(f"no space is left on the disk of {self.path}") from None
            raise

    def close(self) -> None:
        self._connection.close()


def _keep_private(path: Path) -> None:
    """Make the file if there is none; only its owner may read it or what SQLite stores beside.

    SQLite gives the files that it makes beside a database the rights of the database.
    """
    path.touch(mode=0o600)
    for kept in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if kept.exists():
            kept.chmod(0o600)
