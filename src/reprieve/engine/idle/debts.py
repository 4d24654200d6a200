"""What displaced work may reclaim: the debt of the work that displaced it.

Of the displacements of the last hour those count by which the demand itself was displaced, the last
one and those for the same preemptor in the minute before. The debt is the devices that it lost,
less those that were evicted for its return since. There is none where the preemptor had been
displaced itself (depth 2 is the end).

Idle work that could have been evicted for the preemptor stays. Where the idle plane was to be
queried, work that has become idle since may be evicted: what was idle before may have helped by its
priority, or beside others. Where lower priorities could be evicted for the preemptor, work of a
lower one than its own stays in any case; likewise, where that was preempted for quota, what holds
quota by a Workload of a lower priority, or of any where other ClusterQueues return quota to it at
any. Whether these had borrowed then is not known. Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import HOUR, MINUTE
from kubeworld.units.instants import Nanos
from reprieve.engine.idle.model import Debt

__all__ = ["ANY", "WITHIN", "Loss", "debt"]

#: Above all priorities, which have 32 bits.
ANY: Final = 2**31
#: How long a displacement counts.
WITHIN: Final = HOUR
_TOGETHER: Final = MINUTE


@dataclass(frozen=True, slots=True)
class Loss:
    """A displacement of the demand.

    `name` orders those of one instant; `whom`: the preemptor's lineage; `asked`: the idle plane
    was to be queried for the preemptor; `priority`: its own, where pods of lower ones could be
    evicted; `of_quota`: where Workloads of a lower priority than this could (`ANY`: all).
    """

    at: Nanos
    name: str
    whom: str
    devices: int
    depth: int
    asked: bool
    priority: int | None = None
    of_quota: int | None = None


def debt(losses: Collection[Loss], chosen: Iterable[tuple[Nanos, int]], now: Nanos) -> Debt | None:
    """Return the debt of displaced work, None without one.

    `chosen`: when and how many devices were evicted for it.
    """
    lately = [each for each in losses if now - WITHIN < each.at <= now]
    if not lately:
        return None
    lately.sort(key=lambda each: (each.at, each.name))
    last = lately[-1]
    own = [e for e in lately if e.whom == last.whom and last.at - e.at <= _TOGETHER]
    left = sum(each.devices for each in own)
    left -= sum(devices for at, devices in chosen if own[0].at <= at <= now)
    if left <= 0 or any(each.depth > 1 for each in own):
        return None
    since = last.at if any(each.asked for each in own) else None
    above = max((e.priority for e in own if e.priority is not None), default=None)
    of_quota = max((e.of_quota for e in own if e.of_quota is not None), default=None)
    return Debt(left, since, above, of_quota)
