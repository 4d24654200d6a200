"""What plugins are written against: all types that they are given and give back.

Plugins of the scheduling plane are functions of these types, offered as entry points:

- `reprieve.placement_scorers`: `PlacementScorer`, scores of the domains of a group's topology;
- `reprieve.pod_group_post_filters` and `reprieve.post_filters`: what is tried after a group, or a
  pod, could not be placed.

Orders of victims (`reprieve.victim_orders`) are functions of a `QuotaWorkload` or an `IdleWorkload`
that return a whole number; the lower one goes first. `quota.victimOrder` and
`gpuPreemption.victimOrder` name one.

>>> from reprieve.lab.plugins import QuotaWorkload
>>> def smallest_first(workload: QuotaWorkload) -> int:
...     return sum(each.count for each in workload.pod_sets)
>>> smallest_first(QuotaWorkload("team", "train"))
0

Policies of a study (`reprieve.policies`) are classes with `admit` and `order`, which see `Head`,
`Candidate` and `Candidates`. All are pure: they read no clock, no file and nothing that changes, so
that a decision can be made again from its record. Columns are numpy arrays by node, resource or pod
slot, see `Snapshot`.
"""

from __future__ import annotations

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.idle.model import Workload as IdleWorkload
from reprieve.engine.placement.filtering import FeasiblePlacement, PlacementScorer, View
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.quota.model import Workload as QuotaWorkload
from reprieve.engine.scheduling.nodes.domains import GroupPlacing
from reprieve.engine.scheduling.nodes.placing import Choose
from reprieve.engine.scheduling.outcome import Explanation, Preemption, Sentence
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.simulation.own import Candidate, Candidates, Head, OwnPolicy

__all__ = [
    "Candidate",
    "Candidates",
    "Choose",
    "Code",
    "Explanation",
    "FeasiblePlacement",
    "GroupPlacing",
    "GroupRow",
    "Head",
    "IdleWorkload",
    "OwnPolicy",
    "Pending",
    "PlacementScorer",
    "Policy",
    "PostFilter",
    "Preemption",
    "QuotaWorkload",
    "Sentence",
    "Simulation",
    "Snapshot",
    "View",
]
