"""The page Health: who leads, what is open, who is held, how the page itself is fed.

Values: `leader` (holder, epoch, since, renewed, held; null where there is none to be seen), `open`,
`day` (plans, abandoned, failed), `polled` (the last poll of devices), `unseen`, `version` (of the
page). Tables: `open` (preemptions that are not over), `loops` (who displaces whom in turn, and is
held), `faults` (what failed in the last day), `kinds` (how each is watched).

A viewer who does not see everything is shown open preemptions and faults of his own work, and of
the rest only that a process leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import reprieve
from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import IntentPhase, VictimState
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.reported import PreemptionRecord
from reprieve.web.records.called import called, masking_of
from reprieve.web.records.loops import loops_of
from reprieve.web.records.masking import address_of, is_visible
from reprieve.web.tables import (
    Cell,
    Column,
    Kind,
    Page,
    Parameters,
    Table,
    Viewer,
    seconds,
)

__all__ = ["page"]

_DAY: Final = 24 * HOUR
_MOST: Final = 500
_OPEN: Final = (
    Column("preemption", Kind.TEXT),
    Column("decided", Kind.INSTANT),
    Column("plane", Kind.WORD),
    Column("preemptor", Kind.UNIT),
    Column("state", Kind.WORD),
    Column("victims", Kind.NUMBER),
    Column("left", Kind.NUMBER),
)
_LOOPS: Final = (
    Column("members", Kind.LIST),
    Column("displacements", Kind.NUMBER),
    Column("lost", Kind.NUMBER),
    Column("began", Kind.INSTANT),
    Column("until", Kind.INSTANT),
    Column("held", Kind.TEXT),
)
_FAULTS: Final = (
    Column("at", Kind.INSTANT),
    Column("where", Kind.TEXT),
    Column("what", Kind.TEXT),
    Column("preemption", Kind.TEXT),
)
_KINDS: Final = (
    Column("kind", Kind.TEXT),
    Column("health", Kind.WORD),
    Column("namespaces", Kind.NUMBER),
    Column("objects", Kind.NUMBER),
    Column("error", Kind.TEXT),
)

_Rows = Iterator[tuple[str, tuple[Cell, ...]]]


def page(mirror: Mirror, viewer: Viewer, parameters: Parameters, at: Nanos) -> Page:
    """Return how the operator and the page are."""
    seen = [each for each in mirror.preemptions if is_visible(each.record, viewer)]
    going_on = [each for each in seen if IntentPhase(each.phase).open and not each.dry_run]
    day = [each for each in seen if at - each.decided < _DAY and not each.dry_run]
    polled = [each.polled for each in mirror.idle if each.polled and viewer.sees(each.namespace)]
    faults = dict(_faults(mirror, viewer, day))
    return Page(
        {
            "leader": _leader(mirror, viewer, at),
            "open": len(going_on),
            "day": {
                "plans": len(day),
                "abandoned": sum(each.phase == IntentPhase.ABANDONED for each in day),
                "faults": len(faults),
            },
            "polled": seconds(max(polled, default=None)),
            "unseen": list(mirror.unseen),
            "version": reprieve.__version__,
        },
        {
            "open": Table(_OPEN, dict(_open(mirror, viewer, going_on))),
            "loops": Table(_LOOPS, dict(_loops(mirror, viewer, at))),
            "faults": Table(_FAULTS, faults),
            "kinds": Table(_KINDS, dict(_kinds(mirror, viewer))),
        },
    )


def _leader(mirror: Mirror, viewer: Viewer, at: Nanos) -> dict[str, Any] | None:
    leases = sorted(mirror.leases, key=lambda each: each.renewed or 0)
    if not leases:
        return None
    lease = leases[-1]
    known = viewer.sees(lease.namespace)
    return {
        # It is the name of a pod of the operator's.
        "holder": lease.holder if known else "",
        "namespace": lease.namespace if known else "",
        "epoch": lease.epoch,
        "since": seconds(lease.since),
        "renewed": seconds(lease.renewed),
        "held": lease.is_held(at),
    }


def _open(mirror: Mirror, viewer: Viewer, found: list[PreemptionRecord]) -> _Rows:
    """Yield the preemptions that are not over, the oldest first."""
    for each in sorted(found, key=lambda each: (each.decided, each.name))[:_MOST]:
        record = each.record
        masking = masking_of(mirror, viewer, record)
        own = [unit for unit in each.units if viewer.sees(unit.namespace)]
        left = sum(len(unit.roots) for unit in own if not unit.state.over)
        address = address_of(record, viewer)
        victims = each.victims if viewer.sees_all else sum(len(unit.roots) for unit in own)
        yield (
            f"{address}/{each.decided}",
            (
                address,
                seconds(each.decided),
                each.plane,
                masking.preemptor(record).text,
                each.phase,
                victims,
                left,
            ),
        )


def _loops(mirror: Mirror, viewer: Viewer, at: Nanos) -> _Rows:
    """Yield loops in which a lineage is held; for viewers that see all of their members."""
    for loop in loops_of((each.record for each in mirror.preemptions), at):
        if not all(viewer.sees(each.namespace) for each in loop.members):
            continue
        names = [
            called(mirror, each, lineage)
            for each, lineage in zip(loop.members, loop.lineages, strict=True)
        ]
        known = {each.uid: name for each, name in zip(loop.members, names, strict=True)}
        held = ", ".join(
            f"{known.get(one.uid, one.name)} does not displace {known.get(other.uid, other.name)}"
            for one, other in loop.held
        )
        yield (
            "/".join(loop.lineages),
            (
                names,
                loop.displacements,
                loop.lost_device_seconds,
                seconds(loop.began),
                seconds(loop.until),
                held,
            ),
        )


def _faults(mirror: Mirror, viewer: Viewer, day: list[PreemptionRecord]) -> _Rows:
    """Yield preemptions of the last day that failed, and queues that cannot admit."""
    for each in sorted(day, key=lambda each: each.decided, reverse=True)[:_MOST]:
        address = address_of(each.record, viewer)
        at = seconds(each.finished or each.decided)
        for number, unit in enumerate(each.units):
            if unit.state is VictimState.FAILED and viewer.sees(unit.namespace):
                said = unit.message if viewer.sees_all else ""
                text = f"{unit.unit} could not be evicted{f': {said}' if said else ''}"
                yield f"{address}/{number}", (seconds(unit.at) or at, each.plane, text, address)
        if each.phase == IntentPhase.ABANDONED:
            reason = each.record.status.reason if viewer.sees_all else ""
            text = f"abandoned{f': {reason}' if reason else ''}"
            yield f"{address}/abandoned", (at, each.plane, text, address)
        if each.record.status.owes_disruptions and viewer.sees_all:
            text = "some Disruptions of its victims are not written yet"
            yield f"{address}/disruptions", (at, each.plane, text, address)
    for queue in mirror.cluster_queues if viewer.sees_all else ():
        if not queue.active:
            text = f"ClusterQueue {queue.name} cannot admit: {queue.message}".removesuffix(": ")
            yield f"queue/{queue.name}", (None, "quota", text, "")


def _kinds(mirror: Mirror, viewer: Viewer) -> _Rows:
    """Yield how kinds are watched; the page's own rights are nothing for who sees a part alone."""
    if viewer.sees_all:
        for each in mirror.watched():
            cells = (each.kind, each.health, each.namespaces or None, each.objects, each.error)
            yield each.kind, cells
