"""Nodes that a study reads from elsewhere: the devices of each, and what the replay makes of them.

Alibaba's node lists of cluster-trace-gpu-v2023 (`openb_node_list_*.csv`) have `sn` and `gpu`. Nodes
without devices are left out. The replay has nodes that are all alike: where those are not, they are
split into nodes of the largest size that fits into all of them a whole number of times. Quotas
count devices alone, so that this changes nothing but the pods that a job is stated to have.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from math import gcd
from pathlib import Path

from kubeworld.units.untrusted import Unreadable, read_integer
from reprieve.simulation.readers.lines import MOST_DEVICES, numbered_lines
from reprieve.units.counts import counted
from reprieve.units.errors import UsageError

__all__ = ["DevicesOfNodes", "alike", "read_node_list"]

#: Reads a file, and returns the devices of each node.
DevicesOfNodes = Callable[[Path], Sequence[int]]


def read_node_list(path: Path) -> list[int]:
    """Return the devices of each node of a list.

    Raises:
        UsageError: it cannot be read, or one of its lines cannot.
    """
    lines = numbered_lines(path)
    header = [cell.strip() for cell in _cells(next(lines, (1, ""))[1])]
    accepted = "a list of nodes with the columns sn and gpu, as openb_node_list_all_node.csv"
    if "gpu" not in header or "sn" not in header:
        raise UsageError(f"{path}:1: a header without sn, gpu; accepted: {accepted}")
    return list(_devices(path, lines, header.index("gpu"), accepted))


def alike(counts: Sequence[int], where: str) -> tuple[int, int, str]:
    """Return nodes that are all alike with as many devices, and what is to be reported of them.

    Raises:
        UsageError: there are no devices, or too many.
    """
    those = [count for count in counts if count]
    if not those or sum(those) > MOST_DEVICES:
        raise UsageError(
            f"{where}: {counted(len(counts), 'node')} with {counted(sum(those), 'device')}; "
            f"accepted: from 1 to {MOST_DEVICES:,} devices"
        )
    size = gcd(*those)
    reported = f"cluster.from: {counted(len(those), 'node')} with devices, {sum(those):,} in all"
    if max(those) > size:
        reported += f"; replayed as nodes of {size}, which is the same to quotas"
    if len(those) < len(counts):
        reported += f"; left out: {counted(len(counts) - len(those), 'node')} without devices"
    return sum(those) // size, size, reported


def _devices(
    path: Path, lines: Iterator[tuple[int, str]], column: int, accepted: str
) -> Iterator[int]:
    for number, line in lines:
        if not line.strip():
            continue
        cells = _cells(line)
        try:
            # A list without a node is another cluster: unlike a job, none may be missing.
            if len(cells) <= column:
                raise Unreadable(f"{len(cells)} cells")
            yield read_integer(cells[column].strip(), 0, MOST_DEVICES)
        except Unreadable as error:
            raise UsageError(f"{path}:{number}: {error}; accepted: {accepted}") from None


def _cells(line: str) -> list[str]:
    return next(csv.reader([line.removeprefix("\ufeff")]), [])
