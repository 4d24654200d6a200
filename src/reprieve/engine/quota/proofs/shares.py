"""Whether a comparison of shares could have made a victim, in the state that speaks most for it.

The search compares while it collects victims, and some of them are reprieved at the end, so that
the moment of a comparison is not known from a plan. Shares only fall as victims are evicted. So the
other side is used as it was, without this victim where the strategy states it, and the preemptor's
side with the preemptor and without the victims of the plan; if that does not suffice, without all
workloads there that may be preempted. A victim that is refused in this state was not permitted in
any other.

Source: specification of the quota plane, sections 3.5, 7.2 and 7.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.reckoning import ShareKey, Usage
from reprieve.engine.quota.model import Strategy
from reprieve.engine.quota.proofs.proof_state import ProofState, Side

__all__ = ["Comparisons"]


class Comparisons:
    """The comparisons of one proof."""

    def __init__(self, state: ProofState) -> None:
        self._state = state
        # The second round compares with the share before, whatever the first one did.
        strategies = state.settings.strategies
        self._final = strategies[0] is Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
        self._initial = len(strategies) > 1 or not self._final
        self._mine: dict[tuple[int, bool], ShareKey] = {}
        self._before: dict[int, ShareKey] = {}

    def permit(self, side: Side, holder: Holder) -> bool:
        """Return whether one may have been chosen."""
        if self._final:
            final = self._final_share(side, holder)
            if self._own_share(side.mine, False) <= final:
                return True
        if self._initial and self._own_share(side.mine, False) < self._share_before(side.theirs):
            return True
        # What follows is dear and hardly ever needed.
        mine = self._own_share(side.mine, True)
        if self._final and mine <= final:
            return True
        return self._initial and mine < self._share_before(side.theirs)

    def _final_share(self, side: Side, holder: Holder) -> ShareKey:
        usage, below = self._state.before, side.below[:-1]
        less = dict(holder.held)
        if below:
            less = {c: -usage.trail(c, below, -amount)[-1] for c, amount in less.items()}
        return usage.share(side.theirs, less)

    def _share_before(self, node: int) -> ShareKey:
        if node not in self._before:
            self._before[node] = self._state.before.share(node)
        return self._before[node]

    def _own_share(self, node: int, everybody: bool) -> ShareKey:
        """Return the share of the preemptor's side with it, without victims or all it might be."""
        known = self._mine.get((node, everybody))
        if known is not None:
            return known
        state = self._state
        usage = Usage(state.reckoning, state.snapshot.usage)
        for column, amount in state.wanted.items():
            usage.change(column, {state.plan.queue: amount})
        victims = (victim.holder for victim in state.plan.victims)
        for holder in self._permitted() if everybody else victims:
            if node in state.reckoning.path(holder.queue):
                for column, amount in holder.held:
                    usage.change(column, {holder.queue: -amount})
        self._mine[node, everybody] = usage.share(node)
        return self._mine[node, everybody]

    def _permitted(self) -> Iterator[Holder]:
        state = self._state
        for queue, lists in enumerate(state.snapshot.lists):
            policy = state.policy(queue == state.plan.queue)
            for rows in lists.values():
                for *_, holder in rows:
                    if state.permits(policy, holder.workload):
                        yield holder
