"""The control groups of the nodes, in every hierarchy of version 1 and the unified one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.node.network import PREFIX

__all__ = ["make_groups", "remove_groups"]

_ROOT: Final = Path("/sys/fs/cgroup")
_HIERARCHIES: Final = (
    *("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"),
    "unified",
)


def make_groups(node: str) -> None:
    """Make a node's groups, which its kubelet takes for the root."""
    for place in _groups(node):
        place.mkdir(exist_ok=True)
    for file in ("cpuset.cpus", "cpuset.mems"):
        made = _ROOT / "cpuset" / f"{PREFIX}{node}" / file
        made.write_text((_ROOT / "cpuset" / file).read_text())


def remove_groups(node: str) -> bool:
    """Remove a node's groups; return whether none is left: one with processes cannot go."""
    for place in _groups(node):
        if place.exists():
            for each in sorted((*place.rglob("*/"), place), key=lambda at: -len(at.parts)):
                if each.is_dir():
                    with contextlib.suppress(OSError):
                        each.rmdir()
    return not any(place.exists() for place in _groups(node))


def _groups(node: str) -> Iterator[Path]:
    for hierarchy in _HIERARCHIES:
        if (_ROOT / hierarchy).is_dir():
            yield _ROOT / hierarchy / f"{PREFIX}{node}"
