"""Notice in a replay: which jobs get it before they are preempted, and with what credit.

A study draws which jobs request it (`work.notice: {time: 5m, share: 0.6}`) where the trace does not
state so; a policy allows it by the operator's own key (`quota.notice`, `scheduling.notice`). A job
that is notified saves at once and leaves as soon as it has saved (`work`). Its lineage is the job
itself. With `harmOrder` those jobs of a plan are notified with which the expected loss and the
delay are least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from reprieve.engine.notice.credit import NO_HISTORY, History
from reprieve.engine.notice.expected import NO_TERMS, AtStake, Terms, with_notice
from reprieve.engine.notice.granting import NoticePolicy, granted
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.quota_cluster import key_of
from reprieve.simulation.trace import Job

__all__ = ["NEVER_NOTIFIED", "Asking", "NotifiedJobs"]


@dataclass(frozen=True, slots=True)
class Asking:
    """What is drawn for jobs of a trace that does not state whether they request notice."""

    time: int = 0
    share: float = 1.0

    def drawn(self, job: Job, random: Random) -> Job:
        """Return the job with the notice that it requests; as much is drawn for each."""
        asks = random.random() < self.share
        if job.notice is not None:
            return job
        return replace(job, notice=self.time if asks else 0)


#: No job requests it.
NEVER_NOTIFIED: Final = Asking()


class NotifiedJobs:
    """What jobs are granted under one policy."""

    def __init__(self, policy: PolicySpec) -> None:
        self._policy: NoticePolicy = policy.notice
        self._emergency = policy.governor.emergency_priority
        self._harm_order = policy.settings.harm_order or policy.placing.harm_order
        self._histories: dict[str, History] = {}

    def terms(self, job: Job, save: int, now: int, priority: int | None = None) -> Terms:
        """Return what a job would be granted; `save`: how long its save lasts.

        `priority` of the preemptor, None for one that waits for the default patience.
        """
        urgent = self._emergency
        emergency = priority is not None and urgent is not None and priority >= urgent
        grant = granted(self._policy, (job.notice or 0,), emergency=emergency)
        if not grant.time:
            return NO_TERMS
        history = self._histories.get(key_of(job), NO_HISTORY)
        return Terms(grant.time, save, credit=history.credit(now))

    def notified(self, victims: Mapping[str, AtStake], preemptor: Job | None) -> Mapping[str, int]:
        """Return the notice of each victim of a plan, by its key; one without is evicted now."""
        units: Sequence[AtStake] = tuple(victims.values())
        tells = [each.terms.time > 0 for each in units]
        if self._harm_order:
            tells = list(with_notice(units, 0 if preemptor is None else preemptor.devices))
        return {
            key: each.terms.time
            for (key, each), is_notified in zip(victims.items(), tells, strict=True)
            if is_notified
        }

    def ended(self, job: Job, *, saved: bool) -> None:
        """Record how a notice ended."""
        key = key_of(job)
        self._histories[key] = self._histories.get(key, NO_HISTORY).ended(saved=saved)
