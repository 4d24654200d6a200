"""Every reason belongs to a plane, and the first of several in the plane's order is told."""

from __future__ import annotations

import pytest

from reprieve.engine.diagnosis.reasons import REASONS, Reason, dominant
from reprieve.engine.plan import Plane


def test_every_reason_stands_in_the_order_of_a_plane_and_once_in_each() -> None:
    assert set(REASONS) == set(Plane)
    assert {reason for order in REASONS.values() for reason in order} == set(Reason)
    for order in REASONS.values():
        assert len(set(order)) == len(order)


@pytest.mark.parametrize("plane", list(Plane))
def test_the_dominant_reason_depends_on_the_order_alone(plane: Plane) -> None:
    order = REASONS[plane]
    for at, reason in enumerate(order):
        assert dominant(plane, reversed(order[at:])) is reason
    assert dominant(plane, ()) is None


def test_a_reason_of_another_plane_is_refused() -> None:
    with pytest.raises(ValueError):
        dominant(Plane.QUOTA, [Reason.NOBODY_IDLE, Reason.STOPPED])
