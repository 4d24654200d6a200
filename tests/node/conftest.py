"""A cluster with real kubelets for all stories, and one release of the chart on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.node.build import build_image, image_is_current
from tests.node.cluster import Cluster, Machine
from tests.node.machine import IMAGE, missing
from tests.node.release import Release
from tests.node.work import WORKERS


@pytest.fixture(scope="module")
def images() -> Sequence[Path]:
    """The archives of images that each node has."""
    return (IMAGE,)


@pytest.fixture(scope="module")
def machine() -> Machine:
    """What each node has."""
    return Machine()


@pytest.fixture(scope="module")
def cluster(kubectl: Path, images: Sequence[Path], machine: Machine) -> Iterator[Cluster]:
    if lacking := missing():
        pytest.skip(lacking)
    if not image_is_current():
        build_image()
    folder = Path(tempfile.mkdtemp(prefix="reprieve-node-"))
    found = Cluster(folder, kubectl, images, machine)
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


@pytest.fixture
def space(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one story, which takes everything with it."""
    name = f"story-{abs(hash(request.node.name)) % 10**6}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    # Nobody looks at how the rest saves.
    cluster.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=1", "--wait=false")
    cluster.kubectl("delete", "namespace", name, "--wait", "--timeout=180s")
    for worker in WORKERS:
        worker.said()
    WORKERS.clear()


@pytest.fixture(scope="module")
def classes(cluster: Cluster) -> None:
    for name, value in (("low", 100), ("high", 1000)):
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        cluster.apply({**made, "metadata": {"name": name}})
