"""Has the planes decide why a unit waits, on a copy of a cluster or of a stored snapshot.

A module of its own: importing all planes needs as long as their answer. A query about why an object
was evicted, or about an object that no plane decides about, does not wait for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import process_time

from kubeworld.units.clock import Clock
from reprieve.answers.decided import Decided
from reprieve.answers.diagnosing import PlanesOfSnapshot, asked_of_planes, schedulers_of
from reprieve.answers.unit import Unit
from reprieve.cli.sessions.deciding import deciders_of, installed_deciders
from reprieve.cli.sessions.running_operator import running_deciders
from reprieve.cli.snapshot import read_snapshot
from reprieve.engine.plan import Plane
from reprieve.kube.client import Client
from reprieve.kube.errors import Forbidden
from reprieve.whatif.copy.lists import gather
from reprieve.whatif.happened import Undecided
from reprieve.whatif.questions.beside import affordable
from reprieve.whatif.run import decided
from reprieve.whatif.snapshots.snapshot import Snapshot

__all__ = ["PlanesOfCluster", "planes_of_snapshot", "read_snapshot"]


@dataclass(frozen=True, slots=True)
class PlanesOfCluster:
    """Has the planes decide on a copy of what the caller may read."""

    client: Client
    clock: Clock
    namespace: str
    report: Callable[[Decided], None] = lambda decided: None

    async def __call__(self, unit: Unit, plane: Plane) -> Decided | None:
        """Return their diagnosis of a unit; None where they cannot decide here."""
        names = schedulers_of(unit)
        try:
            operator = await running_deciders(self.client)
            kinds = (operator or deciders_of(None, names, {})).kinds()
            snapshot = await gather(self.client, kinds, self.clock, namespaces=[self.namespace])
            deciders = operator or installed_deciders(snapshot, names, {})
            since = process_time()
            run = await decided(self.client, snapshot, deciders)
            asking = affordable(process_time() - since)
            return await asked_of_planes(
                unit, run, plane, deciders, asking, self.client, self.report
            )
        except (Forbidden, Undecided) as failure:
            return Decided(self.clock.wall(), notes=(f"The planes cannot decide: {failure}.",))


def planes_of_snapshot(snapshot: Snapshot) -> PlanesOfSnapshot:
    """Return what has the planes decide on a stored snapshot: those for which it has objects."""
    return PlanesOfSnapshot(snapshot, lambda names: installed_deciders(snapshot, names, {}))
