"""Keeps the status of PodDisruptionBudgets, by which the API server allows evictions or not.

Source: `kubeworld.controllers.budgets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kubelocal.machines.informer import Informer, Key
from kubelocal.machines.objects import Change, ChangeType, Object
from kubelocal.machines.selections import Selections
from kubeworld.controllers.budgets import budget_status, wanted_pods
from kubeworld.controllers.replicas import replicas_of
from kubeworld.objects.owners import controller_of
from kubeworld.objects.pods import is_active, is_ready
from kubeworld.units.clock import Clock

__all__ = ["DisruptionController"]

_BUDGETS: Final = "poddisruptionbudgets.policy"


class DisruptionController:
    """Keeps the status of every PodDisruptionBudget."""

    name = "disruption"

    def __init__(self, informer: Informer, clock: Clock) -> None:
        self._informer = informer
        self._clock = clock
        self._selections = Selections(informer, _BUDGETS, lambda b: b["spec"].get("selector"))

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        if change.resource == _BUDGETS and change.type is ChangeType.DELETED:
            list(self._selections.observe(change, before))
            return []
        return self._selections.observe(change, before)

    async def reconcile(self, key: Key) -> int | None:
        budget = self._informer.at(key)
        if budget is None or budget["metadata"].get("deletionTimestamp"):
            return None
        pods = {
            pod["metadata"]["name"]: is_ready(pod)
            for pod in self._selections.pods(key)
            if is_active(pod)
        }
        status, again = budget_status(
            budget,
            len(pods),
            sum(pods.values()),
            pods.get,
            lambda: wanted_pods(self._controllers(key)),
            self._clock.wall(),
        )
        if status != (budget.get("status") or {}):
            await self._informer.update(
                _BUDGETS, {**budget, "status": status}, subresource="status"
            )
        return again

    def _controllers(self, key: Key) -> Iterator[tuple[str, int, int | None]]:
        for pod in self._selections.pods(key):
            if not is_active(pod):
                continue
            owner = self._controller(pod)
            if owner is not None and owner["kind"] == "ReplicaSet":
                # In the middle of a roll-out there are two.
                owner = self._controller(owner) or owner
            if owner is None:
                yield pod["metadata"]["uid"], 1, None
            else:
                counts = "replicas" in (owner.get("spec") or {})
                yield owner["metadata"]["uid"], 1, replicas_of(owner) if counts else None

    def _controller(self, obj: Object) -> Object | None:
        reference = controller_of(obj)
        found = self._informer.by_uid(reference["uid"]) if reference else None
        return found[1] if found else None
