"""Amounts, instants and durations as people write them.

`4 cpu`, `16Gi memory`, `8 nvidia.com/gpu`; `14:02:07 (12 min ago)`; `3 h 20 min`. Instants are UTC;
those of another day have their date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from kubeworld.units.quantities import quantity_text
from reprieve.units.counts import counted, of_resource

__all__ = [
    "ago",
    "amounts",
    "device_time",
    "duration",
    "instant",
    "listed",
    "quantity",
    "summed",
]

_DAY: Final = 24 * HOUR
_SHORT: Final = 360  # device seconds; from here on they are reported in hours
_BYTES: Final = ("memory", "ephemeral-storage")
_BINARY: Final = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_FIRST: Final = ("cpu", "memory")  # stand last: what is scarce is named first


def quantity(resource: str, amount: int) -> str:
    """Return an amount without its resource; `cpu` counts milli units, others whole ones.

    Bytes that are no whole number of a binary unit get one decimal.
    """
    if resource in _BYTES or resource.startswith("hugepages-"):
        return _binary(amount)
    if resource == "cpu" and amount % 1_000:
        return quantity_text(resource, amount)
    return f"{amount // 1_000 if resource == 'cpu' else amount:,}"


def amounts(named: Mapping[str, int]) -> str:
    """Return `8 nvidia.com/gpu, 4 cpu, 16Gi memory`; what is zero is left out."""
    order = sorted(named, key=lambda name: (name in _FIRST, name in _BYTES, name))
    return ", ".join(
        of_resource(quantity(name, named[name]), name) for name in order if named[name]
    )


def summed(each: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum by resource name."""
    total: dict[str, int] = {}
    for named in each:
        for name, amount in named.items():
            total[name] = total.get(name, 0) + amount
    return total


def device_time(device_seconds: int) -> str:
    """Return `33.6 device hours`, or `40 device seconds` where hours would be too coarse."""
    if device_seconds >= _SHORT:
        return f"{device_seconds / 3600:.1f} device hours"
    return counted(device_seconds, "device second")


def listed(names: Iterable[str], most: int = 3) -> str:
    """Return the names in order, without repetitions; beyond `most` the rest is counted."""
    known = sorted(set(names))
    shown = ", ".join(known[:most])
    return shown if len(known) <= most else f"{shown} and {len(known) - most} more"


def duration(nanoseconds: int) -> str:
    """Return `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`: two units at most."""
    seconds = max(0, nanoseconds) // SECOND
    if seconds < 60:
        return f"{seconds} s"
    if nanoseconds < HOUR:
        return f"{nanoseconds // MINUTE} min"
    large, small, names = (HOUR, MINUTE, ("h", "min"))
    if nanoseconds >= _DAY:
        large, small, names = (_DAY, HOUR, ("d", "h"))
    rest = nanoseconds % large // small
    text = f"{nanoseconds // large:,} {names[0]}"
    return f"{text} {rest} {names[1]}" if rest else text


def instant(at: Nanos, now: Nanos) -> str:
    """Return the time of day in UTC, with the date where that is not today's."""
    date, _, time = format_instant(at).partition("T")
    return time if date == format_instant(now).partition("T")[0] else f"{date} {time}"


def ago(at: Nanos, now: Nanos) -> str:
    """Return the instant, and how far it is from now."""
    distance = f"{duration(now - at)} ago" if at <= now else f"in {duration(at - now)}"
    return f"{instant(at, now)} ({distance})"


def _binary(amount: int) -> str:
    if abs(amount) < 1_024:
        return f"{amount:,}"
    power = min((abs(amount).bit_length() - 1) // 10, len(_BINARY))
    whole, rest = divmod(amount, 1_024**power)
    suffix = _BINARY[power - 1]
    return f"{whole}{suffix}" if not rest else f"{amount / 1_024**power:.1f}{suffix}"
