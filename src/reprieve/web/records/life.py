"""The life of a lineage on one bar: it waits, starts, runs, is preempted, waits again.

What is known of the past are its displacements. When a run that was displaced had begun is stated
by the input of the decision, where that was read; else it was no later than its cost implies: what
was lost, divided by the devices, is the time since the last checkpoint or the start. Such instants
are not exact, and state it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos

__all__ = ["Displacement", "Present", "Segment", "Stage", "life"]


class Stage(StrEnum):
    """What a lineage is at during a segment."""

    WAITS = "Waits"
    STARTS = "Starts"
    RUNS = "Runs"
    LEAVES = "Leaves"
    FINISHED = "Finished"


@dataclass(frozen=True, slots=True)
class Displacement:
    """One time that it was preempted, as far as a bar needs it.

    `begun`: when what it held was its own, None where that is not known. `ended`: None while it is
    leaving. `plan`: by which it is addressed.
    """

    plan: str
    noticed: Nanos
    evicting: Nanos
    ended: Nanos | None
    devices: int | None
    lost: int | None
    begun: Nanos | None = None


@dataclass(frozen=True, slots=True)
class Present:
    """What is known of it now; instants are None where they are not known, or did not come.

    `stage` None: nothing of it is there.
    """

    stage: Stage | None
    devices: int = 0
    created: Nanos | None = None
    admitted: Nanos | None = None
    bound: Nanos | None = None
    ready: Nanos | None = None
    finished: Nanos | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the bar; `begin` None: earlier than is known, `end` None: it continues.

    `exact`: its begin is known, rather than worked out from what was lost. `plan`: of the
    displacement in which it ended.
    """

    stage: Stage
    begin: Nanos | None
    end: Nanos | None
    devices: int | None
    exact: bool = True
    plan: str = ""


def life(displacements: Sequence[Displacement], present: Present) -> list[Segment]:
    """Return the segments in the order of time; `displacements` likewise."""
    segments: list[Segment] = []
    cursor = present.created
    for each in displacements:
        begun, exact = _begun(each)
        if cursor is not None and (begun is None or begun < cursor):
            begun, exact = cursor, False
        if cursor is not None and begun is not None and begun > cursor:
            segments.append(Segment(Stage.WAITS, cursor, begun, each.devices, exact))
        if begun is None or begun < each.evicting:
            segments.append(
                Segment(Stage.RUNS, begun, each.evicting, each.devices, exact, each.plan)
            )
        segments.append(
            Segment(Stage.LEAVES, each.evicting, each.ended, each.devices, True, each.plan)
        )
        cursor = each.ended
        if cursor is None:
            return segments
    return [*segments, *_now(cursor, present)]


def _begun(displacement: Displacement) -> tuple[Nanos | None, bool]:
    if displacement.begun is not None:
        return displacement.begun, True
    if not displacement.lost or not displacement.devices:
        return None, False
    since = displacement.lost * SECOND // displacement.devices
    return Nanos(displacement.noticed - since), False


def _now(cursor: Nanos | None, present: Present) -> Iterator[Segment]:
    """Yield what followed the last displacement, or the creation."""
    if present.stage is None:
        return
    devices = present.devices
    if present.stage is Stage.WAITS:
        yield Segment(Stage.WAITS, cursor, None, devices)
        return

    def after(instant: Nanos | None) -> Nanos | None:
        """Return an instant of this attempt, None for one of an earlier one."""
        return instant if instant is not None and (cursor is None or instant >= cursor) else None

    bound, ready = after(present.bound), after(present.ready)
    given = after(present.admitted) or bound
    if given is None:
        given = ready or after(present.finished) or cursor
    if cursor is not None and given is not None and cursor < given:
        yield Segment(Stage.WAITS, cursor, given, devices)
    if present.stage is Stage.STARTS:
        yield Segment(Stage.STARTS, given, None, devices)
        return
    running = ready or bound or given
    if given is not None and running is not None and given < running:
        yield Segment(Stage.STARTS, given, running, devices)
    if present.stage is Stage.FINISHED:
        yield Segment(Stage.RUNS, running, present.finished, devices)
        yield Segment(Stage.FINISHED, present.finished, present.finished, 0)
        return
    if present.stage is Stage.LEAVES:
        # For no work that is recorded: its owner ends it.
        yield Segment(Stage.LEAVES, running, None, devices, False)
        return
    yield Segment(Stage.RUNS, running, None, devices)
