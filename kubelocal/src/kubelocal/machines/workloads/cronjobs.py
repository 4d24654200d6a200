"""The CronJob controller: Jobs at the times of a schedule.

Source: `batch/v1` CronJobs: time zones, suspend, concurrency policies, startingDeadlineSeconds and
the limits of history. Of several times that were missed the last one counts. A Job is named after
its time in minutes, so that none is made twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import AlreadyThere, Change, Object
from kubelocal.machines.workloads.replicas import by_controller, same_status
from kubeworld.objects.conditions import condition
from kubeworld.objects.owners import child
from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant

__all__ = ["CronJobController"]

_CRON_JOBS: Final = "cronjobs.batch"
_JOBS: Final = "jobs.batch"
_SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class CronJobController:
    """Runs CronJobs."""

    name = "cronjobs"

    def __init__(self, informer: Informer, clock: Clock, recorder: Recorder) -> None:
        self._informer = informer
        self._clock = clock
        self._recorder = recorder

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        return by_controller(change, _CRON_JOBS, "CronJob", _JOBS)

    async def reconcile(self, key: Key) -> int | None:
        owner = self._informer.at(key)
        if owner is None or owner["metadata"].get("deletionTimestamp"):
            return None
        status: dict[str, Any] = dict(owner.get("status") or {})
        jobs = list(self._informer.controlled(owner["metadata"]["uid"], _JOBS))
        await self._forget_history(owner, jobs)
        rest: int | None = None
        if not owner["spec"].get("suspend"):
            try:
                last, following = self._times(owner["spec"])
            except (CronSimError, ZoneInfoNotFoundError, StopIteration, ValueError) as problem:
                text = f"unparseable schedule {owner['spec'].get('schedule')!r}: {problem}"
                self._recorder.warning(owner, "UnparseableSchedule", text)
            else:
                rest = following - self._clock.wall()
                since = status.get("lastScheduleTime") or owner["metadata"]["creationTimestamp"]
                if last > parse_instant(since) and await self._start(owner, jobs, last):
                    status["lastScheduleTime"] = format_instant(last)
        await self._report(owner, status)
        return rest

    def _times(self, spec: dict[str, Any]) -> tuple[Nanos, Nanos]:
        """Return the last time of the schedule up to now and the next one."""
        schedule = _MACROS.get(spec["schedule"], spec["schedule"])
        zone = ZoneInfo(spec["timeZone"]) if spec.get("timeZone") else UTC
        now = datetime.fromtimestamp(self._clock.wall() // SECOND, zone)
        last = next(CronSim(schedule, now + timedelta(seconds=1), reverse=True))
        following = next(CronSim(schedule, now))
        return Nanos(int(last.timestamp()) * SECOND), Nanos(int(following.timestamp()) * SECOND)

    async def _start(self, owner: Object, jobs: list[Object], time: Nanos) -> bool:
        """Make the Job of this time unless something speaks against it; whether it was made."""
        spec = owner["spec"]
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and self._clock.wall() - time > int(deadline) * SECOND:
            text = f"Missed scheduled time to start a job: {format_instant(time)}"
            self._recorder.warning(owner, "MissSchedule", text)
            return False
        active = [job for job in jobs if not _outcome(job)]
        policy = spec.get("concurrencyPolicy")
        if active and policy == "Forbid":
            text = "Not starting job because prior execution is running and concurrency policy is "
            self._recorder.normal(owner, "JobAlreadyActive", f"{text}Forbid")
            return False
        for job in active if policy == "Replace" else ():
            await self._informer.delete(_JOBS, job)
        name = f"{owner['metadata']['name']}-{time // (60 * SECOND)}"
        annotations = {_SCHEDULED: format_instant(time)}
        try:
            await self._informer.create(
                _JOBS,
                child(owner, "batch/v1", "Job", name, spec["jobTemplate"], annotations=annotations),
            )
        except AlreadyThere:
            return True
        self._recorder.normal(owner, "SuccessfulCreate", f"Created job {name}")
        return True

    async def _forget_history(self, owner: Object, jobs: list[Object]) -> None:
        for outcome, field, usual in (
            ("Complete", "successfulJobsHistoryLimit", 3),
            ("Failed", "failedJobsHistoryLimit", 1),
        ):
            limit = owner["spec"].get(field, usual)
            ended = [job for job in jobs if _outcome(job) == outcome]
            ended.sort(
                key=lambda job: (job["metadata"]["creationTimestamp"], job["metadata"]["name"])
            )
            for job in ended[: max(0, len(ended) - limit)]:
                await self._informer.delete(_JOBS, job)
                text = f"Deleted job {job['metadata']['name']}"
                self._recorder.normal(owner, "SuccessfulDelete", text)

    async def _report(self, owner: Object, status: dict[str, Any]) -> None:
        jobs = list(self._informer.controlled(owner["metadata"]["uid"], _JOBS))
        status["active"] = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": job["metadata"].get("namespace", ""),
                "name": job["metadata"]["name"],
                "uid": job["metadata"]["uid"],
            }
            for job in jobs
            if not _outcome(job)
        ]
        ends = [(job.get("status") or {}).get("completionTime") for job in jobs]
        known = [end for end in [*ends, status.get("lastSuccessfulTime")] if end]
        if known:
            status["lastSuccessfulTime"] = max(known)
        if not status["active"]:
            del status["active"]
        if not same_status(owner, status):
            fresh = self._informer.at(key_of(_CRON_JOBS, owner)) or owner
            await self._informer.update(
                _CRON_JOBS, {**fresh, "status": status}, subresource="status"
            )


def _outcome(job: Object) -> str:
    """Return Complete or Failed, empty while the Job is active."""
    for kind in ("Complete", "Failed"):
        found = condition(job, kind)
        if found is not None and found["status"] == "True":
            return kind
    return ""
