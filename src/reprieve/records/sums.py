"""Thousands of pods in a few lines: counted by node pool, namespace, group and what became of them.

Up to `MOST_NAMED` are named one by one. A node pool is what the node's label states, by the labels
of the tools that make pools; of several the first of `POOL_LABELS` counts. Pure: rows are the
input, lines the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

__all__ = ["MOST_NAMED", "POOL_LABELS", "pool_of", "sum_lines", "table"]

#: Most members, victims or candidates that stay that are named one by one; others are counted.
MOST_NAMED: Final = 50
#: Labels that state which pool a node is of.
POOL_LABELS: Final = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
)
_LINES: Final = 25
_NOTHING: Final = "-"


def pool_of(labels: Mapping[str, str]) -> str:
    """Return the pool of a node, empty where no label names one."""
    return next((labels[label] for label in POOL_LABELS if labels.get(label)), "")


def sum_lines(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield how many rows are alike, the most frequent first, as a table.

    Order: 1. count, largest first, 2. the row's own texts. Beyond 25 lines the rest is one line.
    """
    counts = sorted(Counter(map(tuple, rows)).items(), key=lambda item: (-item[1], item[0]))
    shown = [("COUNT", *headings)]
    shown += [(str(n), *(text or _NOTHING for text in row)) for row, n in counts[:_LINES]]
    for line in table(shown):
        yield f"  {line}"
    rest = counts[_LINES:]
    if rest:
        yield f"  and {sum(n for _, n in rest)} more, of {len(rest)} other kinds"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows with their cells in columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
