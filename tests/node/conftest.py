"""A cluster with real kubelets for all stories, and one release of the chart on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.build import build_image, image_is_current
from tests.node.cluster import Cluster
from tests.node.machine import missing
from tests.node.release import Release


@pytest.fixture(scope="module")
def cluster(kubectl: Path) -> Iterator[Cluster]:
    if lacking := missing():
        pytest.skip(lacking)
    if not image_is_current():
        build_image()
    folder = Path(tempfile.mkdtemp(prefix="reprieve-node-"))
    found = Cluster(folder, kubectl)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Release:
    found = Release(cluster)
    found.helm("install", "--create-namespace", "--wait", "--timeout", "5m")
    return found
