"""What LocalQueues used, sampled for admission fair sharing and carried over restarts.

Every sampling interval, and with every admission, the consumption of the LocalQueues of
ClusterQueues with mode `UsageBasedAdmissionFairSharing` is computed anew; their statuses show it,
and a process that starts continues from there. Everything happens between two runs of cycles.

Source: specification of the quota plane, section 1.6; KEP-4136.
"""

from __future__ import annotations

import math
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from kubeworld.units.quantities import InvalidQuantity, parse_milli
from reprieve.api.kueue import FairSharingStatus, LocalQueue, Workload
from reprieve.engine.quota.assigning.requests import held_amounts
from reprieve.engine.quota.holdings.amounts import UNLIMITED, text
from reprieve.engine.quota.holdings.usage_based import Consumption, Consumptions, base_amounts
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.queue_status.tallies import Phase
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import Held, Watches

__all__ = ["ConsumptionSampler", "fair_sharing_status"]

_LOOK: Final = SECOND


class ConsumptionSampler:
    """Keeps `consumptions`, None where admission fair sharing is off."""

    def __init__(self, context: QuotaContext, state: QuotaState, watches: Watches) -> None:
        self._context = context
        self._state = state
        self._watches = watches
        self._admitted: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._looked_at = Nanos(0)
        rules, options = context.options.usage_based, context.options
        if rules is not None and options.settings.admission_fair_sharing:
            state.consumptions = Consumptions(rules)
            state.queues.consumptions = state.consumptions
            state.queues.local_queue_usage = state.consumptions.usage
            state.listeners.append(self._changed)
            state.settlers.append(self._settle)

    def _changed(self, old: Held[Workload] | None, new: Held[Workload] | None) -> None:
        """Note an admission, or the end of a Workload, for the next settling."""
        if new is None:
            assert old is not None
            self._gone[f"{old.namespace}/{old.name}"] = None
        elif old is not None and _admitted(new.object) and not _admitted(old.object):
            self._admitted[f"{new.namespace}/{new.name}"] = None

    def _settle(self) -> None:
        """Adopt what was noted, and sample what is due. Nothing is decided meanwhile."""
        state, now = self._state, self._context.clock.wall()
        found = state.consumptions
        assert found is not None
        gone, self._gone = self._gone, {}
        for key in gone:
            found.refund(key)
        admitted, self._admitted = self._admitted, {}
        due = bool(admitted) or now < self._looked_at or now >= self._looked_at + _LOOK
        if not due:
            return
        self._looked_at = now
        self._follow_queues(found, now)
        for key in admitted:
            workload = state.workload(key)
            if workload is not None and workload.status.admission is not None:
                row = state.row(workload)
                held = state.tallies.of(row.queue).usage.copy()
                counted = state.tallies.standing(key)
                if counted is None or counted.phase is not Phase.ADMITTED:
                    for pair, amount in held_amounts(row, state.configuration.settings):
                        held[pair] += amount
                amounts = base_amounts((pair.resource, n) for pair, n in held.items())
                found.settle(key, amounts, now)
                state.tallies.changed.add(row.queue)

    def _follow_queues(self, found: Consumptions, now: Nanos) -> None:
        configuration = self._state.configuration
        counted = {
            key: row.weight
            for key, row in configuration.local_queues.items()
            if (queue := configuration.cluster_queues.get(row.cluster_queue)) is not None
            and queue.usage_based
        }
        if counted != found.weights:
            found.keep(counted)
        every = round(found.rules.sampling_s * SECOND)
        for key in counted:
            before = found.of(key)
            if before is None:
                found.restore(key, self._restored(key, now))
            elif before.at is None or now - before.at >= every:
                usage = self._state.tallies.of(key).usage
                held = base_amounts((pair.resource, amount) for pair, amount in usage.items())
                found.sample(key, held, now)
            else:
                continue
            self._state.tallies.changed.add(key)

    def _restored(self, key: str, now: Nanos) -> Consumption:
        """Return what the status of a LocalQueue states of its consumption; nothing without one."""
        namespace, _, name = key.partition("/")
        held = self._watches.local_queues.cache.named(namespace, name)
        sharing = None if held is None else held.object.status.fair_sharing
        said = None if sharing is None else sharing.admission_fair_sharing_status
        if not said:
            return Consumption({}, now)
        try:
            amounts = {
                str(resource): parse_milli(quantity) / 1_000
                for resource, quantity in (said.get("consumedResources") or {}).items()
            }
            return Consumption(amounts, parse_instant(said["lastUpdate"]))
        except (InvalidQuantity, KeyError, ValueError) as error:
            log.warning("%s: its consumption cannot be read and is reset: %s", key, error)
            return Consumption({}, now)


def fair_sharing_status(
    consumptions: Consumptions | None, queue: LocalQueue
) -> tuple[FairSharingStatus | None, float | None]:
    """Return what the status of a LocalQueue shows of its consumption, and the metric."""
    key = f"{queue.metadata.namespace}/{queue.metadata.name}"
    found = None if consumptions is None else consumptions.of(key)
    if consumptions is None or found is None or found.at is None:
        return None, None
    used = consumptions.usage.get(key, 0.0)
    said = {
        "consumedResources": {name: _quantity(amount) for name, amount in found.amounts.items()},
        "lastUpdate": format_instant(found.at),
    }
    share = UNLIMITED if used >= UNLIMITED else math.ceil(used)
    return FairSharingStatus(share, said), used


def _quantity(amount: float) -> str:
    """Return a quantity in thousandths, what is below cut off."""
    milli = math.floor(amount * 1_000)
    return f"{milli}m" if milli % 1_000 else text("", milli // 1_000)


def _admitted(workload: Workload) -> bool:
    return is_condition_true(workload, "Admitted")
