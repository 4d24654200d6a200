from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.go_tools import HELM, PROMTOOL, ToolMissing, tool


@pytest.fixture(autouse=True, scope="session")
def helm() -> None:
    try:
        tool(HELM)
    except ToolMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def promtool() -> Path:
    try:
        return tool(PROMTOOL)
    except ToolMissing as missing:
        pytest.skip(str(missing))
