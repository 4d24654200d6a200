"""Step 5 of a plan: how it ends, who learns of it, and the close of its record.

A plan that ends is tried to be closed once, and again by `Executor.reconcile` until its record is
written. Tenants of evicted work are notified before that, once; no step waits for what fails of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from typing import Any, Final, Generic, TypeVar

from reprieve.api.reprieve import IntentPhase, Preemption, VictimState
from reprieve.execution.accounts.disruptions import Disruptions
from reprieve.execution.carried import Carried
from reprieve.execution.records.book import Book
from reprieve.execution.steps import Steps
from reprieve.execution.victims import Manner, VictimResult
from reprieve.kube.errors import ApiError

__all__ = ["Closing"]

log: Final = logging.getLogger("reprieve.execution")

M = TypeVar("M")


class Closing(Generic[M]):
    """Ends plans of one plane, and drops those that are closed from `open`."""

    def __init__(
        self,
        book: Book,
        manner: Manner,
        steps: Steps[M],
        open: MutableMapping[str, Carried[M]],
        ended: Callable[[Carried[M], Preemption | None], Any],
        disruptions: Disruptions | None,
    ) -> None:
        self._book = book
        self._manner = manner
        self._steps = steps
        self._open = open
        self._ended = ended
        self._disruptions = disruptions

    async def abandon(self, each: Carried[M], reason: str) -> None:
        """End a plan; victims of whom nothing is recorded yet are spared.

        Raises:
            Deposed: the fence is closed.
        """
        for victim in each.intent.spec.victims:
            if victim.root.uid not in each.states:
                self._steps.record(each, victim, VictimResult(VictimState.SPARED))
        each.ending = IntentPhase.ABANDONED, reason
        each.busy = False
        try:
            await self.close(each)
        except ApiError as failure:
            log.warning("preemption %s stays open: %s", each.name, failure)

    async def spare_all(self, each: Carried[M], refusal: str) -> None:
        """Spare all: one cannot be marked, and the others are not evicted without it.

        Raises:
            Deposed: the fence is closed.
        """
        for victim in each.intent.spec.victims:
            if victim.root.uid not in each.states:
                await self._steps.spare(each, victim, f"not touched: {refusal}")
        await self.abandon(each, refusal)

    async def complete(self, each: Carried[M], why: str) -> None:
        """End a plan whose victims have ended, and close it; `why`: empty if it was of use.

        Raises:
            Deposed: the fence is closed.
            ApiError: it stays open.
        """
        victims = each.intent.spec.victims
        over = sum(each.is_over(victim) for victim in victims)
        done = over == len(victims) if self._manner.whole else over > 0
        phase = IntentPhase.COMPLETED if done else IntentPhase.ABANDONED
        said = f"{over} of {len(victims)} victims {self._manner.evicted}"
        each.ending = phase, "; ".join(filter(None, (said, why)))
        await self.close(each)

    async def notify(self, each: Carried[M]) -> None:
        """Notify the tenants of evicted work, once."""
        if self._disruptions is not None and not each.notified:
            await self._disruptions.report(each.intent, each.states, each.ended)
            each.notified = True

    async def close(self, each: Carried[M]) -> None:
        """Close the record of a plan that has ended.

        Raises:
            Deposed: the fence is closed.
            ApiError: it stays open.
        """
        assert each.ending is not None, "it is known how it ends"
        phase, reason = each.ending
        await self.notify(each)
        disruptions_pending = self._disruptions is not None and self._disruptions.owes(each.name)
        record = await self._book.close(
            each.intent, phase, reason, each.outcome(), disruptions_pending=disruptions_pending
        )
        self._open.pop(each.name, None)
        self._ended(each, record)
