"""What the filters say about a pending pod, in kube-scheduler's words."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprieve.engine.cluster.rows import Change
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy, Profile
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.wording.rejections import reason_text
from tests.engine.builders import pending_of, snapshot_of

FITS = "fits"
RESOLVABLE = "U"
UNRESOLVABLE = "X"

_LETTERS = {Code.UNSCHEDULABLE: RESOLVABLE, Code.UNRESOLVABLE: UNRESOLVABLE, Code.ERROR: "E"}


def simulation_of(
    *rows: Change | Iterable[Change], profile: Profile | None = None
) -> tuple[Simulation, Snapshot]:
    """A simulation of the cluster with these rows, and its snapshot."""
    snapshot = snapshot_of(*rows)
    chosen = Profile() if profile is None else profile
    return Simulation(snapshot, Policy(profiles=(chosen,)), chosen), snapshot


def said(simulation: Simulation, pending: Pending) -> dict[str, str]:
    """For each node `fits`, or U or X with the texts: `U: Too many pods, Insufficient cpu`.

    The answers for all nodes at once and for each one alone are compared on the way.
    """
    found = {}
    codes = simulation.codes(pending).tolist()
    for each in simulation.filters(pending):
        alone = [each.code_at(index) for index in range(len(codes))]
        np.testing.assert_array_equal(each.codes(), alone, err_msg=each.name)
        for index, code in enumerate(alone):
            assert bool(each.reasons_at(index)) == bool(code), (each.name, index)
    for index, node in enumerate(simulation.snapshot.nodes):
        assert simulation.code_at(pending, index) == codes[index]
        status = simulation.status_at(pending, index)
        assert bool(status.reasons) == bool(codes[index])
        if status.code is Code.SUCCESS:
            found[node.name] = FITS
        else:
            texts = ", ".join(reason_text(each) for each in status.reasons)
            found[node.name] = f"{_LETTERS[status.code]}: {texts}"
    return found


def verdicts(
    *rows: Change | Iterable[Change], of: str = "p", profile: Profile | None = None
) -> dict[str, str]:
    """What each node of this cluster says to the pending pod named `of`; see `said`."""
    simulation, snapshot = simulation_of(*rows, profile=profile)
    return said(simulation, pending_of(snapshot, of))
