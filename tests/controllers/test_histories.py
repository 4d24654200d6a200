"""No plane decides before the displacements that former processes recorded are known."""

from __future__ import annotations

from kubeworld.units.durations import MINUTE
from reprieve.engine.plan import Plane
from reprieve.planes.common.histories import Histories


def test_all_planes_that_start_are_waited_for() -> None:
    histories = Histories()
    assert histories.missing(0) == ""
    for plane in (Plane.IDLE, Plane.QUOTA):
        histories.begins(plane, 5)
    histories.known(Plane.IDLE)
    assert histories.missing(6) == "displacements recorded by the quota plane are not known yet"
    histories.known(Plane.QUOTA)
    assert histories.missing(7) == ""


def test_a_plane_that_does_not_start_delays_the_others_for_a_minute() -> None:
    histories = Histories()
    histories.begins(Plane.QUOTA, 5)
    assert histories.missing(5 + MINUTE - 1)
    assert histories.missing(5 + MINUTE) == ""
    histories.begins(Plane.QUOTA, 2 * MINUTE)
    assert histories.missing(2 * MINUTE), "it leads once more"
