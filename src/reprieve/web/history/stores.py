"""Where samples are kept: in memory, or in a folder that outlives the process.

A folder has one file for the sums and one for each sixty samples of units. A file is written whole
under another name and then renamed, so that a process that is killed leaves the old one or the new
one. It is not forced onto the disk, which would hold up pages: a machine that loses its power may
lose the last hour. Files of other names are left alone.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, Protocol

from reprieve.units.errors import UsageError

__all__ = ["FolderStore", "MemoryStore", "Store"]

_ENDING: Final = ".reprieve"


class Store(Protocol):
    """Contents by name."""

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each content by name."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return a content, None where there is none."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Keep a content.

        Raises:
            OSError: it cannot be kept.
        """
        ...

    def remove(self, name: str) -> None:
        """Keep it no longer."""
        ...


class MemoryStore:
    """Keeps contents for as long as the process runs."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def sizes(self) -> dict[str, int]:
        return {name: len(content) for name, content in self._contents.items()}

    def read(self, name: str) -> bytes | None:
        return self._contents.get(name)

    def write(self, name: str, content: bytes) -> None:
        self._contents[name] = content

    def remove(self, name: str) -> None:
        self._contents.pop(name, None)


class FolderStore:
    """Keeps contents as files.

    Raises:
        UsageError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for path in folder.glob(f"*{_ENDING}.new"):
                path.unlink(missing_ok=True)
            self.write("sums", self.read("sums") or b"")
        except OSError as error:
            raise UsageError(
                f"--history {folder}: {error.strerror or error}; accepted: a folder that can be "
                "written"
            ) from None

    def sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for path in self._folder.glob(f"*{_ENDING}"):
            name = path.name.removesuffix(_ENDING)
            if _is_ours(name):
                with contextlib.suppress(FileNotFoundError):
                    found[name] = path.stat().st_size
        return found

    def read(self, name: str) -> bytes | None:
        try:
            return self._path(name).read_bytes()
        except OSError:
            return None

    def write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(content)
        new.replace(path)

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_ENDING}"


def _is_ours(name: str) -> bool:
    kind, _, number = name.partition("-")
    return name == "sums" or (kind == "units" and number.isdecimal() and len(number) < 20)
