"""What a message of a scheduler stands for before the operator's own diagnosis is there."""

from __future__ import annotations

import pytest

from reprieve.answers.conditions import of_pods
from reprieve.answers.unit import Unit

NODES = "0/2 nodes are available: "
HELPLESS = "preemption: 0/2 nodes are available: "


UNHELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


@pytest.mark.parametrize(
    ("refused", "preemption", "reason"),
    [
        ("2 Insufficient amd.com/gpu", f"2 {UNHELPFUL}", "NoNodeMatches"),
        ("2 Insufficient cpu", f"1 {NO_VICTIMS}, 1 {UNHELPFUL}", "Full"),
        # Whether preemption helps on the other node is not stated.
        ("2 Insufficient cpu", f"1 {UNHELPFUL}", ""),
        # No peer preempts for devices of claims, of whatever size.
        ("2 cannot allocate all claims", f"2 {UNHELPFUL}", ""),
    ],
)
def test_a_request_that_no_eviction_helps_fits_no_node(
    refused: str, preemption: str, reason: str
) -> None:
    message = f"{NODES}{refused}. {HELPLESS}{preemption}."
    said = {"type": "PodScheduled", "status": "False", "message": message}
    pod = {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {},
        "status": {"conditions": [said]},
    }
    found = of_pods(Unit(asked={"kind": "Pod", **pod}), [pod], groups_known=False).diagnosis
    assert ("" if found is None else found.reason.value) == reason
