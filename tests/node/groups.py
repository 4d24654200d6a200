"""The control groups of the nodes: one in the hierarchy of version 2, or one in each of version 1.

A kubelet takes its node's group for the root. In version 2 the groups above have to pass on the
controllers, which the kubelet does from its own group on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.node.network import PREFIX

__all__ = ["lacking_groups", "make_groups", "node_group", "remove_groups"]

_ROOT: Final = Path("/sys/fs/cgroup")
_UNIFIED: Final = _ROOT / "cgroup.controllers"  # where there is version 2 alone
_CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids")  # without which no kubelet starts
_WHERE_THERE: Final = ("hugetlb", "io")  # which it uses where the machine has them
_HIERARCHIES: Final = (
    *("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"),
    "unified",
)


def lacking_groups() -> str:
    """Return which control groups a kubelet would lack here, empty where it lacks none."""
    if _UNIFIED.exists():
        there = _UNIFIED.read_text().split()
        lacking = [name for name in _CONTROLLERS if name not in there]
        return f"{', '.join(lacking)} in {_UNIFIED}" if lacking else ""
    lacking = [name for name in _CONTROLLERS if not (_ROOT / name).is_dir()]
    return f"{', '.join(lacking)} in {_ROOT}" if lacking else ""


def make_groups(node: str) -> None:
    """Make a node's groups."""
    if _UNIFIED.exists():
        there = _UNIFIED.read_text().split()
        optional = [name for name in _WHERE_THERE if name in there]
        wanted = " ".join(f"+{name}" for name in (*_CONTROLLERS, *optional))
        (_ROOT / "cgroup.subtree_control").write_text(wanted)
    for place in _groups(node):
        place.mkdir(exist_ok=True)
        if not _UNIFIED.exists():
            # A kubelet that sees more processors than there are cannot make it: it sets its cpuset.
            (place / "kubepods").mkdir(exist_ok=True)
    if not _UNIFIED.exists():
        for file in ("cpuset.cpus", "cpuset.mems"):
            for name in (f"{PREFIX}{node}", f"{PREFIX}{node}/kubepods"):
                made = _ROOT / "cpuset" / name / file
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


def node_group(node: str) -> Path:
    """Return a node's group, that of its processes where there are several."""
    return (_ROOT if _UNIFIED.exists() else _ROOT / "pids") / f"{PREFIX}{node}"


def _groups(node: str) -> Iterator[Path]:
    if _UNIFIED.exists():
        yield node_group(node)
        return
    for hierarchy in _HIERARCHIES:
        if (_ROOT / hierarchy).is_dir():
            yield _ROOT / hierarchy / f"{PREFIX}{node}"
