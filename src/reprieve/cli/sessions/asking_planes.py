"""Has the planes decide why a unit waits, on a copy of a cluster or of a stored snapshot.

A module of its own: who asks why something went, or what nobody decides about, does not wait until
all planes are imported, which takes as long as their answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time
from typing import Final

from kubeworld.units.clock import Clock
from reprieve.answers.decided import Decided
from reprieve.answers.diagnosing import asked_of_planes
from reprieve.answers.unit import Unit
from reprieve.cli.sessions.deciding import deciders_of, installed_deciders
from reprieve.cli.sessions.running_operator import running_deciders
from reprieve.cli.snapshot import read_snapshot
from reprieve.engine.plan import Plane
from reprieve.kube.client import Client
from reprieve.kube.errors import Forbidden
from reprieve.planes.common.process_settings import SCHEDULER_NAME
from reprieve.whatif.copy.lists import gather
from reprieve.whatif.happened import Undecided
from reprieve.whatif.questions.beside import affordable
from reprieve.whatif.run import decided, settled
from reprieve.whatif.snapshots.snapshot import Snapshot

__all__ = ["PlanesOfCluster", "PlanesOfSnapshot", "read_snapshot"]

_DEFAULT_SCHEDULER: Final = "default-scheduler"


@dataclass(frozen=True, slots=True)
class PlanesOfCluster:
    """Has the planes decide on a copy of what the caller may read."""

    client: Client
    clock: Clock
    namespace: str

    async def __call__(self, unit: Unit, plane: Plane) -> Decided | None:
        """Return what they say of a unit; None where they cannot decide here."""
        names = _schedulers(unit)
        try:
            operator = await running_deciders(self.client)
            kinds = (operator or deciders_of(None, names, {})).kinds()
            snapshot = await gather(self.client, kinds, self.clock, namespaces=[self.namespace])
            deciders = operator or installed_deciders(snapshot, names, {})
            since = process_time()
            run = await decided(self.client, snapshot, deciders)
            asking = affordable(process_time() - since)
            return await asked_of_planes(unit, run, plane, deciders, asking, self.client)
        except (Forbidden, Undecided) as failure:
            return Decided(self.clock.wall(), notes=(f"The planes cannot decide: {failure}.",))


@dataclass(frozen=True, slots=True)
class PlanesOfSnapshot:
    """Has the planes decide on a stored snapshot; what it lacks cannot be asked for."""

    snapshot: Snapshot

    async def __call__(self, unit: Unit, plane: Plane) -> Decided | None:
        """Return what they say of a unit; None where they cannot decide here."""
        deciders = installed_deciders(self.snapshot, _schedulers(unit), {})
        try:
            since = process_time()
            run = settled(self.snapshot, deciders)
            return await asked_of_planes(
                unit, run, plane, deciders, affordable(process_time() - since)
            )
        except Undecided as failure:
            return Decided(self.snapshot.at, notes=(f"The planes cannot decide: {failure}.",))


def _schedulers(unit: Unit) -> tuple[str, ...]:
    """Return whose pods are placed: those of Reprieve, and those of the unit's own scheduler."""
    named = {str(pod["spec"].get("schedulerName", _DEFAULT_SCHEDULER)) for pod in unit.pods}
    return (SCHEDULER_NAME, *sorted(named - {SCHEDULER_NAME}))
