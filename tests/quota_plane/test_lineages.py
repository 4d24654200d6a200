"""A Workload's lineage is read from its spec once, and anew when that is another one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from reprieve.api.kueue import Workload
from reprieve.intake.lineage import workload_participant, workload_template
from reprieve.planes.quota.job_reconciler.lineages import Lineages

_NO_JOBS: Any = SimpleNamespace(jobs={})


def _workload(cpu: int, generation: int, uid: str = "u") -> Workload:
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    spec = {
        "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]
    }
    metadata = {"name": "w", "namespace": "team", "uid": uid, "generation": generation}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Workload)


def test_a_spec_is_taken_apart_once_for_each_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def counted(workload: Workload) -> str:
        read.append(workload.metadata.generation)
        return workload_template(workload)

    monkeypatch.setattr("reprieve.planes.quota.job_reconciler.lineages.workload_template", counted)
    lineages = Lineages(cast("Any", _NO_JOBS))
    first, changed, other = _workload(1, 1), _workload(2, 2), _workload(2, 1, "another")
    for each in (first, first, _workload(1, 1), changed, changed, other):
        assert lineages.of(each) == workload_participant(each, "", "")
    assert read == [1, 2, 1]
    assert lineages.of(first).weak != lineages.of(changed).weak


def test_without_a_generation_a_spec_is_read_each_time() -> None:
    lineages = Lineages(cast("Any", _NO_JOBS))
    for cpu in (1, 2, 1):
        each = _workload(cpu, 0)
        assert lineages.of(each) == workload_participant(each, "", "")
