"""Followers of pods that are members of gangs of older APIs."""

from __future__ import annotations

from typing import Protocol

from reprieve.engine.cluster.rows import PodRow
from reprieve.units.ids import Uid

__all__ = ["Members"]


class Members(Protocol):
    """Followers of members of gangs of older APIs."""

    def pod_seen(self, row: PodRow) -> None:
        """A member came or changed."""
        ...

    def pod_gone(self, row: PodRow) -> None:
        """A member was deleted."""
        ...

    def waits(self, uid: Uid) -> bool:
        """Whether the pod has a node and waits for its siblings, outside of the queue."""
        ...
