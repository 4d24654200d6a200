from __future__ import annotations

import pytest

from tests.chart.helm import HelmMissing, helm_binary


@pytest.fixture(autouse=True, scope="session")
def helm() -> None:
    try:
        helm_binary()
    except HelmMissing as missing:
        pytest.skip(str(missing))
