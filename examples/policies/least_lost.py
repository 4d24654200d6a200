"""A policy of one's own for `reprieve simulate`: who loses least is preempted.

As a queue of the quota plane does by default, work of higher priority displaces lower one of its
own tenant, and a tenant that is within its own quota takes back what others borrowed. But among
those that may go, the ones go first whose progress since their last save is smallest.
"""

from __future__ import annotations

from collections.abc import Sequence

from reprieve.lab.plugins import Candidate, Candidates, Head


class LeastLost:
    """Priority and age decide who comes next; lost work decides who goes."""

    def admit(self, heads: Sequence[Head]) -> Sequence[Head]:
        """Return all that wait: higher priority first, then who waits longest."""
        return sorted(heads, key=lambda head: (-head.priority, head.waiting_since, head.id))

    def order(self, candidates: Candidates) -> Sequence[Candidate]:
        """Return who may be preempted, the least lost work first."""
        head = candidates.preemptor

        def may_go(each: Candidate) -> bool:
            if each.tenant == head.tenant:
                return each.priority < head.priority
            return head.within_own and each.borrows

        return sorted(filter(may_go, candidates), key=lambda each: (each.lost, each.id))
