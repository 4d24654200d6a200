"""By when something has to have happened to a Workload.

* its pods are ready, first after the admission and again after one was lost
* an admitted Workload has run for as long as it may, over all its admissions
* a finished Workload, and the job of one that was deactivated for it, have been kept long enough

Pure: a Workload and rules in, an instant out. Source: specification of the quota plane, section
1.6; the reference's retention of objects.
"""

from __future__ import annotations

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.kueue import Workload
from reprieve.intake.quota_workloads import condition_of, is_true
from reprieve.planes.quota.workload_status.transitions import DEACTIVATED
from reprieve.settings.quota_configuration_parts import PodsReady

__all__ = ["deactivated_until", "finished_until", "pods_ready_until", "runs_until"]


def pods_ready_until(workload: Workload, rules: PodsReady | None) -> tuple[str, Nanos] | None:
    """Return until when pods are waited for, and what for; None where they are not.

    What for is the reason of the condition `PodsReady`, and the cause of the eviction.
    """
    admitted = condition_of(workload.status.conditions, "Admitted")
    ready = condition_of(workload.status.conditions, "PodsReady")
    if rules is None or not is_true(admitted) or is_true(ready):
        return None
    if ready is not None and ready.reason == "WaitForRecovery":
        # A recovery timeout of zero waits forever.
        if not rules.recovery_s:
            return None
        return ready.reason, _after(ready.last_transition_time, rules.recovery_s)
    return "WaitForStart", _after(admitted.last_transition_time, rules.timeout_s)


def runs_until(workload: Workload) -> Nanos | None:
    """Return until when an admitted Workload may run; None where it may run forever."""
    most = workload.spec.maximum_execution_time_seconds
    admitted = condition_of(workload.status.conditions, "Admitted")
    if most is None or not is_true(admitted):
        return None
    spent = workload.status.accumulated_past_execution_time_seconds or 0
    return _after(admitted.last_transition_time, most - spent)


def finished_until(workload: Workload, kept_s: float | None) -> Nanos | None:
    """Return until when a finished Workload is kept; None is forever."""
    finished = condition_of(workload.status.conditions, "Finished")
    if kept_s is None or not is_true(finished):
        return None
    return _after(finished.last_transition_time, kept_s)


def deactivated_until(workload: Workload, kept_s: float | None) -> Nanos | None:
    """Return until when the job of a Workload that was deactivated for it is kept.

    None is forever: also where a person deactivated it.
    """
    eviction = condition_of(workload.status.conditions, "Evicted")
    if kept_s is None or workload.spec.active or not is_true(eviction):
        return None
    if not eviction.reason.startswith(f"{DEACTIVATED}DueTo"):
        return None
    return _after(eviction.last_transition_time, kept_s)


def _after(instant: str, seconds: float) -> Nanos:
    return Nanos(parse_instant(instant) + round(seconds * SECOND))
