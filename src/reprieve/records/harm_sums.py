"""Hourly sums of harm as text: one JSON line for each row, as parts of the ledger hold them.

A line is `[hour, victim, preemptor, plane, reason, displacements, lost device seconds, last, saved
device seconds, waited seconds]`, a side `[tenant, queue, priority, lineage]` or null, and `last`
the seconds from the beginning of the hour to the last displacement. A line that cannot be read is
left out, and counted. A part is the binary data of a ConfigMap: the lines, compressed, and 6 bytes
for each record that they sum up.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.harm_budgets.sums import Amount, Key, key_of

__all__ = [
    "HARM_LABEL",
    "MONTH",
    "PARTS",
    "merged",
    "part_data",
    "part_name",
    "part_records",
    "part_rows",
    "record_digest",
    "sums_from",
    "sums_text",
]

#: On each part of the ledger; `MONTH` states of which month and year it is.
HARM_LABEL: Final = "reprieve.dev/harm-ledger"
MONTH: Final = "reprieve.dev/month"
#: Parts of a month.
PARTS: Final = 8
_ROWS: Final = "rows"
_RECORDS: Final = "records"
_DIGEST: Final = 6
_LARGEST: Final = 64 << 20  # bytes of lines in a part
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
    saved: int = 0
    waited: int = 0


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
                amount.saved_device_seconds,
                amount.waited_seconds,
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
        found[key] = Amount(row.displacements, row.lost, last, row.saved, row.waited)
    return found, unread


def merged(rows: dict[Key, Amount], harms: Iterable[Harm]) -> dict[Key, Amount]:
    """Return rows with these displacements added."""
    found = {key: replace(each) for key, each in rows.items()}
    for harm in harms:
        found.setdefault(key_of(harm), Amount()).add(harm)
    return found


def record_digest(record: str) -> bytes:
    """Return by what a part knows a record: 6 bytes of its name."""
    return hashlib.blake2b(record.encode(), digest_size=_DIGEST).digest()


def part_name(month: str, number: int) -> str:
    """Return the name of a part of a month, such as 2026-11; a year later it is the same."""
    return f"reprieve-harm-{month[5:]}-{number}"


def part_data(rows: Iterable[tuple[Key, Amount]], records: Sequence[bytes]) -> dict[str, str]:
    """Return the binary data of a part; `records`: their digests."""
    packed = zlib.compress(sums_text(rows).encode())
    return {
        _ROWS: base64.b64encode(packed).decode(),
        _RECORDS: base64.b64encode(b"".join(records)).decode(),
    }


def part_rows(part: Mapping[str, Any]) -> tuple[dict[Key, Amount], int]:
    """Return the rows of a part as it is stored, and how many lines of it cannot be read."""
    data = _bytes(part, _ROWS)
    if not data:
        return {}, int(bool((part.get("binaryData") or {}).get(_ROWS)))
    try:
        text = zlib.decompressobj().decompress(data, _LARGEST).decode()
    except (zlib.error, UnicodeDecodeError):
        return {}, 1
    return sums_from(text)


def part_records(part: Mapping[str, Any]) -> list[bytes]:
    """Return the digests of the records that a part sums up."""
    data = _bytes(part, _RECORDS)
    return [data[start : start + _DIGEST] for start in range(0, len(data), _DIGEST)]


def _bytes(part: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode((part.get("binaryData") or {}).get(name) or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return b""


def _stored(side: HarmSide) -> _Side:
    return side.tenant, side.queue, side.priority, side.lineage
