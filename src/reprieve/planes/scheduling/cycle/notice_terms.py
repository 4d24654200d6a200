"""What placed pods would be granted before an eviction, as far as the choice of victims reads it.

With `harmOrder`, and where notice is allowed, each placed pod that asks for notice has a row: the
time that it would be granted by a preemptor of default patience, how long its save takes, and the
credit of its lineage when it was seen first. A later end of a notice changes the rows of the
lineage's next pods. Source:
`docs/notice-decisions.md`.
"""

from __future__ import annotations

from kubeworld.units.durations import SECOND
from reprieve.engine.cluster.rows import Entry, Gone, Kind, NoticeRow, PodRow
from reprieve.engine.notice.expected import Terms
from reprieve.engine.notice.granting import granted
from reprieve.execution.notices import Notices
from reprieve.execution.records.at_stake import lineage_of
from reprieve.intake.lineage import pod_party
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid

__all__ = ["NoticeTerms"]


class NoticeTerms:
    """Keeps the rows of one plane."""

    def __init__(self, context: SchedulingContext, state: ClusterState, notices: Notices) -> None:
        self._context = context
        self._state = state
        self._notices = notices
        self._rows: dict[Uid, NoticeRow] = {}
        if context.policy.harm_order and context.settings.notice.most:
            state.observers.append(self._seen)

    def _seen(self, before: PodRow | None, row: PodRow | None) -> None:
        found = row or before
        if found is None:
            return
        wanted = row is not None and row.notice and row.node and not row.finished
        if wanted and found.uid not in self._rows:
            self._add(found)
        elif not wanted and found.uid in self._rows:
            known = self._rows.pop(found.uid)
            self._state.cluster.apply((Gone(Kind.NOTICE, known.uid, known.namespace, known.name),))

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
        grant = granted(self._context.settings.notice, (row.notice * SECOND,), emergency=False)
        credit = self._notices.credit(lineage_of(pod_party(row)))
        return Terms(grant.time, row.save_cost * SECOND, credit=credit)
