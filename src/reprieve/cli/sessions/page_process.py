"""The page of `reprieve up`: `reprieve dashboard` as a process of its own.

So that drawing pages holds up neither the cluster nor the operator, and a fault in a page ends the
page alone. It ends with this process, also where that is killed: its standard input ends then.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reprieve.units.errors import UsageError

__all__ = ["PageProcess"]

_START_S: Final = 30.0
_END_S: Final = 5.0
_USAGE: Final = 2


class PageProcess:
    """One `reprieve dashboard`; `start` and `stop` it once; `more`: further options of it."""

    def __init__(self, kubeconfig: Path, port: int, more: Sequence[str] = ()) -> None:
        asked = ("--kubeconfig", str(kubeconfig), "--port", str(port), "--no-open")
        self._arguments = (*asked, *more)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> tuple[str, str]:
        """Return its address, or an empty one and why there is none.

        Raises:
            UsageError: the port cannot be used.
        """
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "reprieve", "dashboard", "--with-parent", *self._arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C in a terminal reaches the whole group; the order of stopping is ours.
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(_START_S):
                address = (await process.stdout.readline()).decode().strip()
                if address:
                    return address, ""
                why = (await process.stderr.read()).decode(errors="replace")
                code = await process.wait()
        except TimeoutError:
            return "", f"it has not started within {_START_S:.0f} s"
        if code == _USAGE:
            raise UsageError(why.strip().removeprefix("Error: ").replace("--port", "--web-port"))
        return "", why.strip().rpartition("\n")[2]

    async def stop(self) -> None:
        """Request it to end, and end it if it does not."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_END_S):
                await process.communicate()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
