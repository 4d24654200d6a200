"""How long PodGroupPostFilter plugins and `DefaultPreemption` run: the engine has no clock.

Measured are the calls at PodGroupPostFilter, and at PostFilter those of the preemption of plain
pods. Filters and scores answer for all nodes at once, so they have no call per node that could be
compared with kube-scheduler's. Source: specification 14, `plugin_execution_duration_seconds`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from prometheus_client import Histogram

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.domains import GroupPlacing
from reprieve.engine.scheduling.nodes.placing import Choose
from reprieve.engine.scheduling.outcome import Preemption
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.pod import PodPostFilter

__all__ = ["measured", "measured_preemption"]

_GROUP_POINT: Final = "PodGroupPostFilter"
_POD_POINT: Final = "PostFilter"


def measured(
    plugins: Mapping[str, PostFilter], seconds: Histogram, clock: Clock
) -> Mapping[str, PostFilter]:
    """Return the plugins so that each call is observed by (plugin, extension point, status).

    A plugin that raises counts as status `Error`; its exception reaches the caller.
    """
    return MappingProxyType(
        {name: _measured(name, plugin, seconds, clock) for name, plugin in plugins.items()}
    )


def measured_preemption(preempt: PodPostFilter, seconds: Histogram, clock: Clock) -> PodPostFilter:
    """Return the preemption of plain pods so that each call is observed as `DefaultPreemption`."""

    def call(simulation: Simulation, pending: Pending, policy: Policy) -> Preemption:
        with _observed("DefaultPreemption", _POD_POINT, seconds, clock) as outcome:
            found = preempt(simulation, pending, policy)
            outcome.append(found.code)
        return found

    return call


def _measured(name: str, plugin: PostFilter, seconds: Histogram, clock: Clock) -> PostFilter:
    def call(
        simulation: Simulation,
        group: GroupRow,
        queued: Sequence[Pending],
        policy: Policy,
        choose: Choose,
        placing: GroupPlacing,
    ) -> Preemption:
        with _observed(name, _GROUP_POINT, seconds, clock) as outcome:
            found = plugin(simulation, group, queued, policy, choose, placing)
            outcome.append(found.code)
        return found

    return call


@contextmanager
def _observed(
    name: str, point: str, seconds: Histogram, clock: Clock
) -> Generator[list[Code], None, None]:
    """Observe the time until the end, with the code that the list got, else `Error`."""
    start = clock.monotonic()
    outcome: list[Code] = []
    try:
        yield outcome
    finally:
        took = clock.monotonic() - start
        code = outcome[0] if outcome else Code.ERROR
        seconds.labels(name, point, code).observe(took / SECOND)
