"""What a tenant reads of repeated displacement is what the operator has chosen."""

from __future__ import annotations

import pytest

from kubeworld.units.durations import HOUR
from reprieve.engine.disruptions.questions import Enforcement
from reprieve.wording.displacements import repeated_text


@pytest.mark.parametrize(
    ("enforcement", "said"),
    [
        (Enforcement.TOLD, "that is reported, and does not protect it"),
        (Enforcement.EQUALS, "for a time it is not preempted for work without a higher priority"),
        (Enforcement.ALL, "for a time it is preempted for emergencies alone"),
    ],
)
def test_repeated_displacement_is_said_with_what_it_protects_from(
    enforcement: Enforcement, said: str
) -> None:
    expected = f"this lineage was displaced 3 times within 1h0m0s: {said}"
    assert repeated_text(3, HOUR, enforcement) == expected
