"""Instants of any year are read and written, and none raises."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeworld.units.instants import InvalidInstant, Nanos, format_instant, parse_instant
from reprieve.api import kueue
from reprieve.api.kaiwo import GpuWorkloadStatus
from reprieve.api.scheduling import PodObject
from reprieve.intake.cluster.pods import counted_pod_row
from reprieve.intake.gpuworkloads import status_from_api, status_to_api
from reprieve.intake.lineage import pod_participant, workload_participant

LAST, FIRST = "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("9999-12-31T23:59:59Z", LAST),
        ("10000-01-01T00:00:00Z", LAST),
        ("36812-02-20T00:36:16.5+01:00", LAST),
        ("+1000000-01-01T00:00:00Z", LAST),
        ("0001-01-01T00:00:00Z", FIRST),
        ("0000-01-01T00:00:00Z", FIRST),
        ("-0044-03-15T12:00:00Z", FIRST),
        ("0999-06-01T00:00:00Z", "0999-06-01T00:00:00Z"),
    ],
)
def test_years_outside_of_four_digits_are_the_first_or_the_last_second(
    text: str, written: str
) -> None:
    assert format_instant(parse_instant(text)) == written


@pytest.mark.parametrize("text", ["", "10000", "10000-01-01", "12345-1-1T00:00:00Z", "x" * 5_000])
def test_what_is_no_instant_is_none_in_any_year(text: str) -> None:
    with pytest.raises(InvalidInstant):
        parse_instant(text)


@given(st.integers())
def test_every_number_of_nanoseconds_is_written_and_read_again(number: int) -> None:
    text = format_instant(Nanos(number))
    assert format_instant(parse_instant(text)) == text


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 2**63 - 1))
def test_no_year_of_any_instant_of_an_object_raises(year: int, month: int, grace: int) -> None:
    at = f"{year:04}-{month:02}-03T10:00:00Z"
    said = {"reprieve.dev/last-checkpoint": at, "kueue.x-k8s.io/created-at": at}
    metadata = {
        "name": "x",
        "namespace": "team",
        "uid": "u",
        "creationTimestamp": at,
        "deletionTimestamp": at,
        "annotations": said,
    }
    condition = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "x",
        "message": "",
        "lastTransitionTime": at,
    }
    ended = {"terminated": {"exitCode": 1, "finishedAt": at, "startedAt": at}}
    pod: dict[str, Any] = {
        "metadata": metadata,
        "spec": {"terminationGracePeriodSeconds": grace, "containers": [{"name": "c"}]},
        "status": {
            "startTime": at,
            "conditions": [{**condition, "type": "DisruptionTarget"}],
            "containerStatuses": [{"name": "c", "state": ended, "lastState": ended}],
        },
    }
    row = counted_pod_row(msgspec.convert(pod, PodObject))
    pod_participant(row)
    workload = msgspec.convert(
        {"metadata": metadata, "status": {"conditions": [condition]}}, kueue.Workload
    )
    workload_participant(workload, "", "")
    status = msgspec.convert(
        {"phase": "Idle", "idleSince": at, "finishedAt": at}, GpuWorkloadStatus
    )
    status_to_api(status_from_api(status))
