"""The status of a PodDisruptionBudget: how many of its pods may be evicted now.

1. A pod counts that its selector matches and that is neither over nor leaving. A ready one is
   healthy, unless it was evicted within the last two minutes and is not deleted yet.
2. With a number in `minAvailable` as many are expected as there are; else as many as their
   controllers want (`spec.replicas`), of those that name no number as many as there are.
3. Percentages are rounded up; healthy pods beyond the required number may be evicted.
4. A budget whose number cannot be read allows nothing, with the reason SyncFailed.

Source: the disruption controller of Kubernetes 1.37.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kubeworld.objects.conditions import set_condition
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from kubeworld.units.percents import scaled

__all__ = ["budget_status", "wanted_pods"]

_DISRUPTED_FOR: Final = 2 * MINUTE


def budget_status(
    budget: Mapping[str, Any],
    counted: int,
    healthy: int,
    ready: Callable[[str], bool | None],
    wanted: Callable[[], int],
    now: Nanos,
) -> tuple[dict[str, Any], int | None]:
    """Return the status of a budget, and the nanoseconds until it has to be computed again.

    Args:
        budget: with the status that it has.
        counted: how many pods count.
        healthy: how many of them are ready.
        ready: returns whether a pod is ready, by name; None where it does not count.
        wanted: how many pods their controllers want.
        now: by the wall clock.
    """
    status: dict[str, Any] = copy.deepcopy(budget.get("status") or {})
    left = {
        name: parse_instant(since) + _DISRUPTED_FOR - now
        for name, since in (status.pop("disruptedPods", None) or {}).items()
        if ready(name) is not None
    }
    noted = (budget.get("status") or {}).get("disruptedPods") or {}
    kept = {name: noted[name] for name, rest in left.items() if rest > 0}
    healthy -= sum(ready(name) is True for name in kept)
    expected = _expected(budget.get("spec") or {}, counted, wanted)
    allowed = 0
    if expected is not None:
        number, desired = expected
        allowed = max(0, healthy - desired) if number else 0
        status |= {"desiredHealthy": desired, "expectedPods": number, "currentHealthy": healthy}
    status |= {
        "disruptionsAllowed": allowed,
        "observedGeneration": budget["metadata"].get("generation", 1),
    }
    if kept:
        status["disruptedPods"] = kept
    reason = "SufficientPods" if allowed else "InsufficientPods"
    if expected is None:
        reason = "SyncFailed"
    set_condition(status, "DisruptionAllowed", allowed > 0, format_instant(now), reason=reason)
    return status, min((left[name] for name in kept), default=None)


def wanted_pods(controllers: Iterable[tuple[str, int, int | None]]) -> int:
    """Return how many pods controllers want: each by uid, with its pods here and `replicas`.

    A controller may come several times, as a Deployment does above two ReplicaSets.
    """
    counts: Counter[str] = Counter()
    numbers: dict[str, int] = {}
    for uid, count, replicas in controllers:
        counts[uid] += count
        if replicas is not None:
            numbers[uid] = replicas
    return sum(numbers.get(uid, count) for uid, count in counts.items())


def _expected(
    spec: Mapping[str, Any], counted: int, wanted: Callable[[], int]
) -> tuple[int, int] | None:
    """Return how many pods are expected, and how many have to be healthy; None: not readable."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if isinstance(least, int):
        return counted, least
    expected = wanted()
    number = scaled(least if least is not None else 0 if most is None else most, expected)
    if number is None:
        return None
    return expected, number if least is not None else max(0, expected - number)
