"""What it is no use to try again: units that were rejected on a state that no change has helped.

What decides about a unit is its *shape*: its pods and its group but for their names. Rejected on
one revision (`engine.cluster.progress`), a unit of that shape is rejected on it again, so that

1. a unit that its backoff brings back is passed over until a change might help a unit;
2. a unit of a shape that was just rejected for another unit gets the answer of that one.

A change that uses capacity helps only units whose members differ, or whose place depends on others;
for them it counts as well. Nothing of it holds for a unit that waits for victims, for a time or for
another plane, for older gangs, for trees, and where plugins of others decide. Source: the design's
"How data flows".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.nodes.leaving import Delayed
from reprieve.engine.scheduling.outcome import Attempt, Explanation, Preemption, Sentence, Unit
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid

__all__ = ["Futile", "Stand", "fits_without_victims", "lacks"]

_MOST: Final = 1_024  # shapes


@dataclass(frozen=True, slots=True)
class _Shape:
    """What decides about a unit. `own`: its name, where others of its kind may end otherwise."""

    pods: tuple[PodRow, ...]
    group: GroupRow | None
    own: str


@dataclass(frozen=True, slots=True)
class Stand:
    """A shape and the revision on which it is decided about."""

    shape: _Shape
    revision: tuple[int, int]


_Known: TypeAlias = tuple[tuple[int, int], Attempt]


class Futile:
    """Rejections of one plane; of so many shapes the answers are kept."""

    def __init__(self, context: SchedulingContext, state: ClusterState) -> None:
        self._state = state
        self._known: dict[_Shape, _Known] = {}  # the oldest first
        self._off = dict(context.plugins) != dict(GROUP_POST_FILTERS) or bool(context.scorers)
        self._spread = any(
            constraint.hard
            for profile in context.policy.profiles
            for constraint in profile.default_spread or ()
        )

    def stand(self, unit: Unit) -> Stand | None:
        """Return what is decided on about a unit, None where it is to be tried in any case."""
        if self._off:
            return None
        rows = [row for uid in unit.pods if (row := self._state.pod(uid)) is not None]
        group = self._state.group(unit.group) if unit.group else None
        if len(rows) != len(unit.pods) or any(row.gang for row in rows):
            return None
        if unit.group and (group is None or group.composite or group.parent):
            return None
        named = any(row.claims or row.pod_class.volumes for row in rows)
        alone = group is None or self._state.known(unit.group) == len(rows)
        shape = _Shape(
            tuple(_without_name(row, named=named) for row in rows),
            None if group is None else _group_without_name(group),
            "" if alone and not named else unit.name,
        )
        progress = self._state.cluster.progress
        joined = 0 if self._is_steady(rows) else progress.joined
        return Stand(shape, (progress.helped, joined))

    def answer(self, unit: Unit, stand: Stand) -> Attempt | None:
        """Return how the unit's attempt ends, as it did for another of its shape."""
        known = self._known.get(stand.shape)
        if known is None or known[0] != stand.revision:
            return None
        members = zip(known[1].members, unit.pods, strict=True)
        return replace(
            known[1], unit=unit, members=tuple(replace(each, uid=uid) for each, uid in members)
        )

    def rejected(self, stand: Stand, attempt: Attempt, deferred: Delayed) -> bool:
        """Apply how an attempt ended; return whether it is no use to repeat it on this stand."""
        if not _is_final(attempt, deferred):
            self._known.pop(stand.shape, None)
            return False
        order = tuple(member.uid for member in attempt.members)
        if order == attempt.unit.pods and not any(_names(attempt)):
            self._known.pop(stand.shape, None)
            self._known[stand.shape] = stand.revision, attempt
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return True

    def _is_steady(self, rows: Iterable[PodRow]) -> bool:
        """Whether a pod that uses capacity cannot help: equal members, whose place is their own."""
        classes = {row.pod_class for row in rows}
        (only,) = classes if len(classes) == 1 else (None,)
        return only is not None and not (
            only.affinity
            or only.anti_affinity
            or only.volumes
            or only.disks
            or only.extended
            or only.host_ports
            or any(constraint.hard for constraint in only.spread)
            or (self._spread and not only.spread)
            or any(row.claims for row in rows)
        )


def lacks(attempt: Attempt | None) -> bool:
    """Whether an attempt found neither capacity nor victims, so that any help may change it."""
    found = None if attempt is None else attempt.preemption
    return (
        attempt is not None
        and attempt.code is Code.UNSCHEDULABLE
        and attempt.plan is None
        and (found is None or _found_nobody(found))
    )


def fits_without_victims(attempt: Attempt) -> bool:
    """Whether no placement was found at first, and preemption then found one without evictions."""
    found = attempt.preemption
    return (
        attempt.code is not Code.SUCCESS
        and found is not None
        and found.evaluated
        and found.code is Code.SUCCESS
        and bool(found.nominated)
        and not found.victims
    )


def _is_final(attempt: Attempt, deferred: Delayed) -> bool:
    """Whether the attempt ended in nothing that time or another plane may change."""
    unit, found = attempt.unit, attempt.preemption
    return (
        attempt.code is Code.UNSCHEDULABLE
        and attempt.plan is None
        and attempt.gang is None
        and not attempt.deallocations
        and attempt.spared is None
        and attempt.held is None
        and attempt.delayed is None
        and not any(member.bind for member in attempt.members)
        and not deferred.concerns(unit)
        and (found is None or _found_nobody(found))
    )


def _found_nobody(found: Preemption) -> bool:
    if found.code is Code.SUCCESS or found.nominated:
        return False
    never = found.explanation.sentence is Sentence.NOT_ELIGIBLE_POLICY
    return never or not found.keep_nominations


def _names(attempt: Attempt) -> Iterator[str]:
    """Yield names in the sentences of an attempt, which may be those of the unit."""
    said = [*attempt.status]
    if attempt.preemption is not None:
        said.append(attempt.preemption.explanation)
    while said:
        each: Explanation = said.pop()
        said += each.inner
        yield from (value for value in each.values if isinstance(value, str))


def _without_name(row: PodRow, *, named: bool) -> PodRow:
    return replace(
        row,
        uid=row.uid if named else Uid(""),
        name=row.name if named else "",
        version=0,
        group="",
        created=0,
        generation=0,
        controller="",
        owners=(),
        workload="",
    )


def _group_without_name(row: GroupRow) -> GroupRow:
    return replace(row, uid=Uid(""), name="", version=0, scheduled=False, checkpoint=0, created=0)
