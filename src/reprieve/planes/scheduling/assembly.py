"""The scheduling plane as the process runs it."""

from __future__ import annotations

import logging
from typing import Final

from reprieve.planes.common.assembly import Assembled, Surroundings, warn
from reprieve.planes.common.plugins import one_sided
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.plane import SchedulingPlane
from reprieve.telemetry.scheduling import SchedulingMetrics

__all__ = ["assemble"]

log: Final = logging.getLogger("reprieve")


async def assemble(given: Surroundings) -> Assembled:
    """Return the plane; other planes may read its view of the cluster."""
    settings, options = given.settings, given.options
    assert settings.scheduling is not None, "read for every process that runs the plane"
    warn(settings.scheduling.notices)
    if settings.installed is not None:
        for profile, plugin in one_sided(settings.installed, settings.scheduling.policy):
            log.error(
                "profile %s: plugin %s has PostFilter but not PodGroupPostFilter, so that it does "
                "nothing for pod groups; for single pods only DefaultPreemption runs",
                profile,
                plugin,
            )
    context = SchedulingContext(
        **given.common(),
        scheduler_metrics=SchedulingMetrics(given.metrics.registry),
        settings=settings.scheduling,
        plugins=settings.plugins,
        scorers=settings.scorers,
        shared_nodes=options.shared_nodes,
        watch_others=options.watch_others,
        others=given.others,
    )
    plane = SchedulingPlane(context, given.namespace)
    given.joint.scheduling = plane.side
    return Assembled(plane, page=plane.gangs.page, view=plane.state)
