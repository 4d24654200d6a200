"""Faults on a real control plane, judged by its audit log: kills, dropped watches, all planes.

Those of `python -m tests.reliability`, a few times each; more of them are played by hand.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.reliability.__main__ import is_wrong, play
from tests.reliability.faults import FAULTS


@pytest.mark.slow
@pytest.mark.usefixtures("with_pod_groups", "controllers")
@pytest.mark.parametrize(
    ("name", "plane", "times", "seconds"),
    [
        # At each of two moments of a plan of 200: the record received, the record answered.
        ("plan-api-server-killed", "scheduling", 2, 0),
        # And after 5 deletions.
        ("plan-operator-killed", "scheduling", 3, 0),
        ("operator-killed", "quota", 3, 0),
        ("watches-cut", "scheduling", 1, 30),
        ("watches-cut", "quota", 1, 30),
    ],
)
async def test_a_fault_does_no_harm_on_a_real_control_plane(
    name: str, plane: str, times: int, seconds: float, tmp_path: Path
) -> None:
    fault = replace(FAULTS[name], times=times, seconds=seconds or FAULTS[name].seconds)
    said = await play(name, fault, plane, tmp_path)
    assert not is_wrong(said), said
