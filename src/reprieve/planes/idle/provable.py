"""Which fit check is in force: a node for every pod where nodes may be read, else the sum.

If the configuration names a check, that one is in force, and missing rights keep the plane from
deciding. Source: promise "Feasible" of the design.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reprieve.engine.idle.model import Fit
from reprieve.execution.writes.rights import permitted
from reprieve.kube.client import Client
from reprieve.kube.errors import Forbidden
from reprieve.kube.resource import NODES
from reprieve.planes.idle.context import log
from reprieve.settings.start_up import StartUp

__all__ = ["with_provable_fit"]

_NEEDED: Final = ("list", "watch")


async def with_provable_fit(client: Client, start: StartUp) -> StartUp:
    """Return the settings with the fit check that this process has the rights for.

    Raises:
        ApiError: the API server did not state which rights there are.
    """
    if start.fit_given or start.policy.fit is not Fit.NODE:
        return start
    try:
        missing = [verb for verb in _NEEDED if not await permitted(client, NODES, verb)]
    except Forbidden as refusal:
        missing = [str(refusal)]
    if not missing:
        return start
    log.warning(
        "fit: Sum is in force, which looks at GPUs alone and at no nodes: %s on nodes is missing. "
        "Grant it for fit: Node, or write gpuPreemption.fit: Sum",
        " and ".join(missing),
    )
    return replace(start, policy=replace(start.policy, fit=Fit.SUM))
