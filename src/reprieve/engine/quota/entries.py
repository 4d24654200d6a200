"""What a cycle decided about each of its heads.

Source: specification of the quota plane, sections 8.3 and 8.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.assignment import Assignment, Bookmark, Mode
from reprieve.engine.quota.heads import LastScan, RequeueReason
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.made_places import ByRules
from reprieve.engine.quota.model import Admission, ResourceFlavor, Workload
from reprieve.engine.quota.targets.candidates import Target
from reprieve.engine.quota.targets.protection import Spared
from reprieve.engine.topology.model import TopologyAssignment
from reprieve.engine.topology.places import NodeUse, Placed
from reprieve.units.ids import Uid

__all__ = [
    "OF_HOLDERS",
    "CycleResult",
    "Entry",
    "NodeCheck",
    "Outcome",
    "Recomputation",
    "Unready",
    "why_no_fit",
]


class Outcome(StrEnum):
    """What became of a head."""

    ADMITTED = "admitted"
    PREEMPTING = "preempting"
    DEFERRED = "deferred"
    NO_FIT = "no fit"
    NO_CANDIDATES = "no candidates"
    UNPROVEN = "unproven"  # by option: nodes would not accept it
    AWAITS_IDLE = "awaits idle work"  # idle work may be evicted for it, and is decided about first
    SKIPPED = "skipped"
    GATED = "gated"
    DELAYED = "delayed"  # it has not waited for long enough to preempt
    BLOCKED = "blocked"
    INADMISSIBLE = "inadmissible"
    NODE_REPLACED = "node replaced"  # of the places of a running one
    NODE_FAILED = "node failed"  # and there is no other for its pods
    NODE_PREEMPTING = "node preempting"  # others are preempted for its pods on other nodes
    PLACED = "placed"  # once its checks were ready
    UNPLACED = "unplaced"  # it keeps its quota, and nodes have no capacity for its pods yet
    FAULT = "fault"  # deciding about it raised an unexpected exception


#: Of workloads with quota, which are no heads.
OF_HOLDERS: Final = (
    Outcome.NODE_REPLACED,
    Outcome.NODE_FAILED,
    Outcome.NODE_PREEMPTING,
    Outcome.PLACED,
    Outcome.UNPLACED,
)


class Unready(StrEnum):
    """Reasons of `QuotaReserved=False` that do not come from the assignment."""

    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    ADMISSION_GATED = "AdmissionGated"
    MISCONFIGURED = "Misconfigured"
    PENDING_EVALUATION = "PendingEvaluation"
    PENDING = "Pending"  # for everything, without the gate UnadmittedWorkloadsObservability


class Recomputation(StrEnum):
    """What came of looking again at an entry whose targets were designated already."""

    NEW_TARGETS = "new_targets"
    DEFERRED_FIT = "deferred_fit"
    SKIPPED = "skipped"


@dataclass(slots=True)
class Entry:
    """One head in a cycle, and after it what became of it.

    `level` is the borrowing level, `counted` what the entry adds to usage. `reason` is that of
    `QuotaReserved=False`; empty where the workload got quota. `issued` are the targets whose
    eviction has to be written, without those that are evicted already; `replaced` is the slice
    whose place the workload fills; `resumed` is where an earlier scan of flavors stopped and this
    one continued, and `whole` what a scan from the first flavor states where that one found
    nothing; `saves_since` is when it waited for a save of its victims for the first time,
    `saves_until` the save that it waits for now; `spared` are the candidates that it did not
    preempt by an option, `proven` states that by another one nodes were found for all of its pods.
    `moved`: the flavor that it got in place of the first that fits, since nodes have more capacity
    there. `found`: the targets of the reference where others, that cost less, stand in their place;
    `gap`: per cent by which these exceed the least possible at most, None: not known. `as_found`:
    nodes would not have accepted it with the others. `planned`: the places that earlier victims
    were chosen for, `plan_number` is larger for younger plans. `made`: what other planes evict
    before its pods have their places, `made_pods` the uids of these pods, and `planned_made` those
    of the ones that were to leave beside earlier victims. `failure` is what deciding about it
    raised.
    """

    workload: Workload
    cluster_queue: str
    queue: int = -1
    assignment: Assignment | None = None
    targets: tuple[Target, ...] = ()
    deferred: bool = False
    preempts: bool = False
    saves_since: Nanos | None = None
    saves_until: Nanos | None = None
    outcome: Outcome = Outcome.INADMISSIBLE
    reason: str = ""
    message: str = ""
    requeue: RequeueReason = RequeueReason.GENERIC
    issued: tuple[Target, ...] = ()
    replaced: Holder | None = None
    free: Mapping[int, int] = field(default_factory=dict)
    admission: Admission | None = None
    scan: LastScan | None = None
    resumed: Bookmark | None = None
    whole: Assignment | None = None
    spared: Spared | None = None
    proven: bool = False
    moved: str = ""
    found: tuple[Target, ...] = ()
    gap: int | None = None
    best: bool = False
    as_found: bool = False
    planned: Mapping[str, TopologyAssignment] = field(default_factory=dict)
    plan_number: int = 0
    made: tuple[NodeUse, ...] = ()
    made_pods: tuple[Uid, ...] = ()
    planned_made: tuple[Uid, ...] = ()
    failure: Exception | None = None

    @property
    def mode(self) -> Mode:
        """Return the mode of the assignment as it stands."""
        assert self.assignment is not None
        return Mode.DEFERRED_FIT if self.deferred else self.assignment.mode

    @property
    def level(self) -> int:
        """Return the borrowing level."""
        return self.assignment.level if self.assignment else 0

    @property
    def placed(self) -> list[Placed]:
        """Return the places of the assignment, by flavor."""
        return [] if self.assignment is None else self.assignment.placed(self.workload)

    @property
    def counted(self) -> Mapping[int, int]:
        """Return the usage of the assignment, by flavor-resource."""
        return self.assignment.usage if self.assignment else {}


class NodeCheck(Protocol):
    """Whether preemptors would fit on nodes; `node_proof` is the one that looks."""

    def refusal(
        self, entry: Entry, holders: Iterable[Holder], flavors: Mapping[str, ResourceFlavor]
    ) -> str:
        """Return why an entry's targets are not preempted; empty if they may be."""
        ...

    def flavor_for(
        self,
        entry: Entry,
        others: Iterable[tuple[str, Assignment]],
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
    ) -> tuple[str, Assignment] | None:
        """Return which of other assignments an entry that fits gets instead; None: none of them.

        `others`: each with the flavor that it is in; made as they are looked at.
        """
        ...

    def room_made(
        self,
        entry: Entry,
        snapshot: Snapshot,
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
        by_rules: ByRules | None,
    ) -> tuple[NodeUse, ...]:
        """Return what other planes evict so that an entry gets places; nothing: they do not.

        `by_rules`: what the rules of its queue give it then; None: they are not to add victims.
        """
        ...

    def claim(self, entry: Entry, flavors: Mapping[str, ResourceFlavor]) -> None:
        """Keep capacity for an entry that needs no eviction."""
        ...

    def delays(self, entry: Entry) -> str:
        """Return why an entry does not preempt yet; empty if it may."""
        ...


