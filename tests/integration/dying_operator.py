"""`reprieve` that is killed at one of its writes, before it is sent or once it is stored.

The file that the variable of `WHERE` names holds a number and `before` or `stored`; writes are
counted from its appearance on. The process removes it and dies as if the machine had. Leases and
Events do not count: they record no decision. Nothing else is other than in the product.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from reprieve.cli.main import main
from reprieve.kube.client import Client

__all__ = ["WHERE"]

WHERE: Final = "TESTS_DIES_AT"
_NO_DECISION: Final = ("/leases", "/events")
_send = Client._send


class _Death:
    """Counts writes while the file is there."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = 0

    def reached(self, stage: str) -> None:
        """Count a write, and die where it is the one."""
        try:
            number, when = self._file.read_text(encoding="utf-8").split()
        except FileNotFoundError:
            self._seen = 0
            return
        self._seen += stage == "before"
        if when == stage and self._seen >= int(number):
            self._file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    death = _Death(Path(os.environ[WHERE]))

    async def sent(self: Client, method: str, path: str, *given: Any, **rest: Any) -> bytes:
        counts = method != "GET" and not any(each in path for each in _NO_DECISION)
        if counts:
            death.reached("before")
        answer = await _send(self, method, path, *given, **rest)
        if counts:
            death.reached("stored")
        return answer

    with patch.object(Client, "_send", sent):
        main()
