"""A job that needs nodes, what is known for its preemption, and how that ends.

A job is all pending pods of a gang group in one cycle, or a single pod. Texts are made in
`wording.koordinator`. Source: specification of gang jobs, sections 6 to 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final, TypeAlias

from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.reasons import Code, Reason
from reprieve.units.ids import Uid

__all__ = [
    "NO_JOBS",
    "Budgets",
    "Counts",
    "Job",
    "JobOptions",
    "JobPolicy",
    "JobPreemption",
    "JobReason",
    "NodeVerdict",
    "Placement",
    "QuotaProtection",
    "Said",
    "TriggerSpelling",
    "VictimGangs",
]


class Placement(StrEnum):
    """How the members of a job are placed."""

    SEARCH = "search"
    FIRST_FIT = "first-fit"  # as the reference does: member by member, cheapest node first


class Budgets(StrEnum):
    """What PodDisruptionBudgets mean to job preemption."""

    PREFER = "Prefer"  # victims of exhausted budgets are spared first
    REQUIRE = "Require"  # no budget is broken
    IGNORE = "Ignore"  # as the reference does


class VictimGangs(StrEnum):
    """What happens to the rest of a victim's gang."""

    POD = "Pod"  # as the reference does: nothing
    ALL = "All"  # it is evicted as a unit


class QuotaProtection(StrEnum):
    """Which ElasticQuotas protect their pods."""

    LABELS = "Labels"  # those that carry the label which protects single pods
    MIN = "Min"  # also those that use no more than they are guaranteed
    IGNORE = "Ignore"  # none, as in the reference


class TriggerSpelling(StrEnum):
    """How the condition of a victim spells the word before the trigger pod (12.2)."""

    GUIDE = "guide"
    CODE = "code"


class JobReason(Enum):
    """How an attempt at preemption ended; the reference's constants."""

    ALREADY_ATTEMPTED = auto()
    NO_PENDING_PODS = auto()
    POLICY_NEVER = auto()
    TERMINATING = auto()
    NO_NODES = auto()
    NOT_HELPFUL = auto()
    SUCCESS = auto()


class NodeVerdict(Enum):
    """The text about a node besides what filters state."""

    NO_VICTIMS = auto()
    NOT_HELPFUL = auto()


Said: TypeAlias = Reason | NodeVerdict
Counts: TypeAlias = tuple[tuple[Said, int], ...]


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """The options of job preemption. `protected_quotas`: names of quotas whose pods are protected.

    `protected_namespaces`: the same for quotas that count a whole namespace. `quotas`: which
    ElasticQuotas `intake` adds to these.
    """

    placement: Placement = Placement.SEARCH
    budgets: Budgets = Budgets.PREFER
    victim_gangs: VictimGangs = VictimGangs.POD
    protected_quotas: frozenset[str] = frozenset()
    protected_namespaces: frozenset[str] = frozenset()
    quotas: QuotaProtection = QuotaProtection.LABELS


@dataclass(frozen=True, slots=True)
class JobOptions:
    """When jobs preempt. `enabled`: for members of gangs, and for plain pods of `names`.

    `names`: scheduler names whose plain pods preempt as jobs of one. `gangs`: with
    `VictimGangs.ALL` the id of each gang and the uids of its bound pods, for jobs of one.
    """

    policy: JobPolicy = JobPolicy()
    enabled: bool = True
    names: frozenset[str] = frozenset()
    gangs: tuple[tuple[str, tuple[Uid, ...]], ...] = ()


NO_JOBS: Final = JobOptions(enabled=False)


@dataclass(frozen=True, slots=True)
class Job:
    """The job that needs nodes.

    `key`: the gang group's id, or namespace/name of a single pod. `pending`: all members without a
    node. `waiting`: members that wait in Permit, with the node that they are assumed on; they are
    in the snapshot or the simulation. `attempted`: the message of an earlier attempt in this cycle.
    `gangs`: uids of the bound pods of other gangs, for `VictimGangs.ALL`.
    """

    key: str
    trigger: Pending
    pending: tuple[Pending, ...]
    waiting: tuple[tuple[Uid, str], ...] = ()
    attempted: str = ""
    gangs: tuple[tuple[Uid, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class JobPreemption:
    """The end of an attempt; nothing is evicted unless `reason` is SUCCESS.

    `nominated`: node name of every pending member. `victims`: slots, by node name and in the order
    in which they were decided on. `possible` and `cost`: by node name, of nodes with possible
    victims. `statuses`: what was stated of nodes, by name; `counts`: the same counted, of `nodes`.
    `unplaced`: members that got no node. `terminating`: keys of pods that are waited for, with
    their node. `lower`: pods of lower priority that lose their nomination to a victim's node.
    `gangs`: slots of those victims that are evicted together, by gang. `best`: the least costly
    victims were searched for, and exceed the least possible by `gap` per cent at most, None where
    that is not known. Where it is not helpful, `allowed` is how many pods could have been evicted,
    and `protected` how many more would have had to be.
    """

    code: Code
    reason: JobReason
    nodes: int = 0
    nominated: tuple[tuple[Uid, str], ...] = ()
    victims: tuple[tuple[str, tuple[int, ...]], ...] = ()
    possible: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    cost: Mapping[str, int] = field(default_factory=dict)
    statuses: Mapping[str, tuple[Said, ...]] = field(default_factory=dict)
    counts: Counts = ()
    unplaced: tuple[Uid, ...] = ()
    terminating: tuple[tuple[str, str], ...] = ()
    lower: tuple[Uid, ...] = ()
    gangs: tuple[tuple[int, ...], ...] = ()
    violating: int = 0
    best: bool = False
    gap: int | None = None
    reprieved: tuple[tuple[str, int], ...] = ()
    allowed: int = 0
    protected: int = 0

    @property
    def slots(self) -> tuple[int, ...]:
        """Return the slots of all victims."""
        return tuple(slot for _, slots in self.victims for slot in slots)
