"""The lineage of a pod is that of its participant, however it is found."""

from __future__ import annotations

import pytest

from reprieve.engine.cluster.rows import PodRow
from reprieve.intake.lineage import pod_lineage, pod_participant, unlinked_participant
from reprieve.records.plans.at_stake import lineage_of
from tests.engine.builders import pod

_LABEL = {"reprieve.dev/lineage": "x"}

pods = pytest.mark.parametrize(
    "row",
    [
        pod("a", controller="job-1"),
        pod("b"),
        pod("c", labels=_LABEL),
        pod("d", labels=_LABEL, controller="job-1"),
    ],
    ids=["owned", "alone", "labelled", "owned and labelled"],
)


@pods
def test_a_pods_lineage_is_that_of_its_participant(row: PodRow) -> None:
    assert pod_lineage(row) == pod_participant(row).lineage


@pods
def test_a_pod_that_runs_is_called_as_its_participant_is(row: PodRow) -> None:
    assert lineage_of(unlinked_participant(row)) == lineage_of(pod_participant(row))
