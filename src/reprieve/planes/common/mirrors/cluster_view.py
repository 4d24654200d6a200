"""The cluster as one plane of the process keeps it and others may read it.

Who reads it sees every change of a pod, and watches nothing a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import PodRow

__all__ = ["ClusterView"]


class ClusterView(Protocol):
    """`disturbed` counts changes that may make a decision wrong that was made before them.

    Each of `observers` is called with a pod as it was and as it is, None for what is not there.
    """

    cluster: Cluster
    disturbed: int
    observers: list[Callable[[PodRow | None, PodRow | None], None]]

    def pods(self) -> Iterator[PodRow]:
        """Yield all pods as they were seen last."""
        ...
