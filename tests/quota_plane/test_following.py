"""What follows for a Workload from time and configuration alone, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.kueue import Workload
from reprieve.engine.quota.assigning.checks import required_checks
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    Gates,
    LocalQueue,
    ResourceGroup,
    Settings,
    StopPolicy,
)
from reprieve.intake.quota_workloads import PodSetRows, workload_row
from reprieve.planes.quota.workload_status.deadlines import (
    deactivated_until,
    finished_until,
    pods_ready_until,
    runs_until,
)
from reprieve.planes.quota.workload_status.following import followed
from reprieve.settings.quota_configuration_parts import PodsReady

NOON = "2026-03-04T12:00:00Z"
NOW = parse_instant(NOON)
RULES = PodsReady(300, 120, block_admission=False)


def condition(kind: str, status: str, reason: str = "ByTest", message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": NOON,
    }


def workload(*conditions: dict[str, Any], status: Any = None, **spec: Any) -> Workload:
    """Return a Workload of LocalQueue `q` with these conditions."""
    return msgspec.convert(
        {
            "metadata": {"name": "w", "namespace": "team", "creationTimestamp": NOON},
            "spec": {"podSets": [{"name": "main", "count": 1}], "queueName": "q", **spec},
            "status": {"conditions": list(conditions), **(status or {})},
        },
        Workload,
    )


def configuration(stop: StopPolicy = StopPolicy.NONE, *, observed: bool = True) -> Configuration:
    gates = Gates(unadmitted_workloads_observability=observed)
    return Configuration(
        cluster_queues={"cq": ClusterQueue("cq")},
        local_queues={"team/q": LocalQueue("team/q", "cq", stop)},
        settings=Settings(gates=gates),
    )


def after(found: Workload, given: Configuration, now: Nanos = NOW) -> dict[str, tuple[str, ...]]:
    """Return what the conditions say afterwards."""
    row = workload_row(found, PodSetRows())
    changed = followed(found, row, given, (), now)
    return {
        each.type: (each.status, each.reason, each.message)
        for each in changed.status.conditions or ()
    }


def test_pods_are_waited_for_from_the_admission_and_from_their_loss() -> None:
    admitted = condition("Admitted", "True")
    start = condition("PodsReady", "False", "WaitForStart")
    lost = condition("PodsReady", "False", "WaitForRecovery")
    assert pods_ready_until(workload(admitted), RULES) == ("WaitForStart", NOW + 300 * SECOND)
    assert pods_ready_until(workload(admitted, start), RULES) == (
        "WaitForStart",
        NOW + 300 * SECOND,
    )
    assert pods_ready_until(workload(admitted, lost), RULES) == (
        "WaitForRecovery",
        NOW + 120 * SECOND,
    )
    for recovery in (None, 0.0):
        patient = replace(RULES, recovery_s=recovery)
        assert pods_ready_until(workload(admitted, lost), patient) is None
    ready = condition("PodsReady", "True", "Started")
    assert pods_ready_until(workload(admitted, ready), RULES) is None
    assert pods_ready_until(workload(start), RULES) is None
    assert pods_ready_until(workload(admitted), None) is None


def test_a_run_ends_when_its_admissions_together_took_too_long() -> None:
    admitted = condition("Admitted", "True")
    spent = {"accumulatedPastExecutionTimeSeconds": 40}
    limited = {"maximumExecutionTimeSeconds": 100}
    assert runs_until(workload(admitted, status=spent, **limited)) == NOW + 60 * SECOND
    assert runs_until(workload(admitted, **limited)) == NOW + 100 * SECOND
    assert runs_until(workload(admitted)) is None
    assert runs_until(workload(**limited)) is None


def test_what_is_over_is_kept_only_where_that_was_asked_for() -> None:
    finished = workload(condition("Finished", "True"))
    assert finished_until(finished, 60) == NOW + 60 * SECOND
    assert finished_until(finished, None) is None
    assert finished_until(workload(), 60) is None
    ours = condition("Evicted", "True", "DeactivatedDueToRequeuingLimitExceeded")
    assert deactivated_until(workload(ours, active=False), 0) == NOW
    assert deactivated_until(workload(ours, active=True), 0) is None
    assert deactivated_until(workload(ours, active=False), None) is None
    # A person who deactivates a workload wants it kept.
    theirs = condition("Evicted", "True", "Deactivated")
    assert deactivated_until(workload(theirs, active=False), 0) is None


@pytest.mark.parametrize(
    ("stop", "observed", "wanted"),
    [
        (StopPolicy.HOLD, True, ("False", "Suspended", "LocalQueue q is inactive")),
        (StopPolicy.HOLD, False, ("False", "Inadmissible", "LocalQueue q is inactive")),
    ],
)
def test_a_workload_says_what_holds_it_back_and_that_it_is_over(
    stop: StopPolicy, observed: bool, wanted: tuple[str, str, str]
) -> None:
    assert after(workload(), configuration(stop, observed=observed))["QuotaReserved"] == wanted
    held = workload(condition("QuotaReserved", *wanted))
    open_again = after(held, configuration(observed=observed))["QuotaReserved"]
    text = "Workload is pending evaluation in the scheduling queue"
    if observed:
        assert open_again == ("False", "PendingEvaluation", text)
    # What a cycle has said, or another controller, stays.
    for reason in ("WaitingForQuota", "OnHold", "Misconfigured"):
        said = ("False", reason, "as it was")
        found = workload(condition("QuotaReserved", *said))
        assert after(found, configuration(observed=observed))["QuotaReserved"] == said


def test_who_was_put_off_is_queued_again_when_the_reason_is_over() -> None:
    later = Nanos(NOW + 61 * SECOND)
    waits = {"requeueState": {"count": 1, "requeueAt": "2026-03-04T12:01:00Z"}}
    timeout = workload(condition("Requeued", "False", "PodsReadyTimeout"), status=waits)
    assert after(timeout, configuration())["Requeued"][0] == "False"
    assert after(timeout, configuration(), later)["Requeued"] == (
        "True",
        "BackoffFinished",
        "The workload backoff was finished",
    )
    stopped = workload(condition("Requeued", "False", "LocalQueueStopped"))
    assert after(stopped, configuration(StopPolicy.HOLD))["Requeued"][0] == "False"
    assert after(stopped, configuration())["Requeued"][:2] == ("True", "LocalQueueRestarted")
    preempted = workload(condition("Requeued", "False", "Preempted"))
    assert after(preempted, configuration(), later)["Requeued"][0] == "False"


def test_checks_apply_by_the_flavors_that_were_assigned() -> None:
    flavors = tuple(FlavorQuotas(name, {}) for name in ("plain", "spot"))
    queue = ClusterQueue(
        "cq",
        groups=(ResourceGroup(("cpu",), flavors),),
        checks=("budget", "nodes", "both"),
        checks_on_flavors={"budget": (), "nodes": ("spot",), "both": ("plain", "spot")},
    )

    def assigned(flavor: str) -> Admission:
        return Admission("cq", (AdmittedPodSet("main", 1, {"cpu": flavor}, {"cpu": 1}),))

    assert required_checks(queue) == ("both", "budget")
    assert required_checks(queue, assigned("plain")) == ("both", "budget")
    assert required_checks(queue, assigned("spot")) == ("both", "budget", "nodes")
