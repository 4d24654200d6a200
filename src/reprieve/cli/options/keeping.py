"""Where `reprieve dashboard` and `reprieve web` keep their samples, as their options say."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeworld.units.durations import SECOND
from reprieve.units.errors import UsageError
from reprieve.web.history.history import History
from reprieve.web.history.stores import FolderStore

__all__ = ["kept_history"]

_QUICKEST: Final = SECOND


def kept_history(folder: Path | None, every: int) -> History:
    """Return the samples of a folder, or new ones in memory.

    Raises:
        UsageError: the folder cannot be written, or samples would come too quickly.
    """
    if every < _QUICKEST:
        raise UsageError("--sample-every: accepted: a duration of at least 1s")
    return History(None if folder is None else FolderStore(folder), every)