@dataclass(slots=True)
class CycleResult:
    """Everything that a cycle decided; entries in the order in which they were processed.

    `count` is how many cycles it stands for. `progress` states that a workload was admitted,
    preempted or set aside; `scanned` that a scan of flavors stopped elsewhere than before.
    `retries`: by ClusterQueue, when candidates that were spared for a time may be preempted, and
    what is set aside is to be tried again. `queue_faults`: ClusterQueues whose head could not be
    popped, and why; `fault`: what ended the cycle early, where no single workload or queue caused
    it.
    """

    entries: list[Entry] = field(default_factory=list)
    skipped_preemptions: dict[str, int] = field(default_factory=dict)
    recomputations: dict[tuple[str, Recomputation], int] = field(default_factory=dict)
    retries: dict[str, Nanos] = field(default_factory=dict)
    queue_faults: dict[str, Exception] = field(default_factory=dict)
    fault: Exception | None = None
    count: int = 1
    progress: bool = False
    scanned: bool = False

    def of(self, outcome: Outcome) -> list[Entry]:
        """Return the entries with one outcome."""
        return [entry for entry in self.entries if entry.outcome is outcome]

    def retry_at(self, entry: Entry, until: Nanos) -> None:
        """Note when what is set aside in an entry's ClusterQueue is to be tried again."""
        known = self.retries.get(entry.cluster_queue, until)
        self.retries[entry.cluster_queue] = min(known, until)


def why_no_fit(assignment: Assignment, whole: Assignment | None) -> tuple[str, str]:
    """Return the reason and the message; `whole` is of all flavors where the scan continued."""
    if whole is None or whole.mode is Mode.FIT:
        return assignment.no_fit_reason or Unready.PENDING_EVALUATION, assignment.message
    if whole.mode is Mode.PREEMPT:
        return Unready.WAITING_FOR_QUOTA, whole.message
    return whole.no_fit_reason or Unready.PENDING_EVALUATION, whole.message
