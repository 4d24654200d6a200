"""Tests that want a `site` run on the embedded cluster, and on a real one where there is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from reprieve.scenarios.embedded import OPERATOR_USER
from tests.integration.control_plane import (
    ADMINISTRATOR,
    ControlPlane,
    NoBinaries,
    control_plane,
    find_binaries,
)
from tests.integration.site import Site, embedded_site, real_site

# Long enough for a loaded machine to renew, short enough to wait out after a crash.
LEASE = ("--lease-duration", "10s")


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One control plane for all tests."""
    try:
        binaries = find_binaries()
    except NoBinaries as missing:
        pytest.skip(str(missing))
    users = {ADMINISTRATOR: "system:masters", OPERATOR_USER: "operators"}
    with control_plane(binaries, tmp_path_factory.mktemp("control-plane"), users) as running:
        yield running


@pytest.fixture(params=["embedded", "real"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    if request.param == "embedded":
        async with embedded_site(tmp_path, *LEASE) as site:
            yield site
    else:
        plane: ControlPlane = request.getfixturevalue("real_cluster")
        async with real_site(plane, tmp_path, *LEASE) as site:
            yield site
