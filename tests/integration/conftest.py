"""Tests that want a `site` run on a real cluster where there is one, else on the embedded one.

Where both are possible, what runs on the embedded one is slow: it is run by hand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from reprieve.scenarios.embedded import OPERATOR_USER
from tests.integration.audited_planes import audited_plane
from tests.integration.control_plane import (
    ADMINISTRATOR,
    Binaries,
    ControlPlane,
    NoBinaries,
    control_plane,
    find_binaries,
)
from tests.integration.site import Site, embedded_site, real_site

# Long enough for a loaded machine to renew, short enough to wait out after a crash.
LEASE = ("--lease-duration", "10s")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    try:
        find_binaries()
    except NoBinaries:
        return
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and call.params.get("site") == "embedded":
            item.own_markers[:] = [each for each in item.own_markers if each.name != "thorough"]
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """Skip a test where there is no real control plane."""
    try:
        return find_binaries()
    except NoBinaries as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def controllers(binaries: Binaries) -> Binaries:
    """Skip a test where nobody but us would play the controllers of Jobs and of pods."""
    if binaries.controller_manager is None:
        pytest.skip(f"no kube-controller-manager beside {binaries.apiserver}")
    return binaries


@pytest.fixture(scope="session")
def with_pod_groups(binaries: Binaries) -> Binaries:
    """Skip a test where the API server is too old for its kinds."""
    if binaries.release < (1, 37):
        pytest.skip(f"{binaries.version}: PodGroups of scheduling.k8s.io/v1beta1 come with 1.37")
    return binaries


@pytest.fixture
def audited(controllers: Binaries, tmp_path: Path) -> Iterator[ControlPlane]:
    """Return a control plane with controllers that logs what the operator requests."""
    with audited_plane(controllers, tmp_path) as plane:
        yield plane


@pytest.fixture(scope="session")
def with_alpha_pod_groups(binaries: Binaries) -> Binaries:
    """Skip a test where the API server has no version of them that we know."""
    if binaries.release < (1, 36):
        pytest.skip(f"{binaries.version}: PodGroups of scheduling.k8s.io/v1alpha2 come with 1.36")
    return binaries


@pytest.fixture(scope="session")
def real_cluster(
    binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """One control plane for all tests."""
    users = {ADMINISTRATOR: "system:masters", OPERATOR_USER: "operators"}
    with control_plane(binaries, tmp_path_factory.mktemp("control-plane"), users) as running:
        yield running


@pytest.fixture
def release(site: Site) -> tuple[int, int]:
    """Return the minor release whose rules the site has; the embedded cluster has those of 1.37."""
    return (1, 37) if site.name == "embedded" else find_binaries().release


@pytest.fixture(params=["embedded", "real"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    if request.param == "embedded":
        async with embedded_site(tmp_path, *LEASE) as site:
            yield site
    else:
        plane: ControlPlane = request.getfixturevalue("real_cluster")
        async with real_site(plane, tmp_path, *LEASE) as site:
            yield site
