"""Hourly sums of harm as text: one JSON line for each row, as parts of the ledger hold them.

A line is `[hour, victim, preemptor, plane, reason, displacements, lost device seconds, last]`, a
side `[tenant, queue, priority, lineage]` or null, and `last` the seconds from the beginning of the
hour to the last displacement. A line that cannot be read is left out, and counted.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.harm_budgets.sums import Amount, Key, key_of
from reprieve.units.durations import HOUR, SECOND
from reprieve.units.instants import Nanos

__all__ = ["merged", "sums_from", "sums_text"]

_Side = tuple[str, str, int | None, str]


class _Row(msgspec.Struct, frozen=True, array_like=True):
    hour: int
    victim: _Side
    preemptor: _Side | None
    plane: str
    reason: str
    displacements: int
    lost: int
    last: int


_DECODER = msgspec.json.Decoder(_Row)


def sums_text(rows: Iterable[tuple[Key, Amount]]) -> str:
    """Return the lines of rows, in their order."""
    return "\n".join(
        msgspec.json.encode(
            _Row(
                key.hour,
                _stored(key.victim),
                None if key.preemptor is None else _stored(key.preemptor),
                key.plane,
                key.reason,
                amount.displacements,
                amount.lost_device_seconds,
                # Rounded up, so that nothing leaves a window too early.
                -(-(amount.last - key.hour * HOUR) // SECOND),
            )
        ).decode()
        for key, amount in rows
    )


def sums_from(text: str) -> tuple[dict[Key, Amount], int]:
    """Return the rows of a text, and how many lines of it cannot be read."""
    found: dict[Key, Amount] = {}
    unread = 0
    for line in filter(None, text.split("\n")):
        try:
            row = _DECODER.decode(line)
        except msgspec.DecodeError:
            unread += 1
            continue
        preemptor = None if row.preemptor is None else HarmSide(*row.preemptor)
        key = Key(row.hour, HarmSide(*row.victim), preemptor, row.plane, row.reason)
        last = Nanos(row.hour * HOUR + row.last * SECOND)
        found[key] = Amount(row.displacements, row.lost, last)
    return found, unread


def merged(rows: dict[Key, Amount], harms: Iterable[Harm]) -> dict[Key, Amount]:
    """Return rows with these displacements added."""
    found = {
        key: Amount(each.displacements, each.lost_device_seconds, each.last)
        for key, each in rows.items()
    }
    for harm in harms:
        found.setdefault(key_of(harm), Amount()).add(harm)
    return found


def _stored(side: HarmSide) -> _Side:
    return side.tenant, side.queue, side.priority, side.lineage
