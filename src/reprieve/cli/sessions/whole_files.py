"""Files that are written whole or not at all: whatever fails, former ones stay as they were.

All of a set are written beside their places first, and only then moved there, each in one step.
What is no file of its own, such as a pipe or a device, is written to directly, and first, so that
what fails there leaves the others alone.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

__all__ = ["write_whole"]

Write = Callable[[BinaryIO], object]


def write_whole(files: Mapping[Path, Write]) -> None:
    """Write files, each by what is called with it.

    Raises:
        OSError: one of them cannot be written; none of the files is another one then.
    """
    places = {path.resolve(): write for path, write in files.items()}
    parts: dict[Path, Path] = {}
    try:
        for place, write in places.items():
            if place.exists() and not place.is_file():
                with place.open("wb") as direct:
                    write(direct)
        for place, write in places.items():
            if place.exists() and not place.is_file():
                continue
            if place.exists() and not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
            part = parts[place] = place.with_name(f".{place.name}.{os.getpid()}.part")
            with part.open("wb") as content:
                write(content)
            if place.exists():
                shutil.copymode(place, part)
        for place, part in parts.items():
            part.replace(place)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
