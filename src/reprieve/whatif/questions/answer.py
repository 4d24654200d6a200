"""The answer: does what was submitted start, who is preempted, where it runs, and why it waits.

`Starts`, `StartsWithVictims`, `Waits` or `NeverFits` for each thing submitted that is decided
about; the worst of them for all. How it is read from a run stands in `whatif.questions.judging`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.diagnosis.estimates import Estimate
from reprieve.engine.diagnosis.model import Diagnosis, Fix
from reprieve.whatif.questions.asked import Asks
from reprieve.whatif.questions.idle_reason import IdleReason
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.wording.changes import Written

__all__ = [
    "GATED",
    "Answer",
    "Borrowed",
    "Displaced",
    "Fragile",
    "Outcome",
    "Placed",
    "Verdict",
]

#: The reason of what a scheduling gate holds back, whose owner alone knows for how long.
GATED: Final = "SchedulingGated"


class Verdict(StrEnum):
    """What becomes of it, the best first."""

    STARTS = "Starts"
    STARTS_WITH_VICTIMS = "StartsWithVictims"
    WAITS = "Waits"
    NEVER_FITS = "NeverFits"


_ORDER: Final = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Displaced:
    """One that is preempted. `devices` it gives back; `lost_device_seconds` None where not known.

    Of a Workload it is the job that is named, if it has one. `plane` chose it by `rule`; `amounts`
    are its devices by resource. `saved`: its last checkpoint since it started, None without one.
    `in_turn`: not for what was submitted, but for who was preempted for that. `reported`: when it
    would be notified before it is evicted, `evicted_by`: when it is evicted then at the latest;
    None for no notice. `delay`: it is chosen so many nanoseconds
    after the submission, 0 without any preemption delay in the cluster.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    rule: str
    devices: int
    lost_device_seconds: int | None
    plane: str = ""
    amounts: Mapping[str, int] = field(default_factory=dict)
    saved: Nanos | None = None
    in_turn: bool = False
    reported: Nanos | None = None
    evicted_by: Nanos | None = None
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a pod runs."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What a ClusterQueue uses over its nominal quota afterwards; `cpu` in milli units.

    `reclaimers`: the ClusterQueues of its cohort that lend it and may reclaim it.
    """

    cluster_queue: str
    amounts: Mapping[str, int]
    reclaimers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fragile:
    """With so much less free, in base units, this becomes of it, or others are preempted.

    On a Node, or of a `flavor` of a ClusterQueue.
    """

    resource: str
    amount: int
    kind: str
    name: str
    flavor: str
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of one thing that was submitted.

    `verdict` is None for what no plane decides about. `reason` and `message`: why it waits, those
    of the condition on it unless there is a `diagnosis`. `condition`: reason and message of that.
    `waiting`: kind and name of what waits, a Workload, PodGroup or pod. `pods`: how many it has and
    how many have a node, as far as they are placed here; `pods_requested`: how many it requests
    where it is admitted with fewer. `pods_without_victims`: how many would start without
    preemption; None where no work has to be preempted, or it was not computed. `pods_if_fewer`: of
    pods that start only together, how many would start without if only these were submitted; None
    where that is none, or some start anyhow. `asks`: what its pods request; `short`: what of that
    is missing without preemption, by resource.
    `pods_on_empty_cluster`: of what never fits, how many have a node where no work runs.
    `estimate`: when it starts at the latest; `idle`: why no idle work is preempted for it.
    `written`: what changes that would help are in the manifests.
    """

    kind: str
    namespace: str
    name: str
    verdict: Verdict | None
    reason: str = ""
    message: str = ""
    queue: str = ""
    cluster_queue: str = ""
    priority: int | None = None
    pods: int = 0
    placed: int = 0
    pods_requested: int | None = None
    condition: tuple[str, str] = ("", "")
    waiting: tuple[str, str] = ("", "")
    diagnosis: Diagnosis | None = None
    pods_without_victims: int | None = None
    pods_if_fewer: int | None = None
    asks: Asks = field(default_factory=Asks)
    short: Mapping[str, int] = field(default_factory=dict)
    pods_on_empty_cluster: int | None = None
    estimate: Estimate | None = None
    idle: IdleReason | None = None
    written: Mapping[Fix, tuple[Written, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole answer. `verdict`: None where nothing of it is decided about."""

    verdict: Verdict | None
    reason: str
    message: str
    outcomes: tuple[Outcome, ...]
    victims: tuple[Displaced, ...]
    placement: tuple[Placed, ...]
    snapshot: Snapshot
    rest: bool
    warnings: tuple[str, ...] = ()
    borrowed: tuple[Borrowed, ...] = ()
    fragile: Fragile | None = None

    @property
    def evicts_in_vain(self) -> bool:
        """Whether submitting it evicts others and starts nothing of it."""
        return bool(self.victims) and not any(
            each.placed or each.verdict in (Verdict.STARTS, Verdict.STARTS_WITH_VICTIMS)
            for each in self.outcomes
        )

    def judged_again(self, outcomes: tuple[Outcome, ...]) -> Answer:
        """Return the answer with other outcomes; what is stated of all is that of the worst."""
        judged = [each for each in outcomes if each.verdict is not None]
        worst = max(judged, key=_badness, default=None)
        return replace(
            self,
            verdict=None if worst is None else worst.verdict,
            reason="" if worst is None else worst.reason,
            message="" if worst is None else worst.message,
            outcomes=outcomes,
        )


def _badness(outcome: Outcome) -> int:
    return -1 if outcome.verdict is None else _ORDER.index(outcome.verdict)
