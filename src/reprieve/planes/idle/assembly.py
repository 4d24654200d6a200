"""The idle plane as the process runs it."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Final

from reprieve.engine.idle.model import Fit
from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.discovery import RestMapper
from reprieve.kube.errors import AlreadyExists, ApiError
from reprieve.kube.resource import KAIWO_CONFIGS
from reprieve.planes.common.assembly import Assembled, Surroundings
from reprieve.planes.common.process_settings import SCHEDULING
from reprieve.planes.idle.context import IdleContext
from reprieve.planes.idle.plane import IdlePlane
from reprieve.planes.idle.provable import with_provable_fit

__all__ = ["assemble"]

log: Final = logging.getLogger("reprieve")


async def assemble(given: Surroundings) -> Assembled:
    """Return the plane.

    Raises:
        Stopped: the process is to stop before the API server stated which rights there are.
    """
    client, clock = given.client, given.clock
    if not given.options.dry_run:
        await _make_kaiwo_config(client)
    proven = await given.answered(partial(with_provable_fit, client, given.settings.start))
    policy = proven.policy
    if SCHEDULING in given.options.controllers:
        policy = replace(policy, fewest=policy.fit is Fit.NODE)
    start = replace(proven, policy=policy)
    context = IdleContext(
        **given.common(given.settings.orders.idle),
        mapper=RestMapper(client, clock),
        start=start,
        stepped=given.stepped,
        measured=given.measured,
    )
    plane = IdlePlane(context, given.namespace)
    given.joint.idle = plane.side
    return Assembled(plane)


async def _make_kaiwo_config(client: Client) -> None:
    """Create the empty KaiwoConfig that users expect to find; without it defaults are in force."""
    try:
        _: Json = await client.create(KAIWO_CONFIGS, {"metadata": {"name": "kaiwo"}}, dict)
    except AlreadyExists:
        return
    except ApiError as failure:
        log.warning("KaiwoConfig kaiwo cannot be created: %s", failure)
