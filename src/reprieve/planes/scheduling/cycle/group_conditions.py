"""Conditions of the groups that an attempt was about: of one pod group, or of all of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Attempt, GroupStatus
from reprieve.wording import kube_scheduler as wording
from reprieve.wording.kube_scheduler import ConditionText

__all__ = ["group_conditions", "group_scheduled"]


def group_conditions(
    groups: Mapping[str, GroupRow], attempt: Attempt, condition_type: str, *, kep_messages: bool
) -> Iterator[tuple[GroupRow, ConditionText]]:
    """Yield the groups that the attempt did not place, with what it states of them.

    `groups`: those that the attempt names, by key. Those that it placed are notified once their
    minimum is bound (`group_scheduled`). `condition_type`: that of pod groups under the served
    version.
    """
    placed = attempt.code is Code.SUCCESS
    parts: tuple[GroupStatus | None, ...] = attempt.parts or (None,)
    for part in parts:
        row = groups.get(attempt.unit.group if part is None else part.key)
        failed = part is not None and part.failure is not None
        if row is not None and (failed or (not placed and attempt.status)):
            own = wording.COMPOSITE_SCHEDULED if row.composite else condition_type
            yield row, wording.group_condition(attempt, own, part, kep_messages=kep_messages)


def group_scheduled(row: GroupRow, condition_type: str) -> ConditionText:
    """Return the condition of a group whose minimum is bound."""
    own = wording.COMPOSITE_SCHEDULED if row.composite else condition_type
    return ConditionText(own, "True", "Scheduled", "")
