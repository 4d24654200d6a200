"""What a filter and a score are: compiled for one pending pod, following changes of pods.

A plugin's `compile_*` function looks once at the view and returns what the pod needs: a `Filter`,
None when there is nothing to check (the plugin is skipped for this pod), or a `Refusal` that
rejects every node with one reason (kube-scheduler's PreFilter). Afterwards `add` and `remove` keep
it true while the simulation adds and removes pods; removing what was added restores it exactly.
Pods of one class and labels share their filters, those with claims if they request the same.
Source: specification 7.7, 16, 17 and
21.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeAlias, runtime_checkable

from reprieve.engine.cluster.arrays import I64, U8, Mask
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import FilterName, Policy, Profile, ScoreName
from reprieve.engine.placement.reasons import Reason

__all__ = [
    "FeasiblePlacement",
    "Filter",
    "ForSeveral",
    "Placed",
    "PlacementScorer",
    "Reach",
    "Refusal",
    "Reserving",
    "Score",
    "View",
]


class Reach(Enum):
    """What a pod that was added or removed has changed for a filter or score."""

    NOTHING = auto()
    NODE = auto()  # at most the answer for the pod's own node
    DOMAINS = auto()  # answers anywhere


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod on a node, as filters see it. `slot`: of the snapshot, -1 for a simulated one."""

    pod_class: int
    labels: int
    node: int
    deleting: bool = False
    slot: int = -1
    pending: Pending | None = None  # of a simulated one


@dataclass(frozen=True, slots=True)
class Refusal:
    """Every node is refused, for one reason that is shown without counts."""

    reason: Reason
    error: bool = False  # the attempt ends with an error instead (21.9)


@dataclass(frozen=True, slots=True)
class FeasiblePlacement:
    """A domain in which the group fits.

    `members`: those that run there already and those that the attempt placed. `proposed`: the
    classes of the latter.
    """

    domain: str
    nodes: I64
    members: int
    proposed: tuple[int, ...]


class View(Protocol):
    """What a compile function may read: the pods that are there at this moment."""

    snapshot: Snapshot
    policy: Policy
    profile: Profile
    present: Mask  # (slots,) the snapshot's pods that are there; False where a slot counts nowhere
    simulated: list[Placed]  # pods that the simulation has added, in order
    used: I64  # (nodes, resources) of both
    shared: dict[str, object]  # what the filters of one plugin share, by the plugin's name
    scorers: Mapping[str, PlacementScorer]  # those of others that a profile may name

    @property
    def scored(self) -> I64:
        """Return cpu and memory of both as scores count them: (nodes, 2)."""
        ...


#: A placement scorer of others: 0..100 for each placement, more is better. Pure: it keeps and
#: changes nothing that it is given. The view is without the proposed members.
PlacementScorer: TypeAlias = Callable[[View, Sequence[FeasiblePlacement]], Sequence[int]]


class Filter(Protocol):
    """One filter plugin for one pending pod."""

    @property
    def name(self) -> FilterName: ...

    def codes(self) -> U8:
        """Return a `Rejection` for each node, 0 where the pod passes: (nodes,), not to be kept."""
        ...

    def code_at(self, node: int) -> int:
        """Return the `Rejection` of one node, 0 when the pod passes."""
        ...

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        """Return the reasons for a node that is refused, in the order of the real plugin."""
        ...

    def add(self, pod: Placed) -> Reach:
        """A pod came (the view's own columns are already changed)."""
        ...

    def remove(self, pod: Placed) -> Reach:
        """A pod was removed; exactly undoes `add`."""
        ...


@runtime_checkable
class Reserving(Protocol):
    """A filter that reserves something for the placed pod (Reserve): devices, volumes."""

    def reserve(self, pending: Pending, node: int) -> None: ...

    def release(self, pending: Pending, node: int) -> None: ...


@runtime_checkable
class ForSeveral(Protocol):
    """A filter that answers for several pods which are answered alike (`claims_alike`)."""

    def include(self, pending: Pending) -> Refusal | None:
        """Answer for one pod more; return why it is refused everywhere, if it is."""
        ...

    def speak_for(self, pending: Pending) -> None:
        """Name what this pod has in reasons from now on."""
        ...


class Score(Protocol):
    """One score plugin for one pending pod."""

    @property
    def name(self) -> ScoreName: ...

    def values(self, nodes: I64) -> I64:
        """Return the normalised score 0..100 of each node index in `nodes`, all of which passed."""
        ...

    def add(self, pod: Placed) -> Reach: ...

    def remove(self, pod: Placed) -> Reach: ...
