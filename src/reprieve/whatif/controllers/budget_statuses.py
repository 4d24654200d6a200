"""What PodDisruptionBudgets allow while pods come, run and leave.

A budget is left as it was found until one of its pods changes, and for good where the cluster's
own controller could not determine it (`SyncFailed`). An empty selector matches every pod of the
namespace, a missing one none. Source: `kubeworld.controllers.budgets`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kubeworld.controllers.budgets import budget_status, wanted_pods
from kubeworld.objects.owners import controller_of
from kubeworld.objects.paths import Json, first
from kubeworld.objects.selectors import matches_labels
from kubeworld.units.clock import Clock
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.controllers.owned_pods import facts_of
from reprieve.whatif.copy.overlay import Overlay

__all__ = ["BudgetStatuses"]

_BUDGETS: Final = ("policy", "poddisruptionbudgets")
_DEPTH: Final = 2  # a pod's ReplicaSet, and its Deployment


@dataclass(frozen=True, slots=True)
class _Counted:
    """A pod that counts. `owner`: API version, kind, name and uid of its controller, or its own."""

    healthy: bool
    owner: tuple[str, str, str, str]


@dataclass(slots=True)
class _Budget:
    """A budget: whom it selects, and its pods that count, by name; None until one changes."""

    name: str
    selector: Json
    pods: dict[str, _Counted] | None = None
    owners: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    healthy: int = 0

    def is_ready(self, name: str) -> bool | None:
        """Return whether a pod is ready; None where it does not count."""
        found = (self.pods or {}).get(name)
        return None if found is None else found.healthy

    def count(self, name: str, counted: _Counted | None) -> None:
        """Count a pod, or count it no more."""
        assert self.pods is not None, "they were read"
        before = self.pods.pop(name, None)
        if before is not None:
            self.healthy -= before.healthy
            self.owners[before.owner] -= 1
        if counted is not None:
            self.pods[name] = counted
            self.healthy += counted.healthy
            self.owners[counted.owner] += 1


class BudgetStatuses:
    """Follows the pods of budgets, where the cluster has any."""

    def __init__(self, overlay: Overlay, clock: Clock) -> None:
        self._overlay = overlay
        self._clock = clock
        self._budgets: dict[str, list[_Budget]] | None = None  # by namespace
        self._changed: set[tuple[str, str]] = set()

    def changed(self, resource: Resource, old: Json | None, new: Json | None) -> None:
        """A pod or a budget was created, changed or deleted."""
        found = new if new is not None else old
        if found is None:
            return
        if (resource.group, resource.plural) == _BUDGETS:
            self._budget_changed(old, new)
        elif resource == PODS:
            namespace = found["metadata"].get("namespace", "")
            for budget in self._in(namespace):
                if any(_selects(budget, pod) for pod in (old, new) if pod is not None):
                    self._count(budget, namespace, found["metadata"]["name"], new)

    def write(self) -> None:
        """Write what the budgets allow by now whose pods have changed."""
        while self._changed:
            namespace, name = self._changed.pop()
            budget = next((e for e in self._in(namespace) if e.name == name), None)
            if budget is not None:
                self._write(namespace, budget)

    def _budget_changed(self, old: Json | None, new: Json | None) -> None:
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return
        self._budgets = None
        if new is not None:
            metadata = new["metadata"]
            self._changed.add((metadata.get("namespace", ""), metadata["name"]))

    def _in(self, namespace: str) -> list[_Budget]:
        if self._budgets is None:
            self._budgets = defaultdict(list)
            table = self._overlay.table(*_BUDGETS)
            for obj in self._overlay.all(table) if table is not None else ():
                selector = first(obj, "spec.selector")
                if selector is not None:
                    metadata = obj["metadata"]
                    budget = _Budget(metadata["name"], selector)
                    self._budgets[metadata.get("namespace", "")].append(budget)
        return self._budgets.get(namespace, [])

    def _count(self, budget: _Budget, namespace: str, name: str, pod: Json | None) -> None:
        if budget.pods is None:
            self._read(budget, namespace)
        else:
            counts = pod is not None and _selects(budget, pod)
            budget.count(name, _counted(pod) if pod is not None and counts else None)
        self._changed.add((namespace, budget.name))

    def _read(self, budget: _Budget, namespace: str) -> None:
        """Count the pods that there are by now."""
        budget.pods = {}
        for space, name in self._overlay.names(PODS):
            pod = self._overlay.get(PODS, space, name) if space == namespace else None
            if pod is not None and _selects(budget, pod):
                budget.count(name, _counted(pod))

    def _write(self, namespace: str, budget: _Budget) -> None:
        table = self._overlay.table(*_BUDGETS)
        obj = None if table is None else self._overlay.get(table, namespace, budget.name)
        if table is None or obj is None or _is_unknown(obj):
            return
        if budget.pods is None:
            self._read(budget, namespace)
        status, _ = budget_status(
            obj,
            len(budget.pods or ()),
            budget.healthy,
            budget.is_ready,
            lambda: wanted_pods(self._controllers(namespace, budget)),
            self._clock.wall(),
        )
        if status != (obj.get("status") or {}):
            self._overlay.change(table, {**obj, "status": status})

    def _controllers(
        self, namespace: str, budget: _Budget
    ) -> Iterator[tuple[str, int, int | None]]:
        for owner, count in budget.owners.items():
            if count:
                uid, number = self._controller(namespace, owner)
                yield uid, count, number

    def _controller(
        self, namespace: str, owner: tuple[str, str, str, str]
    ) -> tuple[str, int | None]:
        """Return the uid of who wants pods, and how many if it states so."""
        number: int | None = None
        for _ in range(_DEPTH):
            version, kind, name, uid = owner
            resource = self._overlay.resource_of(version, kind) if version else None
            obj = None if resource is None else self._overlay.get(resource, namespace, name)
            if obj is None:
                return uid, number
            found = first(obj, "spec.replicas")
            number = found if isinstance(found, int) else None
            above = _controlled_by(obj)
            if kind != "ReplicaSet" or above is None:
                return uid, number
            owner = above
        return owner[3], number


def _selects(budget: _Budget, pod: Json) -> bool:
    return matches_labels(budget.selector, pod["metadata"].get("labels"))


def _counted(pod: Json) -> _Counted | None:
    facts = facts_of(pod)
    if facts.over or facts.leaving:
        return None
    metadata = pod["metadata"]
    owner = _controlled_by(pod) or ("", "Pod", metadata["name"], metadata["uid"])
    return _Counted(facts.ready, owner)


def _controlled_by(obj: Json) -> tuple[str, str, str, str] | None:
    found = controller_of(obj)
    if found is None:
        return None
    return found["apiVersion"], found["kind"], found["name"], found["uid"]


def _is_unknown(budget: Json) -> bool:
    return any(
        each.get("type") == "DisruptionAllowed" and each.get("reason") == "SyncFailed"
        for each in first(budget, "status.conditions") or ()
    )
