"""The status of PodDisruptionBudgets, by which the API server lets pods be evicted or not.

Source: the disruption controller. How many pods are expected is what their controllers want
(`spec.replicas`), for a controller that names no number (a Job) as many as it has; with a number in
`minAvailable` as many as there are. Percentages are rounded up. A pod that was evicted counts as
disrupted until it goes, at most two minutes.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.informer import Informer, Key
from kubelocal.machines.objects import Change, ChangeType, Object
from kubelocal.machines.selections import Selections
from kubelocal.machines.workloads.replicas import replicas_of, scaled
from kubeworld.objects.conditions import set_condition
from kubeworld.objects.owners import controller_of
from kubeworld.objects.pods import is_active, is_ready
from kubeworld.units.clock import Clock
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import format_instant, parse_instant

__all__ = ["DisruptionController"]

_BUDGETS: Final = "poddisruptionbudgets.policy"
_DISRUPTED_FOR: Final = 2 * MINUTE


class DisruptionController:
    """Keeps the status of every PodDisruptionBudget."""

    name = "disruption"

    def __init__(self, informer: Informer, clock: Clock) -> None:
        self._informer = informer
        self._clock = clock
        self._selections = Selections(informer, _BUDGETS, lambda b: b["spec"].get("selector"))

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == _BUDGETS and change.type is ChangeType.DELETED:
            list(self._selections.take_in(change, before))
            return []
        return self._selections.take_in(change, before)

    async def reconcile(self, key: Key) -> int | None:
        budget = self._informer.at(key)
        if budget is None or budget["metadata"].get("deletionTimestamp"):
            return None
        old = budget.get("status") or {}
        pods = [pod for pod in self._selections.pods(key) if is_active(pod)]
        disrupted, again = self._disrupted(old.get("disruptedPods") or {}, pods)
        healthy = sum(is_ready(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
        expected, desired = self._expected(budget["spec"], pods)
        allowed = max(0, healthy - desired) if expected else 0
        status: dict[str, Any] = {
            **copy.deepcopy(old),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": budget["metadata"].get("generation", 1),
        }
        status.pop("disruptedPods", None)
        if disrupted:
            status["disruptedPods"] = disrupted
        now = format_instant(self._clock.wall())
        reason = "SufficientPods" if allowed else "InsufficientPods"
        set_condition(status, "DisruptionAllowed", allowed > 0, now, reason=reason)
        if status != old:
            await self._informer.update(
                _BUDGETS, {**budget, "status": status}, subresource="status"
            )
        return again

    def _disrupted(
        self, noted: dict[str, str], pods: list[Object]
    ) -> tuple[dict[str, str], int | None]:
        """Return which evicted pods are still to go, and the nanoseconds until one is given up."""
        names = {pod["metadata"]["name"] for pod in pods}
        rests = {
            name: parse_instant(since) + _DISRUPTED_FOR - self._clock.wall()
            for name, since in noted.items()
            if name in names
        }
        kept = {name: rest for name, rest in rests.items() if rest > 0}
        return {name: noted[name] for name in kept}, min(kept.values(), default=None)

    def _expected(self, spec: dict[str, Any], pods: list[Object]) -> tuple[int, int]:
        """Return how many pods are expected and how many of them must be healthy."""
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if isinstance(least, int):
            return len(pods), least
        expected = self._wanted(pods)
        if least is not None:
            return expected, scaled(least, expected)
        return expected, max(0, expected - scaled(0 if most is None else most, expected))

    def _wanted(self, pods: list[Object]) -> int:
        counts: Counter[str] = Counter()
        numbers: dict[str, int] = {}
        for pod in pods:
            owner = self._controller(pod)
            if owner is not None and owner["kind"] == "ReplicaSet":
                owner = (
                    self._controller(owner) or owner
                )  # in the middle of a roll-out there are two
            uid = pod["metadata"]["uid"] if owner is None else owner["metadata"]["uid"]
            counts[uid] += 1
            if owner is not None and "replicas" in (owner.get("spec") or {}):
                numbers[uid] = replicas_of(owner)
        return sum(numbers.get(uid, count) for uid, count in counts.items())

    def _controller(self, obj: Object) -> Object | None:
        reference = controller_of(obj)
        found = self._informer.by_uid(reference["uid"]) if reference else None
        return found[1] if found else None
