"""One score of one pending pod, on nodes by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from reprieve.engine.placement.profile import Policy, Profile, ScoreName
from reprieve.engine.placement.scores import compile_scores
from reprieve.engine.placement.simulation import Simulation
from tests.engine.builders import pending_of, snapshot_of

__all__ = ["MIB", "score_of", "scored"]

MIB = 2**20


def score_of(
    plugin: ScoreName,
    *rows: Any,
    nodes: Iterable[str] | None = None,
    **profile: Any,
) -> dict[str, int] | None:
    """The scores of the pending pod `new`, by node; None where the plugin has nothing to say.

    `rows`: rows and lists of rows. `nodes`: those that passed the filters, else all.
    """
    snapshot = snapshot_of(*rows)
    simulation = Simulation(snapshot, Policy(), Profile(**profile))
    found = {s.name: s for s, _ in compile_scores(simulation, pending_of(snapshot, "new"))}
    if plugin not in found:
        return None
    names = sorted(snapshot.node_index if nodes is None else nodes)
    indices = np.array([snapshot.node_index[name] for name in names], np.int64)
    return dict(zip(names, found[plugin].values(indices).tolist(), strict=True))


def scored(plugin: ScoreName, *rows: Any, **given: Any) -> dict[str, int]:
    """The same, of a plugin that has something to say."""
    found = score_of(plugin, *rows, **given)
    assert found is not None
    return found
