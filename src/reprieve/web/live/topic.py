"""One page as it is sent: numbered snapshots and differences, and the last five minutes of them.

A topic has an epoch, drawn anew for each, and a sequence number that rises by one with each change.
A reader is nothing but the number up to which it was updated: what it is sent next is the
differences since, as long as they are kept and shorter than the page itself, else a snapshot. So a
slow reader costs no memory, and one that comes back after a while, or to a server that was started
anew (another epoch), gets what it needs. No clock of its own, no network.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

import msgspec

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from kubeworld.units.untrusted import INT64, integer_or_none
from reprieve.web.live.differences import Difference, State, advanced, begun, columns_of
from reprieve.web.tables import Page, seconds

__all__ = ["Position", "Topic", "read_position"]

RING_AGE: Final = 300 * SECOND
RING_BYTES: Final = 4 * 2**20
_ENCODER: Final = msgspec.json.Encoder()


class Position(NamedTuple):
    """Up to where a reader has read."""

    epoch: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.sequence}"


class _Event(NamedTuple):
    sequence: int
    monotonic: Nanos
    frame: bytes


class Topic:
    """The state of one page with its parameters, seen with one set of rights.

    Args:
        name: of the page.
        epoch: drawn at random for this topic.
        page: what it shows first.
        wall: when that was made.
        ring_bytes: how many bytes of differences are kept at most.
    """

    def __init__(
        self, name: str, epoch: str, page: Page, wall: Nanos, *, ring_bytes: int = RING_BYTES
    ) -> None:
        self._name = name
        self._epoch = epoch
        self._sequence = 0
        self._state: State = begun(page)
        self._wall = wall
        self._most = ring_bytes
        # All and only differences in (first kept, ..., self._sequence], without a gap.
        self._ring: deque[_Event] = deque()
        self._bytes = 0
        self._snapshot: bytes | None = None  # of the present state, once a reader requested it

    @property
    def position(self) -> Position:
        return Position(self._epoch, self._sequence)

    @property
    def state(self) -> State:
        return self._state

    def show(self, page: Page, wall: Nanos, monotonic: Nanos) -> bool:
        """Show this page from now on; return whether it differs from what was shown."""
        self._forget(monotonic)
        self._state, difference = advanced(self._state, page)
        if difference is not None and not difference:
            return False
        self._sequence += 1
        self._wall = wall
        self._snapshot = None
        if difference is None:
            # Nothing leads from the old shape to the new one.
            self._ring.clear()
            self._bytes = 0
        else:
            self._keep(difference, monotonic)
        return True

    def after(self, position: Position | None) -> bytes:
        """Return the events that bring a reader from there to the present; may be empty."""
        if position is not None and position.epoch == self._epoch:
            missed = self._sequence - position.sequence
            if missed == 0:
                return b""
            if 0 < missed <= len(self._ring):
                frames = [event.frame for event in self._ring if event.sequence > position.sequence]
                if missed == 1 or sum(map(len, frames)) <= len(self.snapshot()):
                    return b"".join(frames)
        return self._frame("snapshot", self.snapshot())

    def snapshot(self) -> bytes:
        """Return the whole page as a JSON document."""
        if self._snapshot is None:
            self._snapshot = _ENCODER.encode(self._document())
        return self._snapshot

    def _document(self) -> dict[str, Any]:
        tables: dict[str, Any] = {}
        for name, table in self._state.tables.items():
            slots, data = columns_of(table)
            columns = [(column.name, column.kind) for column in table.columns]
            tables[name] = {"columns": columns, "slots": slots, "data": data}
        return {
            "page": self._name,
            "epoch": self._epoch,
            "sequence": self._sequence,
            "now": seconds(self._wall),
            "values": {name: msgspec.Raw(text) for name, text in self._state.values.items()},
            "tables": tables,
        }

    def _keep(self, difference: Difference, monotonic: Nanos) -> None:
        document = {
            "sequence": self._sequence,
            "now": seconds(self._wall),
            "values": difference.values,
            "gone": difference.gone,
            "tables": difference.tables,
        }
        frame = self._frame("difference", _ENCODER.encode(document))
        self._ring.append(_Event(self._sequence, monotonic, frame))
        self._bytes += len(frame)
        self._forget(monotonic)

    def _forget(self, monotonic: Nanos) -> None:
        ring = self._ring
        while ring and (self._bytes > self._most or monotonic - ring[0].monotonic > RING_AGE):
            self._bytes -= len(ring.popleft().frame)

    def _frame(self, event: str, document: bytes) -> bytes:
        # JSON as msgspec writes it has no line ends, which would end the data.
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (
            str(self.position).encode(),
            event.encode(),
            document,
        )


def read_position(text: str | None) -> Position | None:
    """Return what a reader states that it has; None where it states nothing that can be read."""
    epoch, _, written = (text or "").rpartition(".")
    sequence = integer_or_none(written, 0, INT64[1])
    return None if sequence is None or not epoch else Position(epoch, sequence)
