"""Which TCP connections processes have and had, as Linux tells it in /proc."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["Address", "Connections", "watching"]

# Connections are kept for seconds.
_PAUSE_S: Final = 0.1
_LISTEN: Final = "0A"

Address = tuple[str, int]


@dataclass(slots=True)
class Connections:
    """What was seen: ports that were listened at, and the far ends of connections by direction."""

    listening: set[int] = field(default_factory=set)
    outgoing: set[Address] = field(default_factory=set)
    incoming: set[int] = field(default_factory=set)

    def look(self, pids: Iterable[int]) -> None:
        """Add what the processes, and the processes that they started, have now."""
        for pid in _with_children(pids):
            held = set(_sockets(pid))
            found = [each for each in _table(pid) if each[3] in held]
            self.listening |= {local[1] for local, _, state, _ in found if state == _LISTEN}
            for local, remote, state, _ in found:
                if state == _LISTEN:
                    continue
                if local[1] in self.listening:
                    self.incoming.add(local[1])
                else:
                    self.outgoing.add(remote)


@contextlib.asynccontextmanager
async def watching(pids: Callable[[], Iterable[int]]) -> AsyncIterator[Connections]:
    """Look again and again at the processes that there are, until the block ends."""
    seen = Connections()

    async def look() -> None:
        while True:
            seen.look(pids())
            await asyncio.sleep(_PAUSE_S)

    task = asyncio.create_task(look())
    try:
        yield seen
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _with_children(pids: Iterable[int]) -> Iterator[int]:
    for pid in pids:
        yield pid
        with contextlib.suppress(OSError):
            for file in Path(f"/proc/{pid}/task").glob("*/children"):
                yield from _with_children(int(each) for each in file.read_text().split())


def _sockets(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(link.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]


def _table(pid: int) -> Iterator[tuple[Address, Address, str, str]]:
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                _, local, remote, state, *rest = line.split()
                yield _address(local), _address(remote), state, rest[5]


def _address(text: str) -> Address:
    """Return what the kernel writes as words of the machine's own order, and a port."""
    host, port = text.split(":")
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
    ip = ipaddress.ip_address(b"".join(words))
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    return str(ip), int(port, 16)
