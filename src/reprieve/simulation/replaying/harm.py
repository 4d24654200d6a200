"""Harm budgets in a replay, where jobs are preempted on nodes: whom they spare, and which plans.

One governor has the accounts of all planes of a policy. A job is known as its pods are in an
operator: by tenant, priority and lineage, without a ClusterQueue. It loses the time since its last
save, or since it began, times its devices. A job for which budgets spare all candidates is tried
again when the first of them is free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.questions import BudgetHold
from reprieve.engine.harm_budgets.asking import Asking
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.lost_work import lost_device_seconds
from reprieve.simulation.harm_budgets import namespace_labels
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.work import Saved
from reprieve.simulation.trace import Job

__all__ = ["Candidates", "NodeHarm", "governor_of"]

#: How budgets know jobs, and what each loses, by key.
Candidates = Mapping[str, tuple[HarmSide, Callable[[], int]]]


def governor_of(policy: PolicySpec) -> Governor:
    """Return the governor of a policy, with its harm budgets."""
    governor = Governor(policy.governor)
    governor.harm.labels = namespace_labels
    governor.harm.adopt({each.name: each for each in policy.harm_budgets})
    return governor


class NodeHarm:
    """Queries the budgets for one plane."""

    def __init__(
        self, governor: Governor, plane: str, saved: Callable[[str, Nanos], Saved]
    ) -> None:
        """`saved` returns what a job saved by then."""
        self._accounts, self._plane = governor.harm, plane
        self._asking = Asking(governor.harm, plane)
        self._saved = saved

    def __bool__(self) -> bool:
        """Whether there is any budget."""
        return bool(self._accounts)

    @staticmethod
    def side(job: Job, number: int) -> HarmSide:
        """Return how budgets know a job; `number` is its place in the order of arrivals."""
        return HarmSide(job.tenant, "", job.priority or 0, f"object/{number:012}")

    def lost(self, key: str, job: Job, start: int | None, now: Nanos) -> int:
        """Return the device seconds that a job loses; `start`: Unix seconds."""
        saved = self._saved(key, now).at
        at = 0 if saved is None else saved // SECOND
        return lost_device_seconds(start, at, job.devices, now // SECOND)

    def held(
        self, key: str, asks: HarmSide | None, jobs: Candidates, now: Nanos
    ) -> dict[str, BudgetHold]:
        """Return which jobs budgets spare from another one, by key; it is empty for none."""
        return self._asking.held(
            key,
            asks,
            now,
            ((each, side.tenant, side.priority) for each, (side, _) in jobs.items()),
            lambda each: jobs[each][1](),
            lambda each: jobs[each][0].lineage,
        )

    def counts(
        self,
        key: str,
        asks: HarmSide | None,
        victims: Sequence[tuple[str, str]],
        jobs: Candidates,
        now: Nanos,
    ) -> bool:
        """Count a plan if budgets allow it; `victims`: with their rules. False where they do not.

        Then it is to be decided again: of the account that it exceeds only those are allowed that
        fit.
        """
        if not self:
            return True
        plan = [
            Harm(now, self._plane, jobs[each][0], asks, jobs[each][1](), rule, frozenset((each,)))
            for each, rule in victims
        ]
        if self._asking.refusal(key, plan) is not None:
            return False
        for harm in plan:
            self._accounts.record(harm)
        return True
