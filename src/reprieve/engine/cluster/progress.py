"""Which changes may help a unit that found neither capacity nor victims, as two counters.

`helped` counts what may help any unit: a node that is new or offers something else, a placed pod
that is deleted, leaves its node or changes, an object that filters read. `joined` counts what uses
capacity and helps only where one pod wants to be near others, or where another order of allocation
leaves more capacity: a pod that comes to a node, a budget, what pods are spread by. Whatever is not
known to be harmless helps.

Not counted: a pending pod, beside its nomination; a group of which no pod has a node; the fields of
a pod that state when it started, failed or saved, and its owner: they order victims and exclude
none, unless the policy requests the time; the unit then knows when to try again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from reprieve.engine.cluster.rows import GroupRow, Kind, PodRow

__all__ = ["Progress"]

#: Kinds whose objects change scores and orders only, but for hard constraints of their own.
_JOINING: Final = frozenset({Kind.SELECTOR, Kind.BUDGET})
_HARMLESS: Final = frozenset({Kind.IDLE, Kind.NOTICE})


class Progress:
    """The counters of one cluster."""

    def __init__(self) -> None:
        self.helped = 0
        self.joined = 0

    def pod(self, before: PodRow | None, row: PodRow | None) -> None:
        """Count what became of a pod; None: it is not there."""
        was, is_placed = _placed(before), _placed(row)
        if was is None:
            if is_placed is not None:
                self.joined += 1
            elif before is not None and before.nominated:
                self.helped += row is None or row.nominated != before.nominated
        elif is_placed is None or _decisive(was) != _decisive(is_placed):
            self.helped += 1

    def released(self) -> None:
        """Count a place that is no longer used, or kept, for a pod."""
        self.helped += 1

    def used(self) -> None:
        """Count a place that is used for a pod from now on."""
        self.joined += 1

    def object(self, kind: Kind, before: object, row: object) -> None:
        """Count what became of an object of another kind; None: it is not there."""
        if kind in _HARMLESS or before == row:
            return
        if kind in _JOINING:
            self.joined += 1
        else:
            self.helped += 1

    def group(
        self, before: GroupRow | None, row: GroupRow | None, placed: Callable[[str], bool]
    ) -> None:
        """Count what became of a group; `placed`: whether pods of the group of a key have nodes."""
        known = row or before
        if known is None or _without_status(before) == _without_status(row):
            return
        if known.composite or placed(known.key):
            self.helped += 1


def _placed(row: PodRow | None) -> PodRow | None:
    return row if row is not None and row.node and not row.finished else None


def _decisive(row: PodRow) -> PodRow:
    return replace(
        row,
        version=0,
        start=0,
        generation=0,
        checkpoint=0,
        failed=0,
        stuck=False,
        disrupted="",
        phase="",
        controller="",
        owners=(),
        workload="",
        notice=0,
        speaks=False,
        save_cost=0,
    )


def _without_status(row: GroupRow | None) -> GroupRow | None:
    if row is None:
        return None
    return replace(row, version=0, scheduled=False, checkpoint=0, notice=0, save_cost=0)
