"""Which demands, and which idle work, the idle plane asks the other planes about.

After an evaluation the quota plane is asked which idle work holds the quota that its demands lack,
and the scheduling plane which goes beside work of lower priority. An operator and a replay ask by
the same rules. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from typing import Final

from reprieve.engine.idle.claims import demand_order
from reprieve.engine.idle.model import IdleSnapshot, Phase, Workload
from reprieve.engine.idle.outcome import Evaluation, Reason
from reprieve.engine.plan import Plane

__all__ = ["MOST_MIXTURES", "MOST_RELEASES", "demands_of_quota", "short_demands", "spare_work"]

#: How many demands are asked about in one evaluation: for quota, and beside priority.
MOST_RELEASES: Final = 20
MOST_MIXTURES: Final = 10
_SPARE: Final = (Reason.NO_DEMAND, Reason.REPRIEVED)
_TOO_LITTLE: Final = (Reason.SHORT, Reason.NO_PLACEMENT)


def demands_of_quota(snapshot: IdleSnapshot) -> list[Workload]:
    """Return the demands of the quota plane for which nobody goes yet, in their order.

    A displaced one is among them only while it has a debt to take back.
    """
    served = set(filter(None, snapshot.claims.values()))
    owned = [
        each
        for each in snapshot.workloads
        if snapshot.owned.get(each.key) is Plane.QUOTA
        and (each.key not in snapshot.displaced or each.key in snapshot.debts)
        and each.key not in served
    ]
    return sorted(owned, key=demand_order)


def short_demands(snapshot: IdleSnapshot, evaluation: Evaluation) -> list[Workload]:
    """Return the demands for which all idle work is too little, in their order."""
    short = {each.subject for each in evaluation.declined if each.reason in _TOO_LITTLE}
    demands = [
        each
        for each in snapshot.workloads
        if each.ref in short and each.key not in snapshot.displaced
    ]
    return sorted(demands, key=demand_order)


def spare_work(snapshot: IdleSnapshot, evaluation: Evaluation) -> list[Workload]:
    """Return the idle work that nobody needs, oldest idle first."""
    spare = {each.subject for each in evaluation.declined if each.reason in _SPARE}
    idle = [
        each for each in snapshot.workloads if each.status.phase is Phase.IDLE and each.ref in spare
    ]
    return sorted(idle, key=lambda each: (each.status.idle_since or 0, each.key))
