"""What a cluster holds of the kinds on which its planes decide.

The quota plane reads nodes and pods by itself only where pods are given places, as the flavors'
topologies have it, or where proofs look at nodes: that is known once the flavors are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from kubeworld.units.clock import Clock
from reprieve.kube.errors import rbac_rule
from reprieve.kube.reader import Reader
from reprieve.kube.resource import NODES, Resource
from reprieve.whatif.copy.lists import gather
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.happened import Undecided
from reprieve.whatif.snapshots.snapshot import Snapshot

__all__ = ["gather_besides", "gather_for", "require"]


async def gather_for(
    client: Reader, deciders: Deciders, clock: Clock, *, namespaces: Collection[str] = ()
) -> Snapshot:
    """Return what a cluster holds of what these planes read; `namespaces`: as of `gather`.

    Raises:
        Undecided: the caller may not list nodes, and pods are given places on them.
        ApiError: as of `gather`.
    """
    snapshot = await gather(client, deciders.kinds(), clock, namespaces=namespaces)
    found = await gather_besides(
        client, snapshot, deciders.kinds_of_places(snapshot), clock, namespaces
    )
    if found is snapshot:
        return snapshot
    require(found, NODES)
    return found


async def gather_besides(
    client: Reader,
    snapshot: Snapshot,
    kinds: Iterable[Resource],
    clock: Clock,
    namespaces: Collection[str] = (),
) -> Snapshot:
    """Return a snapshot with those of these kinds that it lacks; the same where it has all.

    Raises:
        ApiError: as of `gather`.
    """
    wanted = [each for each in kinds if not snapshot.serves(each.group, each.plural)]
    if not wanted:
        return snapshot
    more = await gather(client, wanted, clock, namespaces=namespaces)
    if not more.kinds and not more.unseen:
        return snapshot
    return replace(
        snapshot,
        at=more.at,
        kinds={**snapshot.kinds, **more.kinds},
        unseen=(*snapshot.unseen, *more.unseen),
    )


def require(snapshot: Snapshot, resource: Resource) -> None:
    """Refuse to decide where a cluster would seem to have none of a kind.

    Raises:
        Undecided: the caller may not list the kind.
    """
    if snapshot.refuses(resource):
        rule = rbac_rule(resource.group, resource.plural, "list")
        raise Undecided(
            f"it cannot be decided without {resource.plural}, which you may not list; the rule to "
            f"add: {rule}; or decide on the file of a reprieve snapshot with --from"
        )
