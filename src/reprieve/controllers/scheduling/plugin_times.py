"""How long PodGroupPostFilter plugins take, measured around their call: the engine has no clock.

The only extension point that is measured: filters, scores and the PostFilter of plain pods answer
for all nodes at once, so they have no call per node that could be compared with kube-scheduler's.
Source: specification 14, `plugin_execution_duration_seconds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from prometheus_client import Histogram

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.domains import GroupPlacing
from reprieve.engine.scheduling.outcome import Preemption
from reprieve.engine.scheduling.placing import Choose
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.units.clock import Clock
from reprieve.units.durations import SECOND

__all__ = ["measured"]

_POINT: Final = "PodGroupPostFilter"


def measured(
    plugins: Mapping[str, PostFilter], seconds: Histogram, clock: Clock
) -> Mapping[str, PostFilter]:
    """Return the plugins so that each call is observed by (plugin, extension point, status).

    A plugin that raises counts as status `Error`; its exception goes on to the caller.
    """
    return MappingProxyType(
        {name: _measured(name, plugin, seconds, clock) for name, plugin in plugins.items()}
    )


def _measured(name: str, plugin: PostFilter, seconds: Histogram, clock: Clock) -> PostFilter:
    def call(
        simulation: Simulation,
        group: GroupRow,
        queued: Sequence[Pending],
        policy: Policy,
        choose: Choose,
        placing: GroupPlacing,
    ) -> Preemption:
        start = clock.monotonic()
        code = Code.ERROR
        try:
            found = plugin(simulation, group, queued, policy, choose, placing)
            code = found.code
        finally:
            took = clock.monotonic() - start
            seconds.labels(name, _POINT, code).observe(took / SECOND)
        return found

    return call
