"""Which pods of a cluster are of the same kind as one that waits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from reprieve.cli.sessions.deciding import deciders_of
from reprieve.whatif.questions.similar import Alike, pod_cases, size_class
from tests.whatif.plan_stories import Object, pod
from tests.whatif.test_kinds import snapshot

#: Priority as an object says it, what else it says, and how it is written.
WRITTEN = [
    ({"priority": 100}, {}, None),
    ({"priority": 100}, {}, 2),
    ({"priority": 10}, {}, None),
    ({"priority": 1000}, {}, None),
    ({"priority": 0}, {}, None),
    ({}, {}, None),
    ({}, {"labels": {"priority": "100"}}, None),
    ({"priority": 100}, {"labels": {"priority": "7"}}, None),
    ({"priority": 100}, {"annotations": {"was": '{"spec":{"priority":7}}'}}, None),
    ({}, {"annotations": {"was": '{"spec":{"priority":100}}'}}, None),
    ({"priority": -100}, {}, None),
]


def waited(number: int) -> Object:
    """Return a pod that waited for so many minutes, with a priority and more as `WRITTEN` says."""
    spec, metadata, _ = WRITTEN[number]
    until = f"2026-01-01T00:{number + 1:02}:00Z"
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": until}
    found = pod(f"pod-{number}", 8, "low", nodeName="gone")
    found["spec"].pop("priority", None)
    found["spec"] |= spec
    found["metadata"] |= metadata
    return found | {"status": {"phase": "Running", "conditions": [condition]}}


@pytest.mark.parametrize("priority", [100, 10, 1000, 0, -100, 7])
def test_a_pod_counts_by_its_own_priority_however_it_is_written(priority: int) -> None:
    there = snapshot(deciders_of("scheduling", (), {}), *map(waited, range(len(WRITTEN))))
    listed = there.kinds["", "pods"]
    objects = {
        key: json.dumps(json.loads(raw), indent=WRITTEN[number][2]).encode()
        if WRITTEN[number][2]
        else raw
        for number, (key, raw) in enumerate(listed.objects.items())
    }
    there = replace(there, kinds={**there.kinds, ("", "pods"): replace(listed, objects=objects)})
    alike = Alike("default-scheduler", priority, size_class({"nvidia.com/gpu": 8}))
    minutes = {each.wait // 60_000_000_000 for each in pod_cases(there, alike)}
    assert minutes == {
        number + 1
        for number, (spec, _, _) in enumerate(WRITTEN)
        if spec.get("priority", 0) == priority
    }
