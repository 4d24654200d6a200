"""Drives the Job controller, and keeps which pods of each Job were counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kubelocal.machines.informer import Key
from kubelocal.machines.objects import Change, ChangeType, Object
from kubelocal.machines.workloads.driver import Driver, Rule, Stage
from kubeworld.controllers import jobs
from kubeworld.controllers.acts import Outcome, Suffix
from kubeworld.controllers.job_tally import Tally
from kubeworld.objects.owners import controller_of
from kubeworld.units.instants import Nanos

__all__ = ["JobController"]

_JOBS: Final = "jobs.batch"


class JobController(Driver):
    """Runs Jobs."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(Rule("jobs", _JOBS, "Job", "pods", self._step), stage)
        self._tallies: dict[str, Tally] = {}

    def selects(self, owner: Object, dependant: Object) -> bool:
        return jobs.selects(owner, dependant)

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        keys = list(super().concerns(change, before))
        if change.type is ChangeType.DELETED:
            if change.resource == _JOBS:
                self._tallies.pop(change.object["metadata"]["uid"], None)
            for key in keys:
                self._count_last(key, change.object)
        return keys

    def _count_last(self, key: Key, pod: Object) -> None:
        """Count a pod that may have left before its Job was looked at."""
        job, owner = self._informer.at(key), controller_of(pod)
        if job is None or owner is None or owner["uid"] != job["metadata"]["uid"]:
            return  # of an earlier Job of that name
        tally = self._tallies.get(job["metadata"]["uid"])
        if tally is not None:
            tally.count([pod], self._clock.wall(), job["spec"].get("podFailurePolicy"))

    def _step(self, job: Object, pods: Sequence[Object], now: Nanos, suffix: Suffix) -> Outcome:
        uid, policy = job["metadata"]["uid"], job["spec"].get("podFailurePolicy")
        tally = self._tallies.get(uid)
        if tally is None:
            started = Tally.started(job.get("status") or {}, pods, now, policy)
            tally = self._tallies[uid] = started
        return jobs.step(job, pods, tally, now, suffix)
