"""Which processes a program consists of, and which of them handle a signal; from /proc.

A launcher such as torchrun starts its workers in sessions of their own, so that a signal to its
process group does not reach them. Source: proc(5), `stat` and `status`.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["handles", "tree"]

_PROC = Path("/proc")


def tree(root: int) -> set[int]:
    """Return the descendants of a process, those of its group, and itself."""
    parents, found = {}, {root}
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdecimal():
            process = int(entry.name)
            parents[process], group = _parent_and_group(process)
            if group == root:
                found.add(process)
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def handles(process: int, number: int) -> bool:
    """Whether a process has a handler for a signal; where that cannot be read, it has."""
    if not _PROC.is_dir():
        return True
    try:
        status = (_PROC / str(process) / "status").read_text()
    except OSError:
        return False  # it has ended
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "SigCgt":
            return bool(int(value, 16) >> (number - 1) & 1)
    return True


def _parent_and_group(process: int) -> tuple[int, int]:
    try:
        # The name is in parentheses and may hold anything.
        fields = (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    return int(fields[1]), int(fields[2])
