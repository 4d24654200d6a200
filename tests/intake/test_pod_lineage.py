"""The lineage of a pod is that of its party, however it is found."""

from __future__ import annotations

import pytest

from reprieve.engine.cluster.rows import PodRow
from reprieve.intake.lineage import pod_lineage, pod_party
from tests.engine.builders import pod


@pytest.mark.parametrize(
    "row",
    [pod("a", controller="job-1"), pod("b"), pod("c", labels={"reprieve.dev/lineage": "x"})],
    ids=["owned", "alone", "labelled"],
)
def test_a_pods_lineage_is_that_of_its_party(row: PodRow) -> None:
    assert pod_lineage(row) == pod_party(row).lineage
