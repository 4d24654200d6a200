"""Parts are shared, and what a Workload says stays the same."""

from __future__ import annotations

import msgspec

from reprieve.api.kueue import Workload
from reprieve.planes.quota.shared_parts import SharedParts


def workload(number: int, cpu: str = "1") -> Workload:
    at = "2026-01-01T00:00:00Z"
    condition = {
        "type": "Admitted",
        "status": "True",
        "reason": "Admitted",
        "message": "The workload is admitted",
        "lastTransitionTime": at,
        "observedGeneration": 1,
    }
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return msgspec.convert(
        {
            "metadata": {
                "name": f"w-{number}",
                "namespace": "team",
                "uid": f"uid-{number}",
                "creationTimestamp": at,
                "labels": {"a": "b"},
            },
            "spec": {
                "queueName": "q",
                "podSets": [{"template": {"spec": {"containers": [container]}}}],
            },
            "status": {
                "conditions": [condition],
                "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main"}]},
            },
        },
        Workload,
    )


def test_what_is_equal_is_kept_once_and_says_the_same() -> None:
    parts = SharedParts()
    first, second, third = (
        parts.workload(each) for each in (workload(1), workload(2), workload(3, cpu="2"))
    )
    assert (first, second, third) == (workload(1), workload(2), workload(3, cpu="2"))
    assert first.spec is second.spec is not third.spec
    assert first.status.admission is third.status.admission
    assert first.metadata.labels is third.metadata.labels
    assert first.status.conditions and second.status.conditions
    assert first.status.conditions[0].message is second.status.conditions[0].message


def test_a_workload_without_anything_is_what_it_was() -> None:
    assert SharedParts().workload(Workload()) == Workload()
