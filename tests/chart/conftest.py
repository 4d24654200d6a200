from __future__ import annotations

import pytest

from tests.chart.go_tools import HELM, ToolMissing, tool


@pytest.fixture(autouse=True, scope="session")
def helm() -> None:
    try:
        tool(HELM)
    except ToolMissing as missing:
        pytest.skip(str(missing))
