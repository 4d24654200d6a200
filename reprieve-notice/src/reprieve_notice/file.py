"""A notice in a file: what the operator writes into an annotation, and a downwardAPI volume shows.

The operator receives nothing from a pod that is notified in this way alone: it assumes that the pod
has saved when the pod ends. The deadline is held against the clock of the pod's node.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable

from reprieve_notice.notified import Notified

__all__ = ["FileSource"]

_LOOK_S = 1.0


class FileSource:
    """Reads the file anew each time, since the kubelet replaces it."""

    hears = False

    def __init__(
        self,
        path: Path,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path = path
        self.monotonic = monotonic
        self._wall = wall
        self._sleep = sleep

    def ask(self, wait: int = 0) -> Notified | None:
        """Return the notice of this pod as soon as there is one, None after so many seconds."""
        until = self.monotonic() + wait
        while True:
            found = self._read()
            if found is not None or self.monotonic() >= until:
                return found
            self._sleep(_LOOK_S)

    def report(self, id: str, state: str, **more: Any) -> Notified | None:
        """Return the notice; what this pod reports is not read."""
        return self._read()

    def _read(self) -> Notified | None:
        try:
            answer = json.loads(self._path.read_text(encoding="utf-8") or "null")
            if not isinstance(answer, dict):
                return None
            notified = Notified.at(answer, self._wall(), self.monotonic())
        except (OSError, ValueError):
            return None  # not there yet, or not written by the operator
        return None if notified.withdrawn else notified
