"""The image of `reprieve up`, for people without Python."""

from __future__ import annotations

import pytest

from tests.node.build import run_up
from tests.node.machine import missing

pytestmark = [pytest.mark.slow, pytest.mark.node]


def test_reprieve_up_plays_a_scenario_inside_its_image() -> None:
    if lacking := missing():
        pytest.skip(lacking)
    said = run_up("up", "--headless", "--scenario", "idle-guide", "--for", "60s")
    assert "Open this page: http://127.0.0.1:" in said
    assert said.splitlines()[-1] == "scenario idle-guide: passed"
