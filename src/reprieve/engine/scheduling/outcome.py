"""What an attempt to schedule a unit ends in, for pods and pod groups alike.

A unit is a plain pod or a whole pod group (specification, section 1). The engine decides what is to
be done and states why; texts are made in `wording`, API calls in `execution`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from operator import attrgetter

import numpy as np

from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.arrays import I64
from reprieve.engine.disruptions.questions import Rule
from reprieve.engine.placement.filters.dynamic.device_state import ClaimAllocation
from reprieve.engine.placement.filters.volume_ledger import VolumeAssignment
from reprieve.engine.placement.reasons import Code, Reason, Rejection
from reprieve.engine.plan import Plan
from reprieve.engine.scheduling.gangs.job import JobPreemption
from reprieve.units.ids import Uid

__all__ = [
    "Attempt",
    "Deallocation",
    "Diagnosis",
    "Explanation",
    "GangCycle",
    "GroupStatus",
    "Held",
    "Member",
    "Nominate",
    "Preemption",
    "Sentence",
    "Spared",
    "Unit",
    "UnitVictim",
    "pods_of",
    "with_inner",
]


@dataclass(frozen=True, slots=True)
class Unit:
    """What is to be placed: a group key (namespace/name) with its queued pods, or one pod.

    `pods`: in queue order (specification 5.2).
    """

    pods: tuple[Uid, ...]
    group: str = ""

    @property
    def name(self) -> str:
        """Its name in logs, and what separates it from others."""
        return self.group or ", ".join(self.pods)


class Sentence(Enum):
    """Fixed sentences of a status; parameters in `Explanation.values` (names in brackets)."""

    MIN_COUNT_UNREACHABLE = auto()  # minCount (M) cannot be satisfied: S scheduled, R remaining
    MIN_COUNT_NOT_YET = auto()  # minCount (M) is not yet satisfied: S scheduled, R remaining
    GROUP_UNSCHEDULABLE = auto()  # pod group is unschedulable
    PLACEMENTS = auto()  # 0/N placements are available, first placement status: ...
    NO_PLACEMENTS = auto()  # no feasible placements found
    MORE_DOMAINS = auto()  # ... more than 1 domain found for pod group: A, B
    NO_DOMAIN = auto()  # ... no topology domain found for pod NS/NAME
    NO_NODE_OF_POD = auto()  # ... getting node for pod NS/NAME
    SCHEDULER_NAMES = auto()  # uniformity: A and B
    PRIORITIES = auto()
    POLICIES_OF_GROUP = auto()
    POLICIES_OF_PODS = auto()
    NO_PROFILE = auto()  # the scheduler name
    NO_GROUP = auto()  # the group object is missing
    NO_NODES = auto()  # no nodes available to schedule pods
    NOT_ELIGIBLE_POLICY = auto()  # not eligible due to preemptionPolicy=Never.
    NOT_ELIGIBLE_TERMINATING = auto()  # ... a terminating pod on the nominated node.
    ONGOING = auto()  # ongoing preemption on nominated nodes
    NO_VICTIMS_GROUP = auto()  # No preemption victims found for incoming preemptor
    NO_VICTIMS_POD = auto()  # No preemption victims found for incoming pod
    NO_CANDIDATES = auto()  # 0/N nodes are available: ... (from the statuses of the candidates)
    EXPECTED_VICTIM = auto()  # expected at least one victim pod on node "X"
    FOUND_GROUP = auto()  # found a placement for podgroup, preempting N victims
    FOUND_POD = auto()  # found a potential placement for pod on node X, preempting N victims
    CHILD_FAILED = auto()  # composite pod group evaluation failed due to child error: ...
    TOO_MANY_LEVELS = auto()  # the groups above NAME are more than N levels, or a circle
    CLAIMS_DEALLOCATED = auto()  # deallocation and deletion of ResourceClaims completed
    SILENT = auto()  # a plugin that has nothing to state
    NOT_HELPFUL = auto()  # Preemption is not helpful for scheduling
    PLUGIN_FAILED = auto()  # error in "X" PodGroupPostFilter plugins: ...


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence with its parameters, in the order in which the text names them."""

    sentence: Sentence
    values: tuple[str | int, ...] = ()
    inner: tuple[Explanation, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why no node fits a pod: counts per reason over `nodes` nodes.

    `everywhere` is set when PreFilter refused all of them at once. `refusals`: the same nodes, each
    counted once, by the first code that refused it.
    """

    nodes: int
    counts: tuple[tuple[Reason, int], ...] = ()
    everywhere: Reason | None = None
    error: bool = False
    refusals: tuple[tuple[Rejection, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """How one group of a tree came off; `failure` is None where it reached its minimum."""

    key: str
    failure: Explanation | None = None


class Nominate(Enum):
    """What happens to a pod's nominated node when no new one is named."""

    KEEP = auto()
    CLEAR = auto()


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of the unit. `bind`: the node that it is to be bound to now, empty for none.

    `volumes` and `claims`: what is to be written before that. `group`: the key of its pod group,
    in a tree only.
    """

    uid: Uid
    bind: str = ""
    nominate: str | Nominate = Nominate.KEEP
    diagnosis: Diagnosis | None = None  # its own fit failure in this attempt
    volumes: tuple[VolumeAssignment, ...] = ()
    claims: tuple[ClaimAllocation, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class UnitVictim:
    """A victim unit (specification 7.3): its pods are evicted together or not at all.

    `pods`: slots of the snapshot, sorted by node name and pod key. `group` empty for a plain pod.
    """

    pods: tuple[int, ...]
    priority: int
    group: str = ""
    whole_group: bool = False  # disruption mode all
    violating: int = 0  # pods whose eviction breaks a budget
    lost: int | None = None  # device-seconds, `harm.IDLE` for idle work; None: it played no role


def pods_of(victims: Sequence[UnitVictim]) -> I64:
    """Return the slots of all pods of these units, in order."""
    # A plan may have a hundred thousand of them: no step of this is Python's.
    pods: chain[int] = chain.from_iterable(map(attrgetter("pods"), victims))
    return np.fromiter(pods, np.int64)


@dataclass(frozen=True, slots=True)
class Preemption:
    """What PostFilter found. `victims` are most important first; `nominated`: (pod, node name).

    `unhelpful`: how many nodes state what, when a plain pod has no candidate; nodes that were not
    examined are counted too. `reprieved`: units reprieved, by rule. `refused`: for `-v 6`, units
    that could not be reprieved, with the first filter that refused. `placements`: how many were
    tried in the empty state. `gap`: per cent by which the victims' pods, their lost work with
    `harmOrder`, or their devices where several planes decide, exceed at most what has to be evicted
    at this priority; None where no bound is known.
    """

    code: Code
    explanation: Explanation
    victims: tuple[UnitVictim, ...] = ()
    nominated: tuple[tuple[Uid, str], ...] = ()
    violating: int = 0  # pods
    group_disruptions: int = 0  # units of type group
    reprieved: tuple[tuple[str, int], ...] = ()
    refused: tuple[tuple[int, str], ...] = ()  # slot of a pod of the unit, filter name
    evaluated: bool = True  # victims were searched, so metrics of the evaluation are observed
    keep_nominations: bool = False  # not eligible: present nominations stay
    unhelpful: tuple[tuple[Reason | Explanation, int], ...] = ()
    placements: int = 1
    gap: int | None = None


@dataclass(frozen=True, slots=True)
class Deallocation:
    """A ResourceClaim whose allocation is to be cleared, or that is to be deleted."""

    namespace: str
    name: str
    uid: Uid
    delete: bool = False


@dataclass(frozen=True, slots=True)
class GangCycle:
    """What else a cycle of a gang, or of a pod that preempts as a job of one, ends in.

    `key`: the preemptor's: gang group id, or namespace/name. `trigger`: the first member that did
    not fit. `job`: what its preemption ended in; None when there was none. `parked`: members that
    were given a node and wait in Permit, each for its own of `waits` nanoseconds. `rejected`:
    members that waited there before and no longer do; `gave_back`: because the trigger's gang gives
    back what it has as soon as one does not fit. `bound_before`: members that waited and are bound
    now too, with their node. `waiting` of the group's `pods` had a node when the cycle ended;
    `surplus` of them are beyond the minimum, and block a job's preemption as all others do.
    """

    key: str
    trigger: Uid | None = None
    job: JobPreemption | None = None
    parked: tuple[tuple[Uid, str], ...] = ()
    waits: tuple[int, ...] = ()
    rejected: tuple[Uid, ...] = ()
    gave_back: bool = False
    bound_before: tuple[tuple[Uid, str], ...] = ()
    waiting: int = 0
    pods: int = 0
    surplus: int = 0


@dataclass(frozen=True, slots=True)
class Spared:
    """Pods of lower priority within their minimum runtime, and when that of the first ends.

    `until`: Unix seconds.
    """

    pods: int
    until: int


@dataclass(frozen=True, slots=True)
class Held:
    """Pods of lower priority that the governor holds, until when the first, and by which rule.

    `budget`: the harm budget that spares the first.
    """

    pods: int
    until: Nanos
    rule: Rule
    budget: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The end of one scheduling cycle of a unit.

    `code`: SUCCESS when at least the minimum is placed and `members` state which pod is bound
    where.
    `status`: sentences of the group's (or a failing check's) status, in order; a plain pod's is its
    member's diagnosis. `plan`: set when victims are to be evicted. `parts`: of a tree all groups,
    composite ones too; `status` is then the root's. `spared`: units that might have been preempted
    otherwise, where no victims were found; `held`: likewise, but for the governor of disruptions;
    `protected`: how many pods more, but for a class of their own.
    `delayed`: no victims were searched for, as the unit preempts from then on only.
    `elsewhere`: why further placements have no node for the first pod that has none there.
    """

    unit: Unit
    code: Code
    members: tuple[Member, ...]
    status: tuple[Explanation, ...] = ()
    scheduler_error: bool = False  # reason SchedulerError instead of Unschedulable
    preemption: Preemption | None = None
    plan: Plan | None = None
    gang: GangCycle | None = None
    deallocations: tuple[Deallocation, ...] = ()  # claims in the way of a unit that was not placed
    placements: tuple[int, int] = (0, 0)  # examined with success and without (groups only)
    parts: tuple[GroupStatus, ...] = ()
    spared: Spared | None = None
    protected: int = 0
    held: Held | None = None
    delayed: Nanos | None = None
    elsewhere: tuple[Diagnosis, ...] = ()


def with_inner(explanations: Iterable[Explanation]) -> Iterator[Explanation]:
    """Yield explanations, each before those in it."""
    for each in explanations:
        yield each
        yield from with_inner(each.inner)
