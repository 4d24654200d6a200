"""The page Waiting: every unit that waits, why, and what to do about it.

Table `waiting`: unit, plane, queue, position (in its ClusterQueue), pods, amount, resource (that of
the amount), shape, priority, since, reason, message, step (what helps). All that waits is there,
for whatever it waits, unless a resource is requested. Table `reasons`: reason, units, amount.
Values: `resource`, `everything` (no resource was requested), `resources`, `unseen`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages.asked import asked_of, whole
from reprieve.web.pages.waiters import Waiter, waiters, what_helps
from reprieve.web.tables import Cell, Column, Kind, Page, Parameters, Table, Viewer, seconds

__all__ = ["page"]

_WAITING: Final = (
    Column("unit", Kind.UNIT),
    Column("plane", Kind.WORD),
    Column("queue", Kind.TEXT),
    Column("position", Kind.NUMBER),
    Column("pods", Kind.NUMBER),
    Column("amount", Kind.NUMBER),
    Column("resource", Kind.TEXT),
    Column("shape", Kind.TEXT),
    Column("priority", Kind.NUMBER),
    Column("since", Kind.INSTANT),
    Column("reason", Kind.WORD),
    Column("message", Kind.TEXT),
    Column("step", Kind.TEXT),
)
_REASONS: Final = (
    Column("reason", Kind.WORD),
    Column("units", Kind.NUMBER),
    Column("amount", Kind.NUMBER),
)


def page(mirror: Mirror, viewer: Viewer, parameters: Parameters, at: Nanos) -> Page:
    """Return who waits.

    Raises:
        InvalidParameter: as of `asked_of`.
    """
    asked = asked_of(mirror, parameters, viewer)
    found = list(waiters(mirror, viewer, asked))
    units: Counter[str] = Counter(each.reason for each in found)
    amounts: Counter[str] = Counter()
    for each in found:
        if each.resource == asked.resource:
            amounts[each.reason] += each.amount
    return Page(
        {
            "resource": asked.resource,
            "everything": not asked.chosen,
            "resources": list(asked.resources),
            "unseen": list(mirror.unseen),
        },
        {
            "waiting": Table(_WAITING, {each.unit: _row(each) for each in found}),
            "reasons": Table(
                _REASONS,
                {
                    reason: (reason, number, whole(asked.resource, amounts[reason]))
                    for reason, number in units.most_common()
                },
            ),
        },
    )


def _row(waiter: Waiter) -> tuple[Cell, ...]:
    return (
        waiter.unit,
        waiter.plane,
        waiter.queue,
        waiter.position or None,
        waiter.pods,
        whole(waiter.resource, waiter.amount),
        waiter.resource,
        waiter.shape,
        waiter.priority,
        seconds(waiter.since),
        waiter.reason,
        waiter.message,
        what_helps(waiter),
    )
