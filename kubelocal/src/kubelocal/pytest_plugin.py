"""Fixtures that pytest finds by itself: `kubelocal_cluster` and `kubelocal_kubectl`.

`@pytest.mark.kubelocal(nodes=2, gpus=8)` gives the fields of `kubelocal.running.Settings` for one
test. Nothing of the server is imported before a test requests it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kubelocal.running import Running

__all__ = ["kubelocal_cluster", "kubelocal_kubectl"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "kubelocal(nodes=1, gpus=0, ...): settings of the cluster of one test"
    )


@pytest.fixture
def kubelocal_cluster(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A cluster of the test's own; `url` and `kubeconfig` state where."""
    from kubelocal.running import Settings, running_in_thread

    marker = request.node.get_closest_marker("kubelocal")
    settings = Settings(**marker.kwargs) if marker is not None else Settings()
    with running_in_thread(settings) as cluster:
        yield cluster


@pytest.fixture
def kubelocal_kubectl(kubelocal_cluster: Running) -> Callable[..., str]:
    """Runs the real kubectl on the cluster and returns what it prints; skips where there is none.

    `kubelocal_kubectl("get", "pods")`; `stdin` is what `-f -` reads. It raises
    `subprocess.CalledProcessError` where kubectl does not end with 0.
    """
    binary = os.environ.get("KUBECTL") or shutil.which("kubectl")
    if binary is None:
        pytest.skip("no kubectl: set $KUBECTL, or put one on PATH")

    def run(*arguments: str, stdin: str | None = None) -> str:
        return subprocess.run(
            [binary, "--kubeconfig", str(kubelocal_cluster.kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            check=True,
            text=True,
        ).stdout

    return run
