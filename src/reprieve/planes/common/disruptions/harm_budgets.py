"""Reads HarmBudgets, and the labels of namespaces that they select by.

A budget that is not accepted holds no work; the log and its status state why. A version of a budget
with the same spec, such as one with another status, changes nothing. Where the kind is not served
there are none. Where it is served and may not be read, or the namespaces that a budget selects by
may not, no plane evicts: a budget that the operator cannot see would be broken. Namespaces are read
only once there is a budget that selects by their labels.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from kubeworld.units.clock import Clock
from reprieve.api import harm_budget as api
from reprieve.api.core import Namespace
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.harm_budgets.budget import HarmBudget
from reprieve.intake.harm_budgets import InvalidBudget, budget_of
from reprieve.kube.errors import Forbidden, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.reflector import Health
from reprieve.kube.resource import HARM_BUDGETS, NAMESPACES
from reprieve.planes.common.mirrors.mirror import Followed, Mirror
from reprieve.planes.common.mirrors.refused_kinds import RefusedKinds
from reprieve.planes.common.mirrors.troubles import Troubles

__all__ = ["HarmBudgets"]

log: Final = logging.getLogger("reprieve.harm")

_NO_LABELS: Final[Mapping[str, str]] = {}


class HarmBudgets:
    """Follows budgets for the governor of all planes. `run` works beside the planes."""

    def __init__(self, governor: Governor, client: Reader, mirror: Mirror, clock: Clock) -> None:
        self._governor = governor
        #: All budgets as they are stored, and what is not accepted of some, by name.
        self.objects: dict[str, api.HarmBudget] = {}
        self.faults: dict[str, str] = {}
        self._budgets: dict[str, HarmBudget] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._listed = False
        self._wanted = asyncio.Event()

        self._troubles = Troubles(clock)
        self._refused = RefusedKinds(client, clock, log, "no plane evicts")

        def report(trouble: Exception) -> None:
            self._refused.report(trouble)
            if not isinstance(trouble, NotFound | Forbidden):
                log.warning("harm budgets: %s", trouble)

        self._followed = mirror.follow(HARM_BUDGETS, api.HarmBudget, _Budgets(self), report=report)
        self._namespaces = mirror.follow(NAMESPACES, Namespace, _Namespaces(self), report=report)
        governor.harm.labels = lambda namespace: self._labels.get(namespace, _NO_LABELS)

    @property
    def known(self) -> bool:
        """Whether all budgets are known, and the labels that they need."""
        if self._refused.absent(self._followed):
            return True
        if any(each.health is Health.FORBIDDEN for each in self._read):
            return False
        return self._listed and (not self._selects or self._namespaces.synced.is_set())

    def troubles(self) -> list[str]:
        """Return one line for each kind that is served and cannot be read."""
        return self._troubles.lines(self._refused.troubling(self._read))

    @property
    def _read(self) -> tuple[Followed[Any], ...]:
        return (self._followed, *((self._namespaces,) if self._selects else ()))

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._followed.run(), name="watch harm budgets")
            every = (self._followed, self._namespaces)
            group.create_task(self._refused.run(every), name="look for refused harm budgets")
            await self._wanted.wait()
            group.create_task(self._namespaces.run(), name="watch namespaces of harm budgets")

    @property
    def _selects(self) -> bool:
        return any(each.selector.namespaces is not None for each in self._budgets.values())

    def replace(self, found: list[api.HarmBudget]) -> None:
        """Hold exactly these budgets."""
        for name in self.objects.keys() - {each.metadata.name for each in found}:
            self._forget(name)
        for each in found:
            self._apply(each)
        self._listed = True
        self._adopt()

    def apply(self, found: api.HarmBudget) -> None:
        """Hold a budget in place of an older version."""
        if self._apply(found):
            self._adopt()

    def remove(self, name: str) -> None:
        """Release a budget."""
        self._forget(name)
        self._adopt()

    def _forget(self, name: str) -> None:
        for held in (self.objects, self.faults, self._budgets):
            held.pop(name, None)

    def _apply(self, found: api.HarmBudget) -> bool:
        """Read a budget, and return whether it states anything else than before."""
        name = found.metadata.name
        before = self.objects.get(name)
        if before is not None and before.spec == found.spec:
            self.objects[name] = found
            return False
        self._forget(name)
        self.objects[name] = found
        try:
            self._budgets[name] = budget_of(found)
        except InvalidBudget as fault:
            self.faults[name] = str(fault)
            log.warning("HarmBudget %s is not enforced: %s", name, fault)
        return True

    def _adopt(self) -> None:
        if self._selects:
            self._wanted.set()
        with self._governor.guard:
            self._governor.harm.adopt(self._budgets)

    def label(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Apply the labels of a namespace; None where it is deleted."""
        before = self._labels.get(name)
        if labels is None:
            self._labels.pop(name, None)
        elif labels != before:
            self._labels[name] = labels
        if labels != before and self._selects:
            with self._governor.guard:
                self._governor.harm.relabelled()


class _Budgets:
    def __init__(self, reported: HarmBudgets) -> None:
        self._reported = reported

    def received(self, objects: list[api.HarmBudget]) -> list[api.HarmBudget]:
        return objects

    def replaced(self, objects: list[api.HarmBudget], resource_version: str) -> None:
        del resource_version
        self._reported.replace(objects)

    def applied(self, obj: api.HarmBudget) -> None:
        self._reported.apply(obj)

    def deleted(self, obj: api.HarmBudget) -> None:
        self._reported.remove(obj.metadata.name)


class _Namespaces:
    def __init__(self, reported: HarmBudgets) -> None:
        self._reported = reported

    def received(self, objects: list[Namespace]) -> list[Namespace]:
        for each in objects:
            self.applied(each)
        return []

    def replaced(self, objects: list[Namespace], resource_version: str) -> None:
        """A list is complete; objects deleted since count no more."""

    def applied(self, obj: Namespace) -> None:
        self._reported.label(obj.metadata.name, obj.metadata.labels or {})

    def deleted(self, obj: Namespace) -> None:
        self._reported.label(obj.metadata.name, None)
