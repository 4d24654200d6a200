"""What a set of victims costs where the best choice is wanted: smaller is better.

The first difference decides:
1. the priority of the first victim, which is the highest, then the highest own one of its pods;
2. pods that exceed what disruption budgets allow;
3. with `harmOrder`, the device-seconds that are lost; where several planes decide, the devices
   that the victims hold;
4. the sum over the victims' pods of (priority + 2**31), as KEP-5710 counts;
5. pods;
6. devices that these pods hold;
7. the earliest start among the victims of the highest priority, later is less.

Priorities in 4 and 7 are the pods' own. Source: specification 8.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.lost_work import is_device
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.least_cost.alternatives import set_harm
from reprieve.engine.scheduling.outcome import Preemption, pods_of
from reprieve.engine.scheduling.victims.budget_matches import BudgetMatches
from reprieve.engine.scheduling.victims.harm import claimed_by, devices_of_pods, lost_pods
from reprieve.engine.scheduling.victims.reach import reach_of
from reprieve.engine.scheduling.victims.units import Units
from reprieve.units.ids import Uid

__all__ = ["MOST_COST", "UnitCosts", "gap_of", "plan_cost", "unit_costs", "weights_of"]

MOST_COST: Final = 1 << 60  # of all units together
_OFFSET: Final = 2**31


def weights_of(simulation: Simulation) -> I64 | None:
    """Return what each pod counts for in criterion 3: (slots,); None where it is not requested."""
    if simulation.policy.fewest_devices:
        return devices_of_pods(simulation.snapshot)
    return lost_pods(simulation)


def plan_cost(
    snapshot: Snapshot, found: Preemption, budgets: BudgetMatches, lost: I64 | None
) -> tuple[int, ...]:
    """Return what these victims cost; `lost`: (slots,) see `weights_of`."""
    reach = reach_of(snapshot, found, budgets)
    _, _, work, total, pods, start = set_harm(snapshot, found, lost)
    devices = _devices(snapshot, found)
    return reach.priority, reach.own, sum(reach.overdrawn), work, total, pods, devices, start


def _devices(snapshot: Snapshot, found: Preemption) -> int:
    slots = pods_of(found.victims)
    columns = [number for number, name in enumerate(snapshot.resources) if is_device(name)]
    held = int(snapshot.pod_requests[slots][:, columns].sum())
    if claimed := claimed_by(snapshot):
        held += sum(claimed.get(Uid(snapshot.pod_uids[slot]), 0) for slot in slots.tolist())
    return held


def gap_of(cost: tuple[int, ...], priority: int, least: int, costs: UnitCosts) -> int | None:
    """Return how far a plan is from the bound at most, in per cent; None where nothing bounds it.

    `cost`: the plan's. `priority`: units below it are not enough. `least`: of `costs`, what units
    up to it cost at least with pods that budgets do not allow, -1 where that is not known.
    """
    if least < 0 or cost[0] > priority:
        return None
    broken, rest = divmod(least, costs.beyond)
    if cost[2] > broken:
        return None
    paid, needed = cost[3] if costs.by_work else cost[5], rest // costs.scale
    return max(0, -(-(paid - needed) * 100 // max(1, needed)))


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What evicting each unit costs, as one number; sums compare as criteria 3 and 4 do.

    `cost`: (units,). `scale`: so much of it is one of what counts first, device-seconds or pods.
    `by_work`: it is device-seconds. `beyond`: what one pod costs that budgets do not allow.
    """

    cost: I64
    scale: int
    by_work: bool
    beyond: int


def unit_costs(
    units: Units,
    parts: tuple[I64, I64],
    lost: I64 | None,
    broken: I64 | None = None,
    under: I64 | None = None,
) -> UnitCosts:
    """Return the units' costs; where they are too large for a number, without the last digits.

    `parts`: the slots of all units, and each one's unit. `lost`: (slots,) device-seconds.
    `broken`: (units,) pods that budgets do not allow, whichever others leave; they are a part of
    the cost. `under`: (units,) pods that they may not allow: all of them can be added to the cost.
    """
    snapshot = units.snapshot
    slots, place = parts
    own = snapshot.pod_priority[slots]
    low = int(own.min())
    above = own - low
    step: int = np.gcd.reduce(above).item() or 1
    ranks = np.bincount(place, weights=above // step, minlength=len(units)).astype(np.int64)
    each = int(ranks.sum()) + 1  # so that pods count first where priorities are far below 2**31
    if each * step > _OFFSET + low:
        each = max(1, (_OFFSET + low) // step)
    columns = [(units.size * each + ranks, each), (units.size, 1)]
    work = None
    if lost is not None:
        weights = np.clip(lost[slots], 0, None)
        work = np.bincount(place, weights=weights, minlength=len(units)).astype(np.int64)
        columns.append((np.zeros(len(units), np.int64), 1))
    for last, pod in columns:
        cost, scale = last, pod
        for first in (work, broken):
            if first is not None:
                scale = int(last.sum()) + 1 if first is work else scale
                cost, too_large = _above(first, cost)
                if too_large:
                    break
        else:
            beyond = int(cost.sum()) + 1 if broken is None else MOST_COST
            if under is None or beyond * (int(under.sum()) + 1) < MOST_COST:
                return UnitCosts(cost, scale, lost is not None, beyond)
    return UnitCosts(units.size, 1, False, int(units.size.sum()) + 1)


def _above(first: I64, then: I64) -> tuple[I64, bool]:
    """Return sums in which one number counts before the other, and whether they are too large."""
    scale = int(then.sum()) + 1
    return first * scale + then, int(first.sum()) * scale >= MOST_COST
