"""What the benches of the scheduling engine time: one decision on a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.scheduling.outcome import Attempt

__all__ = ["Decision", "Mismatch"]


class Mismatch(Exception):
    """A decision is not what has to come out."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One attempt, and what it was made on."""

    snapshot: Snapshot
    attempt: Attempt
