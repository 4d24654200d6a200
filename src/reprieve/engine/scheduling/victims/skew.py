"""A spread constraint of members with fixed nodes, while pods are reprieved around them.

The n-th member passes when, in its domain d and over all domains x,

    base[d] + earlier[n, d] + self - min(base[x] + earlier[n, x]) <= maxSkew

where `base` counts the pods that are there without the members, and `earlier` the members before
the n-th. A pod reprieved in d raises `base[d]`: it can only harm members in d, and only help
members elsewhere; a domain without members accepts any number. Source: specification 21.6 and 7.7.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reprieve.engine.cluster.arrays import I64

__all__ = ["Skew"]


class Skew:
    """Counts per domain for one constraint of one class of members."""

    def __init__(
        self,
        base: I64,
        domains: Sequence[int],
        contributions: Sequence[bool],
        constrained: Sequence[bool],
        beside: Sequence[int],
        *,
        existing: int,
        own: int,
        max_skew: int,
        min_domains: int,
    ) -> None:
        """Set the counters up.

        `base`: (domains,) pods per domain, those that exist first. Per member in placement order:
        `domains` of its node (-1 for none), `contributions` whether it counts itself, and
        `constrained` whether it carries the constraint; `beside`: how many pods count that are
        nominated to its node and have to be respected there (8.7). `own`: 1 if the constrained
        match it.
        """
        self.base = base.astype(np.int64).copy()
        self._own = own
        self._max_skew = max_skew
        self._existing = existing
        self._few = existing < min_domains or not existing
        earlier = np.zeros(len(base), np.int64)
        rows: dict[int, list[I64]] = {}
        for domain, contribution, carries, others in zip(
            domains, contributions, constrained, beside, strict=True
        ):
            if carries and domain >= 0:
                row = earlier.copy()
                row[domain] += others
                rows.setdefault(domain, []).append(row)
            if contribution and domain >= 0:
                earlier[domain] += 1
        self._rows = {domain: np.stack(found) for domain, found in rows.items()}
        self._version = 0
        self._refused: dict[int, int] = {}

    def add(self, domains: Sequence[int]) -> None:
        """Restore pods, given by their domains."""
        for domain in domains:
            self.base[domain] += 1
        self._version += 1

    def remove(self, domains: Sequence[int]) -> None:
        """Remove pods, given by their domains."""
        for domain in domains:
            self.base[domain] -= 1
        self._version += 1

    def admits(self, domains: Sequence[int]) -> bool:
        """Return whether all members still pass with pods reprieved in these domains."""
        if len(domains) == 1:
            domain = domains[0]
            if domain not in self._rows:
                return True
            if self._refused.get(domain) == self._version:
                return False
            self.base[domain] += 1
            passes = self.surplus(domain) <= 0
            self.base[domain] -= 1
            if not passes:
                self._refused[domain] = self._version
            return passes
        for domain in domains:
            self.base[domain] += 1
        passes = all(self.surplus(domain) <= 0 for domain in set(domains) & self._rows.keys())
        for domain in domains:
            self.base[domain] -= 1
        return passes

    def surplus(self, domain: int) -> int:
        """Return by how much the worst member of a domain exceeds maxSkew; 0 or less passes."""
        earlier = self._rows[domain]
        counts = earlier + self.base
        least = 0 if self._few else counts[:, : self._existing].min(axis=1)
        return int((counts[:, domain] + self._own - least).max()) - self._max_skew

    def exceeded(self) -> dict[int, int]:
        """Return the domains whose members do not pass, with the number of pods too many."""
        found = {domain: self.surplus(domain) for domain in self._rows}
        return {domain: surplus for domain, surplus in found.items() if surplus > 0}
