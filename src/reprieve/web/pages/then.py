"""Pages as they were: the instant that an address requests, and Now of that instant.

`at` is an instant in seconds since the epoch. What units held and waited for is what the last
sample before it states; what was preempted is what the records state. Where each device was is not
kept: the map of nodes is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from kubeworld.units.untrusted import integer_or_none
from reprieve.web.history.model import Moment, UnitRow
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages.asked import Asked, one, whole
from reprieve.web.tables import Cell, InvalidParameter, Parameters, Viewer, seconds

__all__ = ["bar_then", "holders_then", "moment_asked", "waiters_then"]

_LATEST: Final = 10_000_000_000  # the year 2286


def moment_asked(mirror: Mirror, parameters: Parameters) -> Moment | None:
    """Return the sample that an address requests, None where it requests the present.

    Raises:
        InvalidParameter: it is no instant, or one of which nothing is kept.
    """
    given = one(parameters, "at")
    if not given:
        return None
    seconds_since = integer_or_none(given, 0, _LATEST)
    if seconds_since is None:
        raise InvalidParameter(f"at {given!r}: accepted: whole seconds since the epoch")
    moment = mirror.history.at(Nanos(seconds_since * SECOND))
    if moment is None:
        oldest = seconds(mirror.history.oldest)
        since = "nothing is kept yet" if oldest is None else f"samples begin at {oldest:.0f}"
        raise InvalidParameter(f"at {given}: {since}")
    return moment


def holders_then(
    mirror: Mirror, moment: Moment, viewer: Viewer, asked: Asked
) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield rows of the table of holders, the largest first."""
    held = [row for row in _shown(moment, viewer, asked) if row.held]
    for row in sorted(held, key=lambda row: (-row.held, row.unit)):
        queue = mirror.cluster_queues.named("", row.queue) if viewer.sees_all else None
        yield (
            row.unit,
            (
                row.unit,
                row.queue,
                "" if queue is None else queue.parent,
                whole(row.resource, row.held),
                whole(row.resource, row.idle),
                whole(row.resource, row.leaving),
                row.pods,
                row.nodes,
                seconds(Nanos(row.since)) if row.since else None,
                _state(row),
            ),
        )


def waiters_then(
    moment: Moment, viewer: Viewer, asked: Asked
) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield rows of the table of pending work of Now, those that wait longest first."""
    waiting = [row for row in _shown(moment, viewer, asked) if row.waiting]
    for row in sorted(waiting, key=lambda row: (row.waits_since, row.unit)):
        since = seconds(Nanos(row.waits_since)) if row.waits_since else None
        amount = whole(row.resource, row.waiting)
        yield row.unit, (row.unit, row.queue, amount, row.resource, since, row.reason, "")


def bar_then(moment: Moment, resource: str) -> dict[str, int | float]:
    """Return where the resource was; what was kept for work to come counts as free."""
    rows = [row for row in moment.rows.values() if row.resource == resource]
    held, idle = sum(row.held for row in rows), sum(row.idle for row in rows)
    leaving = sum(row.leaving for row in rows)
    total = max(moment.totals.get(resource, 0), held)
    parts = {
        "total": total,
        "working": held - idle - leaving,
        "idle": idle,
        "leaving": leaving,
        "claimed": 0,
        "free": total - held,
    }
    return {name: whole(resource, amount) for name, amount in parts.items()}


def _shown(moment: Moment, viewer: Viewer, asked: Asked) -> Iterator[UnitRow]:
    for row in moment.rows.values():
        if row.resource == asked.resource and asked.shows(viewer, row.namespace):
            yield row


def _state(row: UnitRow) -> str:
    if row.leaving == row.held:
        return "Leaving"
    return "Idle" if row.idle == row.held else "Running"
