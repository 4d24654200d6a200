"""What the idle plane keeps of a Kueue Workload decides the turn of work that has no pods yet."""

from __future__ import annotations

from reprieve.api import core
from reprieve.engine.idle.vendors import KNOWN_VENDORS
from reprieve.planes.idle.records import kueue_converter


def test_a_workload_keeps_the_priority_that_decides_its_turn() -> None:
    convert = kueue_converter(tuple(KNOWN_VENDORS.values()))
    metadata = core.ObjectMeta(name="train", namespace="team", uid="1", resource_version="7")
    urgent = core.KueueWorkload(metadata, core.KueueWorkloadSpec(priority=1000))
    plain = core.KueueWorkload(metadata, core.KueueWorkloadSpec())
    assert [convert(each).workload.spec.priority for each in (urgent, plain)] == [1000, None]
