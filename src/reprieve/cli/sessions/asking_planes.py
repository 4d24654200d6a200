"""Has the planes decide why a unit waits, on a copy of a cluster or of a stored snapshot.

A module of its own: importing all planes needs as long as their answer. A query about why an object
was evicted, or about an object that no plane decides about, does not wait for that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from time import process_time
from typing import NamedTuple

from kubeworld.units.clock import Clock
from reprieve.answers.decided import Decided
from reprieve.answers.diagnosing import PlanesOfSnapshot, asked_of_planes, named_schedulers
from reprieve.answers.tried import Trials
from reprieve.answers.unit import Unit
from reprieve.cli.sessions.deciding import deciders_of, installed_deciders
from reprieve.cli.sessions.running_operator import running_deciders
from reprieve.cli.snapshot import read_snapshot
from reprieve.engine.plan import Plane
from reprieve.kube.client import Client
from reprieve.kube.errors import Forbidden
from reprieve.whatif.copy.gathering import gather_besides, gather_for
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.happened import Run, Undecided
from reprieve.whatif.questions.beside import affordable
from reprieve.whatif.run import decided
from reprieve.whatif.snapshots.snapshot import Snapshot

__all__ = ["PlanesOfCluster", "planes_of_snapshot", "read_snapshot"]


class _Made(NamedTuple):
    """A run of the planes; `asking`: how long further questions may last, in seconds."""

    run: Run
    deciders: Deciders
    asking: float


@dataclass(frozen=True, slots=True)
class PlanesOfCluster:
    """Has the planes decide on a copy of what the caller may read, which is read once.

    `namespaces`: where to look if not all may be listed. Without `estimated` the cluster is not
    decided about again for when a unit starts, or for changes that would help.
    """

    client: Client
    clock: Clock
    namespaces: Collection[str]
    report: Callable[[Decided], None] = lambda decided: None
    estimated: bool = True
    # What was decided, by the schedulers whose pods are placed.
    _made: dict[tuple[str, ...], _Made | Decided] = field(default_factory=dict)

    async def __call__(self, unit: Unit, plane: Plane) -> Decided | None:
        """Return their diagnosis of a unit; None where they cannot decide here."""
        names = named_schedulers(unit)
        if names not in self._made:
            self._made[names] = await self._decide(names)
        made = self._made[names]
        if isinstance(made, Decided):
            return made
        asking = made.asking if self.estimated else 0.0
        trials = Trials(asking, self.client, self._more)
        return await asked_of_planes(
            unit, made.run, plane, made.deciders, asking, trials, self.report
        )

    async def _more(self, snapshot: Snapshot, deciders: Deciders) -> Snapshot:
        """Return the snapshot with the kinds that these planes read besides."""
        return await gather_besides(
            self.client, snapshot, deciders.kinds(), self.clock, self.namespaces
        )

    async def _decide(self, names: tuple[str, ...]) -> _Made | Decided:
        """Return what the planes decide about the cluster as it is, or why they cannot."""
        try:
            operator = await running_deciders(self.client)
            first = operator or deciders_of(None, names, {})
            snapshot = await gather_for(self.client, first, self.clock, namespaces=self.namespaces)
            deciders = operator or installed_deciders(snapshot, names, {})
            since = process_time()
            run = await decided(self.client, snapshot, deciders)
            return _Made(run, deciders, affordable(process_time() - since))
        except (Forbidden, Undecided) as failure:
            return Decided(self.clock.wall(), notes=(f"The planes cannot decide: {failure}.",))


def planes_of_snapshot(snapshot: Snapshot) -> PlanesOfSnapshot:
    """Return what has the planes decide on a stored snapshot: those for which it has objects."""
    return PlanesOfSnapshot(snapshot, lambda names: installed_deciders(snapshot, names, {}))
