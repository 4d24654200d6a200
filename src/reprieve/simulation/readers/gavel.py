"""Traces of Stanford's Gavel (`*.trace`), whose jobs state how many steps they make, not how long.

A line has cells parted by tabs; the last five are the steps, the scale factor, a weight, an
objective and the arrival in seconds, the first is the type of the job. The devices are the scale
factor. The length is the steps divided by those of a second in Gavel's table for a V100 at that
scale, at scale 1 where it has none: `simulation_throughputs.json`, which has to lie in the trace's
folder or in one of the three above it, as it does in Gavel's repository. Types that the table does
not know are left out and reported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubeworld.units.untrusted import Unreadable, bounded, read_integer, shown
from reprieve.simulation.readers.columns import gathered, whole
from reprieve.simulation.readers.lines import devices, numbered_lines, seconds
from reprieve.simulation.trace import Job, Trace
from reprieve.units.errors import UsageError

__all__ = ["read_gavel"]

_TABLE: Final = "simulation_throughputs.json"
_DEVICE: Final = "v100"
_ABOVE: Final = 3
_CELLS: Final = (9, 10)  # the later form has a working directory, too
_MOST_STEPS: Final = 10**15


def read_gavel(path: Path, name: str) -> Trace:
    """Return the trace of a file.

    Raises:
        UsageError: it, or the table, cannot be read.
    """
    rates = _rates(path)

    def made(line: str, number: int) -> Job:
        return _job(line, number, rates)

    found = gathered(name, numbered_lines(path), made)
    if not found.jobs and found.malformed:
        first = found.malformed[0]
        raise UsageError(
            f"{path}:{first.line}: no line can be read, the first is {first.why}; accepted: "
            f"a trace of Gavel"
        )
    return found


def _job(line: str, number: int, rates: Mapping[Any, Any]) -> Job:
    cells = line.split("\t")
    if len(cells) not in _CELLS:
        raise Unreadable(f"{len(cells)} cells; accepted: 9 or 10 parted by tabs")
    kind, (steps, scale, _, _, arrival) = bounded(cells[0]), cells[-5:]
    wide = devices(scale)
    rate = _rate(rates, kind, wide) or _rate(rates, kind, 1)
    if not rate:
        raise Unreadable(f"type {shown(kind)} is not in {_TABLE}")
    duration = seconds(str(read_integer(steps, 1, _MOST_STEPS) / rate), "its steps last")
    return Job(
        id=f"L{number}",
        arrival=seconds(arrival.strip(), "arrival"),
        devices=wide,
        duration=whole(duration),
        model=kind,
    )


def _rate(rates: Mapping[Any, Any], kind: str, scale: int) -> float:
    """Return the steps of a second when no other is on the devices, 0 where it is not stated."""
    row = rates.get(f"('{kind}', {scale})")
    found = row.get("null") if isinstance(row, Mapping) else None
    if isinstance(found, bool) or not isinstance(found, int | float) or not found > 0:
        return 0.0
    return float(found)


def _rates(path: Path) -> Mapping[Any, Any]:
    folder = path.resolve().parent
    looked = [folder, *folder.parents][: _ABOVE + 1]
    for each in looked:
        table = each / _TABLE
        if not table.is_file():
            continue
        try:
            found = json.loads(table.read_bytes())
            rates = found[_DEVICE]
        except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
            raise UsageError(
                f"{table}: {error!r}; accepted: Gavel's table with rates of a {_DEVICE}"
            ) from None
        if not isinstance(rates, Mapping):
            raise UsageError(f"{table}: {_DEVICE} is no mapping; accepted: Gavel's table")
        return rates
    raise UsageError(
        f"{path}: without a {_TABLE}; accepted: one in its folder or up to {_ABOVE} above it, "
        f"since the trace states steps and not their duration"
    )
