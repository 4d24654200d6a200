"""The guides' manifests, which lie beside the project in its own workspace, and tables of kubectl.

The files are applied as they are; none is copied into the project.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chart.helm import ROOT
from tests.node.cluster import Cluster

__all__ = ["apply", "manifest", "pod_table", "rows"]

_MANIFESTS: Final = ROOT.parent / "shared" / "guides" / "manifests"
_COLUMNS: Final = (
    *("NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"),
    *("NOMINATED NODE", "READINESS GATES"),
)


def manifest(name: str) -> Path:
    """Return the file of a guide's manifest; skip where it is not there."""
    if (_MANIFESTS / name).is_file():
        return _MANIFESTS / name
    pytest.skip("the guides' manifests are not here")


def apply(cluster: Cluster, name: str, *arguments: str) -> list[str]:
    """Apply a guide's manifest as it is; return the lines that kubectl prints."""
    return cluster.kubectl("apply", "-f", str(manifest(name)), *arguments).splitlines()


def rows(table: str) -> list[list[str]]:
    """Return the cells of a table of kubectl."""
    return [re.split(r" {2,}", line.rstrip()) for line in table.splitlines()]


def pod_table(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Return what `kubectl get pods -o wide` prints, by name and column."""
    head, *lines = cluster.kubectl("get", "pods", "-o", "wide").splitlines()
    starts = [head.index(title) for title in _COLUMNS]
    found = {}
    for line in lines:
        cells = _cut(line, starts)
        found[cells[0]] = dict(zip(_COLUMNS, cells, strict=True))
    return found


def _cut(line: str, starts: Sequence[int]) -> list[str]:
    ends: list[Any] = [*starts[1:], None]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
