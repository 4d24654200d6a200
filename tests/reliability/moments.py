"""Moments of a plan, read from the audit log while it is written, so that harm can be done in them.

The record is received, the record is answered, so many victims are told to go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from tests.reliability.audit import Entry, evicts
from tests.reliability.stand import OPERATOR

__all__ = ["ANSWERED", "RECEIVED", "follow", "until_moment"]

#: The creation of a record; whatever is above is a number of victims.
RECEIVED: Final = -1
ANSWERED: Final = 0
_PATIENCE_S: Final = 240.0


async def until_moment(entries: AsyncIterator[Entry | None], wanted: int) -> None:
    """Return at a moment of the next plan, while entries are followed."""
    evictions = 0
    end = time.monotonic() + _PATIENCE_S
    async for entry in entries:
        assert time.monotonic() < end, f"moment {wanted} never came"
        if entry is None or entry.user.username != OPERATOR:
            continue
        record = entry.what == ("create", "preemptions", "")
        if record and wanted == RECEIVED:
            return
        if record and entry.done and wanted == ANSWERED:
            return
        evictions += evicts(entry)
        if 0 < wanted <= evictions:
            return


async def follow(log: Path) -> AsyncIterator[Entry | None]:
    """Yield entries as they are written from now on, and None once in a while."""
    decoder = msgspec.json.Decoder(Entry)
    with log.open("rb") as file:
        file.seek(0, 2)
        yield None
        rest = b""
        while True:
            rest += file.read()
            *lines, rest = rest.split(b"\n")
            for line in lines:
                try:
                    yield decoder.decode(line)
                except msgspec.DecodeError:
                    continue  # torn, as the API server was killed
            yield None
            await asyncio.sleep(0.002)
