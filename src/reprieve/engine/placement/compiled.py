"""Filters and scores that a simulation has compiled, each for all pods that are answered alike.

Pods of one class, labels and owner share them. A pod with claims of volumes has its own, and so has
one with claims of devices, unless others request the same (`claims_alike`): then each of these is
examined once by itself when it is first queried, as if its filters were compiled then.
Source: specification 7.7, 21.6 and 21.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias, TypeGuard

from reprieve.engine.cluster.arrays import U8
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import (
    Filter,
    ForSeveral,
    Refusal,
    Reserving,
    Score,
    View,
)
from reprieve.engine.placement.filters import compile_filters
from reprieve.engine.placement.filters.dynamic.claims_alike import asked_alike
from reprieve.units.ids import Uid

__all__ = ["Compiled", "CompiledFilters"]

_Key: TypeAlias = tuple[object, ...]


@cache
def _reserving(kind: type) -> bool:
    return issubclass(kind, Reserving)


def _reserves(each: Filter) -> TypeGuard[Reserving]:
    return _reserving(type(each))


def _for_several(each: Filter) -> TypeGuard[ForSeveral]:
    return isinstance(each, ForSeveral)


@dataclass(slots=True)
class Compiled:
    """Filters and scores of pending pods that are answered alike, and answers that still hold.

    `codes`: (nodes,) of the first filter that refuses. `stale`: nodes whose entry there is out of
    date. `several`: filters that have to know which of several pods they answer for. `reserving`:
    those that reserve something for the pod that is placed.
    """

    filters: tuple[Filter, ...]
    refusal: Refusal | None
    scores: tuple[tuple[Score, int], ...] | None = None
    codes: U8 | None = None
    stale: set[int] = field(default_factory=set)
    several: tuple[ForSeveral, ...] = ()
    reserving: tuple[Reserving, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Pick the filters that reserve something."""
        self.reserving = tuple(each for each in self.filters if _reserves(each))


class CompiledFilters:
    """What a simulation has compiled since it forgot all of it."""

    def __init__(self) -> None:
        self._by_key: dict[_Key, Compiled] = {}  # by class, or pod with claims
        self._alike: dict[_Key, Compiled] = {}  # by what several of the latter request
        self._each: list[Compiled] = []
        self._asked: dict[Uid, _Key | None] = {}  # what pods with claims request, if others may
        self._latest: tuple[Pending, Compiled] | None = None  # the pod that was queried last

    def of(self, view: View, pending: Pending) -> Compiled:
        """Return what a pod is answered by; it follows every change from now on."""
        if self._latest is not None and self._latest[0] is pending:
            return self._latest[1]
        row = pending.row
        entry = view.snapshot.classes[pending.pod_class]
        volumes = entry is not None and bool(entry.volumes)
        own = row.uid if row.claims or volumes else None
        # The owner's selector is part of default spread constraints (21.6).
        key = (pending.pod_class, pending.labels, row.owner, own)
        compiled = self._by_key.get(key)
        if compiled is None:
            alike = self._alike_to(view, pending) if row.claims and not volumes else None
            compiled = self._by_key[key] = self._compile(view, pending, alike)
        for each in compiled.several:
            each.speak_for(pending)
        self._latest = (pending, compiled)
        return compiled

    def each(self) -> Sequence[Compiled]:
        """Return all of them, each once."""
        return self._each

    def forget(self) -> None:
        """Forget all of them: what they know is no longer so."""
        self._by_key.clear()
        self._alike.clear()
        self._each.clear()
        self._latest = None

    def _alike_to(self, view: View, pending: Pending) -> _Key | None:
        """Return the same for pods with claims that are answered alike, None: like no other."""
        row = pending.row
        if view.snapshot.pending.get(row.uid) is not pending:
            return None
        if row.uid not in self._asked:
            asked = asked_alike(view.snapshot, pending)
            key = (pending.pod_class, pending.labels, row.owner, asked)
            self._asked[row.uid] = None if asked is None else key
        return self._asked[row.uid]

    def _compile(self, view: View, pending: Pending, alike: _Key | None) -> Compiled:
        known = None if alike is None else self._alike.get(alike)
        if known is not None:
            refusals = (each.include(pending) for each in known.several)
            refusal = next((each for each in refusals if each is not None), None)
            if refusal is None:
                return known
            compiled = Compiled((), refusal)
        elif isinstance(found := compile_filters(view, pending), Refusal):
            compiled = Compiled((), found)
        else:
            compiled = Compiled(found, None)
            if alike is not None:
                compiled.several = tuple(each for each in found if _for_several(each))
                self._alike[alike] = compiled
        self._each.append(compiled)
        return compiled
