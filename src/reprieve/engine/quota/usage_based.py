"""Admission fair sharing: what LocalQueues used, fading with time.

Every sampling interval the usage of a LocalQueue becomes the mean of what it was and of what its
admitted workloads hold now, weighted so that what is not held any more is halved every half-life:

    alpha = 1 - 0.5 ^ (elapsed / half-life)
    usage = usage * (1 - alpha) + held * alpha

An admission adds at once what one interval of holding it would (`penalized`), so that a burst is
not admitted before the first sample. LocalQueues are compared by the weighted sum over resources
divided by their weight. Without a half-life nothing is ever counted.

Source: specification of the quota plane, sections 1.6 and 6.3; KEP-4136.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from reprieve.units.durations import SECOND
from reprieve.units.instants import Nanos

__all__ = ["Consumption", "UsageBased"]


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a LocalQueue used, by resource, as of an instant."""

    amounts: Mapping[str, float] = field(default_factory=dict)
    at: Nanos | None = None


@dataclass(frozen=True, slots=True)
class UsageBased:
    """The rules: half-life and sampling in seconds, weights of resources (1 where absent)."""

    half_life_s: float = 0.0
    sampling_s: float = 300.0
    weights: Mapping[str, float] = field(default_factory=dict)

    def sampled(self, before: Consumption, held: Mapping[str, int], now: Nanos) -> Consumption:
        """Return the consumption at `now`, with `held` in use since the last sample."""
        elapsed = self.sampling_s if before.at is None else (now - before.at) / SECOND
        alpha = self._alpha(elapsed)
        names = {*before.amounts, *held}
        return Consumption(
            {
                name: before.amounts.get(name, 0.0) * (1 - alpha) + held.get(name, 0) * alpha
                for name in sorted(names)
            },
            now,
        )

    def penalized(self, before: Consumption, requests: Mapping[str, int]) -> Consumption:
        """Return the consumption right after an admission of `requests`."""
        alpha = self._alpha(self.sampling_s)
        names = sorted({*before.amounts, *requests})
        return Consumption(
            {n: before.amounts.get(n, 0.0) + requests.get(n, 0) * alpha for n in names}, before.at
        )

    def usage(self, consumption: Consumption, weight: float) -> float:
        """Return what LocalQueues are compared by; infinite for weight 0 with any consumption."""
        total = sum(
            amount * self.weights.get(name, 1.0)
            for name, amount in sorted(consumption.amounts.items())
        )
        if not total:
            return 0.0
        return total / weight if weight else math.inf

    def _alpha(self, elapsed_s: float) -> float:
        if not self.half_life_s:
            return 0.0
        return 1.0 - math.pow(0.5, max(0.0, elapsed_s) / self.half_life_s)
