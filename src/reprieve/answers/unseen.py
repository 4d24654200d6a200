"""States what a caller may not list: what decisions depend on most comes first.

A kind without namespaces is seen as a whole or not at all. Of another one some namespaces may be
refused; where the namespaces themselves cannot be listed, all but those that were requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from reprieve.units.counts import counted
from reprieve.whatif.snapshots.snapshot import Snapshot, Unseen

__all__ = ["hidden", "unseen_texts"]

_FIRST: Final = ("nodes", "pods", "podgroups", "clusterqueues", "workloads", "localqueues")
_MOST: Final = 4


def unseen_texts(snapshot: Snapshot) -> Iterator[str]:
    """Yield what could not be listed, in words, such as `nodes, csinodes and 3 more`."""
    kinds = list(_whole(snapshot))
    if kinds:
        yield _by_weight(kinds, _MOST)
    kinds = list(_elsewhere(snapshot))
    if kinds:
        yield f"{_by_weight(kinds, _MOST)} in other namespaces"
    refused = [each for each in snapshot.unseen if each.namespaces]
    spaces = {name for each in refused for name in each.namespaces}
    if spaces:
        of = "" if snapshot.namespaces is None else f" of {snapshot.namespaces}"
        yield f"{_by_weight(_names(refused), _MOST)} of {counted(len(spaces), 'namespace')}{of}"


def hidden(snapshot: Snapshot) -> str:
    """Return in a few words how much could not be listed, empty where all could."""
    parts = []
    spaces = {name for each in snapshot.unseen for name in each.namespaces}
    if spaces:
        known = snapshot.namespaces
        parts.append(
            counted(len(spaces), "namespace")
            if known is None
            else f"{len(spaces):,} of {counted(known, 'namespace')}"
        )
    elif list(_elsewhere(snapshot)):
        parts.append("other namespaces")
    kinds = set(_whole(snapshot))
    if kinds:
        parts.append(counted(len(kinds), "kind"))
    return " and ".join(parts)


def _whole(snapshot: Snapshot) -> Iterator[str]:
    """Yield the kinds without namespaces that were refused."""
    yield from _names(each for each in snapshot.unseen if not each.resource.namespaced)


def _elsewhere(snapshot: Snapshot) -> Iterator[str]:
    """Yield the kinds that were listed where the caller queried, and in no other namespace."""
    if snapshot.namespaces is None:
        yield from _names(
            each for each in snapshot.unseen if each.resource.namespaced and not each.namespaces
        )


def _by_weight(kinds: Iterable[str], most: int) -> str:
    """Return the names, those that decisions depend on first; beyond `most` they are counted."""
    known = sorted(set(kinds), key=lambda kind: (_weight(kind), kind))
    shown = ", ".join(known[:most])
    return shown if len(known) <= most else f"{shown} and {len(known) - most} more"


def _weight(kind: str) -> int:
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _names(unseen: Iterable[Unseen]) -> Iterator[str]:
    for each in unseen:
        yield each.resource.plural
