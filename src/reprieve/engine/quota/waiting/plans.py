"""The places that victims were chosen for, by the workload that waits for them.

With profile `best` a plan is kept until its workload has its quota or is gone; the oldest is
carried out first. Source: specification of topology-aware scheduling, section 9 (2).
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from reprieve.engine.topology.model import TopologyAssignment

__all__ = ["Plans"]

_Places = Mapping[str, TopologyAssignment]


class Plans:
    """Places by pod set, by the key of a pending workload."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, _Places]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def note(self, key: str, places: _Places) -> None:
        """Record the places that a workload's victims were chosen for, by pod set."""
        oldest = max((number for number, _ in self._known.values()), default=0)
        number, _ = self._known.get(key, (oldest + 1, {}))
        self._known[key] = number, places

    def places(self, key: str) -> _Places:
        """Return the places that a pending workload's victims were chosen for; none are empty."""
        return self._known.get(key, (0, {}))[1]

    def number(self, key: str) -> int:
        """Return a number that is larger for younger plans, 0 without any."""
        return self._known.get(key, (0, {}))[0]

    def forget(self, key: str) -> None:
        """Remove what is known of a workload."""
        self._known.pop(key, None)

    def keep(self, keys: Container[str]) -> None:
        """Remove what is known of all but these."""
        self._known = {key: each for key, each in self._known.items() if key in keys}
