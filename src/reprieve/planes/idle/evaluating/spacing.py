"""When the next plan is due for a demand whose freed capacity other work uses.

Where another scheduler places the pods, nothing reserves freed capacity for the demand: work that
comes again may be bound there first. One more plan is made at once; from then on plans are spaced
out, except for pods that Reprieve places and for emergency priorities: `_FIRST` after the second
one, and twice as long after each further one, at most `_LONGEST`. Plans count from the instant when
the oldest pod of the demand began to wait, so that a demand that ran begins anew. Records are read
from the API server, so that a restart forgets none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kubeworld.units.durations import HOUR, MINUTE
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.reprieve import IntentPhase, Preemption, VictimState
from reprieve.engine.plan import Plane
from reprieve.units.ids import Uid

__all__ = ["next_plan", "plans_of_demands"]

_AT_ONCE: Final = 2  # plans that are not spaced out
_FIRST: Final = 10 * MINUTE
_LONGEST: Final = HOUR
_MOST_DOUBLINGS: Final = 8
_STAYED: Final = frozenset({VictimState.FAILED, VictimState.SPARED})


def plans_of_demands(
    records: Iterable[Preemption], demands: Collection[Uid]
) -> Mapping[Uid, list[Nanos]]:
    """Return when plans of the idle plane were decided for these demands, by their uids.

    A plan counts unless it is known that victims of it stay: the demand then lacks what was not
    freed, and no other work has used it.
    """
    found: dict[Uid, list[Nanos]] = {}
    for record in records:
        spec, preemptor = record.spec, record.spec.preemptor
        if preemptor is None or preemptor.uid not in demands or spec.plane != Plane.IDLE:
            continue
        if spec.dry_run or _stays(record):
            continue
        try:
            decided = parse_instant(spec.decided_at)
        except ValueError:
            continue
        found.setdefault(Uid(preemptor.uid), []).append(decided)
    return found


def next_plan(plans: Iterable[Nanos], since: Nanos) -> Nanos:
    """Return the first instant of another plan for a demand that waits `since` then."""
    made = sorted(at for at in plans if at >= since)
    if len(made) < _AT_ONCE:
        return since
    pause = min(_FIRST << min(len(made) - _AT_ONCE, _MOST_DOUBLINGS), _LONGEST)
    return Nanos(made[-1] + pause)


def _stays(record: Preemption) -> bool:
    """Return whether not all victims of a plan were evicted, or will be."""
    status = record.status
    if status.phase is IntentPhase.ABANDONED:
        return True
    states = {each.state for each in status.victims}
    return bool(states & _STAYED or {*status.victims_by_state} & {each.value for each in _STAYED})
