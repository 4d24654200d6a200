"""What placed pods would be granted before an eviction, as far as the choice of victims reads it.

With `harmOrder`, and where notice is allowed, each placed pod that requests notice has a row: the
time that it would be granted by a preemptor of default patience, how long its save lasts, and the
credit of its lineage when it was seen first. A later end of a notice changes the rows of the
lineage's next pods. Source: `docs/notice-decisions.md`. A new leader reads the credits of its
predecessors from records.
"""

from __future__ import annotations

from kubeworld.units.durations import SECOND
from reprieve.engine.cluster.rows import Entry, Gone, Kind, NoticeRow, PodRow
from reprieve.engine.notice.expected import Terms
from reprieve.engine.notice.granting import granted
from reprieve.execution.notices import Notices
from reprieve.intake.lineage import pod_participant
from reprieve.planes.common.mirrors.stated_limits import least_notice
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.state import ClusterState
from reprieve.records.plans.at_stake import lineage_of
from reprieve.units.ids import Uid

__all__ = ["NoticeTerms", "allowed_by", "asked_by"]


class NoticeTerms:
    """Keeps the rows of one plane."""

    def __init__(self, context: SchedulingContext, state: ClusterState, notices: Notices) -> None:
        self._context = context
        self._state = state
        self._notices = notices
        self._rows: dict[Uid, NoticeRow] = {}
        if context.policy.harm_order and context.settings.notice.most:
            state.observers.append(self._seen)
            notices.histories.restored.append(self._again)

    def _seen(self, before: PodRow | None, row: PodRow | None) -> None:
        found = row or before
        if found is None:
            return
        runs = row is not None and row.node and not row.finished
        wanted = runs and asked_by(self._state, found)[0] > 0
        if wanted and found.uid not in self._rows:
            self._add(found)
        elif not wanted and found.uid in self._rows:
            known = self._rows.pop(found.uid)
            self._state.cluster.apply((Gone(Kind.NOTICE, known.uid, known.namespace, known.name),))

    def _again(self) -> None:
        """Use the credits that are known now."""
        for uid in list(self._rows):
            row = self._state.pod(uid)
            self._seen(row, None)
            self._seen(None, row)

    def _add(self, row: PodRow) -> None:
        terms = self.terms(row)
        if not terms.time:
            return
        found = NoticeRow(
            Uid(f"notice/{row.uid}"),
            row.namespace,
            row.name,
            0,
            terms.time // SECOND,
            terms.save // SECOND,
            terms.credit,
        )
        self._rows[row.uid] = found
        entry = Entry(Kind.NOTICE, found.uid, found.namespace, found.name, found.version, found)
        self._state.cluster.apply((entry,))

    def terms(self, row: PodRow) -> Terms:
        """Return what a pod would be granted by a preemptor of default patience."""
        asked, save = asked_by(self._state, row)
        allowed = allowed_by(self._state, row)
        policy = self._context.settings.notice
        grant = granted(policy, (asked * SECOND,), emergency=False, allowed=allowed)
        credit = self._notices.credit(lineage_of(pod_participant(row)))
        return Terms(grant.time, save * SECOND, credit=credit)


def asked_by(state: ClusterState, row: PodRow) -> tuple[int, int]:
    """Return the seconds of notice that a pod or its group requests, and those of a save.

    What the pod states counts first.
    """
    group = state.group(f"{row.namespace}/{row.group}") if row.group else None
    if group is None:
        return row.notice, row.save_cost
    return row.notice or group.notice, row.save_cost or group.save_cost


def allowed_by(state: ClusterState, row: PodRow) -> int:
    """Return the nanoseconds that a pod's PriorityClass and queues allow, where they are read."""
    found = state.objects.entry(Kind.PRIORITY_CLASS, ("", row.pod_class.priority_class))
    said: int | None = None if found is None else found.row.notice_max
    _, of_queues = state.queue_limits(row)
    return least_notice(None if said is None else said * SECOND, of_queues)
