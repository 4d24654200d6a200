"""Admission fair sharing: what LocalQueues used, fading with time.

Every sampling interval the usage of a LocalQueue becomes the mean of what it was and of what its
admitted workloads hold now, weighted so that what is not held any more is halved every half-life:

    alpha = 1 - 0.5 ^ (elapsed / half-life)
    usage = usage * (1 - alpha) + held * alpha

An admission adds at once what one interval of holding it would (`penalized`), so that a burst is
not admitted before the first sample. LocalQueues are compared by the weighted sum over resources
divided by their weight. Without a half-life nothing is ever counted. Amounts of consumption are in
base units: cpus, not thousandths.

`Consumptions` keeps this for all LocalQueues. A reservation is charged as soon as it is decided;
the charge becomes consumption with the admission, and is dropped where there is none.

Source: specification of the quota plane, sections 1.6 and 6.3; KEP-4136.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.requests import pod_set_requests
from reprieve.engine.quota.model import Configuration, Workload

__all__ = ["Consumption", "Consumptions", "UsageBased", "base_amounts"]


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

    def sampled(self, before: Consumption, held: Mapping[str, float], now: Nanos) -> Consumption:
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

    def penalized(self, before: Consumption, requests: Mapping[str, float]) -> Consumption:
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


def base_amounts(amounts: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Return sums by resource in base units, from amounts in engine units."""
    found: Counter[str] = Counter()
    for resource, amount in amounts:
        found[resource] += amount
    return {name: found[name] / 1_000 if name == "cpu" else float(found[name]) for name in found}


@dataclass(slots=True)
class Consumptions:
    """What each LocalQueue used, by key, and the charges of reservations that are not admitted.

    `weights` are those of LocalQueues, 1 where absent. `usage` is what they are compared by, kept
    up to date; others may hold on to it.
    """

    rules: UsageBased
    weights: Mapping[str, float] = field(default_factory=dict)
    usage: dict[str, float] = field(default_factory=dict)
    _known: dict[str, Consumption] = field(default_factory=dict)
    # What workloads requested, by LocalQueue, and the LocalQueue of each.
    _charges: dict[str, dict[str, Mapping[str, float]]] = field(default_factory=dict)
    _queue_of: dict[str, str] = field(default_factory=dict)

    def of(self, queue: str) -> Consumption | None:
        """Return what a LocalQueue used, None where it was never looked at."""
        return self._known.get(queue)

    def restore(self, queue: str, consumption: Consumption) -> None:
        """Continue from what is known of a LocalQueue."""
        self._known[queue] = consumption
        self._weigh(queue)

    def keep(self, queues: Mapping[str, float]) -> None:
        """Apply the weights of the LocalQueues that count, and forget all others."""
        self.weights = queues
        for queue in [queue for queue in self._known if queue not in queues]:
            del self._known[queue]
            self.usage.pop(queue, None)
        for queue in self._known:
            self._weigh(queue)

    def sample(self, queue: str, held: Mapping[str, float], now: Nanos) -> None:
        """Look at a LocalQueue, whose admitted workloads hold this."""
        before = self._known.get(queue, Consumption())
        if not self.rules.half_life_s:
            self.restore(queue, Consumption({}, now))
        else:
            self.restore(queue, self.rules.sampled(before, held, now))

    def charge(self, workload: Workload, configuration: Configuration) -> None:
        """Charge a reservation that was decided, in a ClusterQueue where usage counts."""
        queue = workload.queue
        local = configuration.local_queues.get(queue)
        if local is None or not configuration.cluster_queues[local.cluster_queue].usage_based:
            return
        asked = pod_set_requests(workload, configuration.settings)
        amounts = base_amounts(pair for each in asked for pair in each.amounts.items())
        self._charges.setdefault(queue, {})[workload.key] = amounts
        self._queue_of[workload.key] = queue
        self._weigh(queue)

    def refund(self, workload: str) -> None:
        """Drop the charge of a reservation that came to nothing."""
        queue, _ = self._uncharged(workload)
        if queue:
            self._weigh(queue)

    def settle(self, workload: str, held: Mapping[str, float], now: Nanos) -> None:
        """Turn the charge of a workload that is admitted now into consumption.

        `held` is what its LocalQueue holds with it.
        """
        queue, requests = self._uncharged(workload)
        if queue:
            self.sample(queue, held, now)
            if self.rules.half_life_s:
                self.restore(queue, self.rules.penalized(self._known[queue], requests))

    def _uncharged(self, workload: str) -> tuple[str, Mapping[str, float]]:
        queue = self._queue_of.pop(workload, "")
        if not queue:
            return "", {}
        charges = self._charges[queue]
        requests = charges.pop(workload)
        if not charges:
            del self._charges[queue]
        return queue, requests

    def _weigh(self, queue: str) -> None:
        found = self._known.get(queue, Consumption())
        for requests in self._charges.get(queue, {}).values():
            found = self.rules.penalized(found, requests)
        self.usage[queue] = self.rules.usage(found, self.weights.get(queue, 1.0))
