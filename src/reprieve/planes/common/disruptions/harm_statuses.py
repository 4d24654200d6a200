"""Writes the status of each HarmBudget, and shows how many of its accounts are exhausted.

A budget is read again when something was charged to it, and when the next displacement leaves one
of its windows. The leader alone writes, behind the fence, at most every ten seconds and only where
the stored status differs: so many displacements are one write, and a write causes no other. A
write that fails is tried again at the next turn.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.harm_budget import HarmBudget
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.harm_budgets.accounts import Use
from reprieve.execution.fence import Deposed, Fence
from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.intake.harm_budgets import window_text
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Conflict, NotFound
from reprieve.kube.resource import HARM_BUDGETS
from reprieve.kube.writes import Priority
from reprieve.planes.common.disruptions.harm_budgets import HarmBudgets
from reprieve.telemetry.metrics import Metrics
from reprieve.wording.harm_budgets import harm_status

__all__ = ["HarmStatuses"]

log: Final = logging.getLogger("reprieve.harm")

_EVERY: Final = 10 * SECOND


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a budget; `due`: when it is read again, None if nothing is charged."""

    uses: tuple[Use, ...] = ()
    due: Nanos | None = None


class HarmStatuses:
    """Shows the use of budgets. `run` works beside the planes."""

    def __init__(
        self,
        followed: HarmBudgets,
        governor: Governor,
        client: Client,
        fence: Fence,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._followed = followed
        self._governor = governor
        self._writer = client.at(Priority.STATUS, fence.check, timeout=fence.request_timeout)
        self._fence = fence
        self._clock = clock
        self._metrics = metrics
        self._read: dict[str, _Read] = {}
        self._shown: set[str] = set()
        self._trouble = ""

    async def run(self) -> None:
        """Show and write until cancelled."""
        while True:
            if self._governor.harm.known():
                self._refresh()
                if self._fence.open:
                    await self._write()
            await self._clock.sleep(_EVERY)

    def _refresh(self) -> None:
        """Read the budgets of which other use may be known, and show all in the metric."""
        now, harm = self._clock.wall(), self._governor.harm
        with self._governor.guard:
            changed, known = harm.changed(), set(harm.budgets)
        for name in self._read.keys() - known:
            del self._read[name]
        for name in known:
            due = self._read[name].due if name in self._read else now
            if name not in changed and (due is None or due > now):
                continue
            with self._governor.guard:
                uses = tuple(harm.used(name, now)) if name in harm.budgets else ()
            self._read[name] = _Read(uses, min((use.leaves for use in uses), default=None))
        for name in self._shown - self._read.keys():
            self._metrics.harm_exhausted.remove(name)
        for name, read in self._read.items():
            number = sum(use.free_at is not None for use in read.uses)
            self._metrics.harm_exhausted.labels(name).set(number)
        self._shown = set(self._read)

    async def _write(self) -> None:
        now = self._clock.wall()
        for budget in list(self._followed.objects.values()):
            name = budget.metadata.name
            fault = self._followed.faults.get(name, "")
            if not fault and name not in self._read:
                continue  # not adopted yet
            window = "" if fault else window_text(budget.spec)
            uses = self._read.get(name, _Read()).uses
            after = harm_status(budget, window, fault, uses, now)
            before: object = {} if budget.status is None else budget.status
            change = StatusChange.over(HARM_BUDGETS, budget.metadata, before, after)
            if change is not None:
                await self._send(change)

    async def _send(self, change: StatusChange) -> None:
        try:
            stored = await write_status(self._writer, change, HarmBudget)
        except (Conflict, NotFound, Deposed):
            return  # another version is on its way, or another process leads
        except ApiError as failure:
            if str(failure) != self._trouble:
                log.warning("the status of HarmBudget %s is not written: %s", change.name, failure)
            self._trouble = str(failure)
            return
        self._trouble = ""
        self._followed.apply(stored)
