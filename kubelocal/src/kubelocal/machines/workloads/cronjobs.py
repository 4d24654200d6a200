"""The CronJob controller: Jobs at the times of a schedule.

Source: `batch/v1` CronJobs: time zones, suspend, concurrency policies, startingDeadlineSeconds and
the limits of history. Of several times that were missed the last one counts. A Job is named after
its time in minutes, so that none is made twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from kubelocal.machines.objects import Object
from kubeworld.controllers.acts import Act, Create, Delete, Event, Outcome, Suffix
from kubeworld.controllers.replicas import with_status
from kubeworld.objects.conditions import condition
from kubeworld.objects.owners import child
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant

__all__ = ["step"]

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


def step(owner: Object, jobs: Sequence[Object], now: Nanos, suffix: Suffix) -> Outcome:
    """Return what a CronJob does next; `jobs`: those that it made."""
    acts = list(_forgotten(owner, jobs))
    deleted = [act.object for act in acts if isinstance(act, Delete)]
    status: dict[str, Any] = {}
    rest: int | None = None
    if not owner["spec"].get("suspend"):
        try:
            last, following = _times(owner["spec"], now)
        except (CronSimError, ZoneInfoNotFoundError, StopIteration, ValueError) as problem:
            text = f"unparseable schedule {owner['spec'].get('schedule')!r}: {problem}"
            acts.append(Event("UnparseableSchedule", text, warning=True))
        else:
            rest = following - now
            before = (owner.get("status") or {}).get("lastScheduleTime")
            if last > parse_instant(before or owner["metadata"]["creationTimestamp"]):
                started = list(_started(owner, jobs, last, now))
                acts += started
                if any(isinstance(act, Create) for act in started):
                    status["lastScheduleTime"] = format_instant(last)
    status |= _counted(owner, [job for job in jobs if job not in deleted])
    return Outcome(with_status(acts, owner, status), rest)


def _times(spec: dict[str, Any], now: Nanos) -> tuple[Nanos, Nanos]:
    """Return the last time of the schedule up to now and the next one."""
    schedule: str = _MACROS.get(spec["schedule"], spec["schedule"])
    zone = ZoneInfo(spec["timeZone"]) if spec.get("timeZone") else UTC
    second = datetime.fromtimestamp(now // SECOND, zone)
    last = next(CronSim(schedule, second + timedelta(seconds=1), reverse=True))
    following = next(CronSim(schedule, second))
    return Nanos(int(last.timestamp()) * SECOND), Nanos(int(following.timestamp()) * SECOND)


def _started(owner: Object, jobs: Sequence[Object], time: Nanos, now: Nanos) -> Iterator[Act]:
    """Make the Job of this time unless something speaks against it."""
    spec = owner["spec"]
    deadline = spec.get("startingDeadlineSeconds")
    if deadline is not None and now - time > int(deadline) * SECOND:
        text = f"Missed scheduled time to start a job: {format_instant(time)}"
        yield Event("MissSchedule", text, warning=True)
        return
    active = [job for job in jobs if not _outcome(job)]
    policy = spec.get("concurrencyPolicy")
    if active and policy == "Forbid":
        text = "Not starting job because prior execution is running and concurrency policy is "
        yield Event("JobAlreadyActive", f"{text}Forbid")
        return
    yield from (Delete(job) for job in active if policy == "Replace")
    name = f"{owner['metadata']['name']}-{time // (60 * SECOND)}"
    notes = {_SCHEDULED: format_instant(time)}
    yield Create(child(owner, "batch/v1", "Job", name, spec["jobTemplate"], annotations=notes))
    yield Event("SuccessfulCreate", f"Created job {name}")


def _forgotten(owner: Object, jobs: Sequence[Object]) -> Iterator[Act]:
    for outcome, field, usual in (
        ("Complete", "successfulJobsHistoryLimit", 3),
        ("Failed", "failedJobsHistoryLimit", 1),
    ):
        limit = owner["spec"].get(field, usual)
        ended = [job for job in jobs if _outcome(job) == outcome]
        ended.sort(key=lambda job: (job["metadata"]["creationTimestamp"], job["metadata"]["name"]))
        for job in ended[: max(0, len(ended) - limit)]:
            yield Delete(job)
            yield Event("SuccessfulDelete", f"Deleted job {job['metadata']['name']}")


def _counted(owner: Object, jobs: Sequence[Object]) -> Object:
    active = [
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
    earlier = (owner.get("status") or {}).get("lastSuccessfulTime")
    known = [end for end in [*ends, earlier] if end]
    return {"active": active or None, **({"lastSuccessfulTime": max(known)} if known else {})}


def _outcome(job: Object) -> str:
    """Return Complete or Failed, empty while the Job is active."""
    for kind in ("Complete", "Failed"):
        found = condition(job, kind)
        if found is not None and found["status"] == "True":
            return kind
    return ""
