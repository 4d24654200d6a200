"""The steps that a scenario may have, one struct for each keyword, and the table of keywords.

Times are seconds. `root` is `Kind/name` of a root owner; its GpuWorkload is found by
`spec.workloadRef`. Source: the format of the idle plane's scenario files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

__all__ = [
    "STEP_KINDS",
    "AnnotateNamespace",
    "Apply",
    "CountStays",
    "CreateGpuWorkload",
    "Delete",
    "ExpectNoGpuWorkload",
    "ExpectPresent",
    "ExpectStatus",
    "Exporter",
    "Grant",
    "KueueClusterQueue",
    "NeverPhase",
    "PhaseName",
    "PreemptionReason",
    "Reference",
    "Remember",
    "Requires",
    "RestartOperator",
    "Revoke",
    "RootName",
    "SetUtilization",
    "Sleep",
    "StartOperator",
    "Step",
    "StopOperator",
    "Strict",
    "WaitAbsent",
    "WaitAdmitted",
    "WaitBound",
    "WaitCount",
    "WaitEvent",
    "WaitGpuWorkload",
    "WaitGpuWorkloadAbsent",
    "WaitPreempted",
    "WaitShare",
    "keyword_of",
]

RootName = Annotated[str, msgspec.Meta(pattern=r"^[A-Z][A-Za-z0-9]*/[a-z0-9][a-z0-9.-]*$")]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
PhaseName = Literal[
    "PendingGpu", "PendingOther", "Active", "Idle", "Preempting", "Preempted", "Deleted"
]
PreemptionReason = Literal[
    "InClusterQueue",
    "InCohortReclamation",
    "InCohortFairSharing",
    "InCohortReclaimWhileBorrowing",
]
Index = Annotated[int, msgspec.Meta(ge=0)]
Digits = Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]
Scalar = str | int | float | bool


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of the file in which every key is known."""


class Apply(Strict, frozen=True):
    """Create or update an object; `controller_owner` becomes its controlling owner."""

    object: dict[str, Any]
    controller_owner: RootName | None = None

    def __post_init__(self) -> None:
        for field in ("apiVersion", "kind"):
            if not isinstance(self.object.get(field), str):
                raise ValueError(f"object.{field} is missing or not a text")
        metadata = self.object.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise ValueError("object.metadata.name is missing or not a text")


class AnnotateNamespace(Strict, frozen=True):
    """Set annotations on the scenario's namespace."""

    annotations: dict[str, str]


class SetUtilization(Strict, frozen=True):
    """From now on the exporter reports `value` percent for the pods below a root.

    `pod_index` chooses one pod in name order, `gpu` one GPU of each pod.
    """

    pods_of: RootName
    value: float
    gpu: Index | Digits | None = None
    pod_index: Index | None = None


class Exporter(Strict, frozen=True):
    """The metrics endpoint refuses connections, or answers again."""

    state: Literal["down", "up"]


class WaitGpuWorkload(Strict, frozen=True):
    """Until the GpuWorkload of a root exists and matches; `spec` is a subset."""

    root: RootName
    timeout: Seconds
    phase: PhaseName | None = None
    phase_not: PhaseName | None = None
    phase_in: list[PhaseName] | None = None
    spec: dict[str, Any] | None = None


class WaitGpuWorkloadAbsent(Strict, frozen=True):
    """Until no GpuWorkload refers to a root."""

    root: RootName
    timeout: Seconds


class ExpectNoGpuWorkload(Strict, frozen=True):
    """No GpuWorkload refers to this root now."""

    root: RootName


class NeverPhase(Strict, frozen=True):
    """None of the phases is seen for this long, not even between two looks."""

    root: RootName
    phases: list[PhaseName]
    during: Seconds


class WaitCount(Strict, frozen=True):
    """Until exactly `count` GpuWorkloads of the namespace are in a phase."""

    phase: PhaseName
    count: Annotated[int, msgspec.Meta(ge=0)]
    timeout: Seconds


class CountStays(Strict, frozen=True):
    """The number of GpuWorkloads in one of the phases stays `count` for this long."""

    phase_in: list[PhaseName]
    count: Annotated[int, msgspec.Meta(ge=0)]
    during: Seconds


class WaitAbsent(Strict, frozen=True):
    """Until an object is deleted."""

    kind: str
    name: str
    timeout: Seconds


class ExpectPresent(Strict, frozen=True):
    """An object exists and is not being deleted."""

    kind: str
    name: str


class Delete(Strict, frozen=True):
    """Delete an object in the background."""

    kind: str
    name: str


class WaitEvent(Strict, frozen=True):
    """Until the GpuWorkload of a root has an event."""

    root: RootName
    reason: str
    type: Literal["Normal", "Warning"]
    timeout: Seconds


class WaitBound(Strict, frozen=True):
    """Until `count` running or starting pods have a node: of a PodGroup, or of none."""

    count: Annotated[int, msgspec.Meta(ge=0)]
    timeout: Seconds
    group: str = ""


class WaitAdmitted(Strict, frozen=True):
    """Until `count` workloads of a LocalQueue are admitted."""

    queue: str
    count: Annotated[int, msgspec.Meta(ge=0)]
    timeout: Seconds


class WaitPreempted(Strict, frozen=True):
    """Until the Workload of a Job has been preempted for a reason and waits again."""

    job: str
    reason: PreemptionReason
    timeout: Seconds


class WaitShare(Strict, frozen=True):
    """Until a ClusterQueue shows this weighted share; null means none."""

    cluster_queue: str
    share: int | None
    timeout: Seconds


class Remember(Strict, frozen=True):
    """Keep a field of the GpuWorkload of a root for a later `expect_status`."""

    root: RootName
    field: str
    key: str = msgspec.field(name="as")


class Reference(Strict, frozen=True):
    """A value known only while the scenario runs; exactly one of the two."""

    gpuworkload_of: RootName | None = None
    remembered: str | None = None

    def __post_init__(self) -> None:
        if (self.gpuworkload_of is None) == (self.remembered is None):
            raise ValueError("exactly one of gpuworkload_of and remembered has to be given")


class ExpectStatus(Strict, frozen=True):
    """Fields of the status now; null means absent or empty."""

    root: RootName
    fields: dict[str, Scalar | list[Any] | Reference | None]


class CreateGpuWorkload(Strict, frozen=True):
    """Write a GpuWorkload by hand; reference and name come from the live root."""

    root: RootName
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class StopOperator(Strict, frozen=True):
    """Stop all replicas."""


class StartOperator(Strict, frozen=True):
    """Start all replicas."""


class RestartOperator(Strict, frozen=True):
    """Stop all replicas, then start them."""


class Revoke(Strict, frozen=True):
    """Remove a right of the operator."""

    verb: str
    group: str
    resource: str


class Grant(Strict, frozen=True):
    """Give a right back to the operator."""

    verb: str
    group: str
    resource: str


class Requires(Strict, frozen=True):
    """Skip the scenario where this is not installed."""

    what: Literal["kueue"]


class KueueClusterQueue(Strict, frozen=True):
    """Make a ClusterQueue and a LocalQueue of that name."""

    name: str
    resource: str
    nominal_quota: int = msgspec.field(name="nominalQuota")


class Sleep(Strict, frozen=True):
    """Wait."""

    seconds: Seconds


Step = (
    Apply
    | AnnotateNamespace
    | SetUtilization
    | Exporter
    | WaitGpuWorkload
    | WaitGpuWorkloadAbsent
    | ExpectNoGpuWorkload
    | NeverPhase
    | WaitCount
    | CountStays
    | WaitAbsent
    | WaitBound
    | WaitAdmitted
    | WaitPreempted
    | WaitShare
    | ExpectPresent
    | Delete
    | WaitEvent
    | Remember
    | ExpectStatus
    | CreateGpuWorkload
    | StopOperator
    | StartOperator
    | RestartOperator
    | Revoke
    | Grant
    | Requires
    | KueueClusterQueue
    | Sleep
)

STEP_KINDS: Final[Mapping[str, type[Step]]] = {
    "apply": Apply,
    "annotate_namespace": AnnotateNamespace,
    "set_utilization": SetUtilization,
    "exporter": Exporter,
    "wait_gpuworkload": WaitGpuWorkload,
    "wait_gpuworkload_absent": WaitGpuWorkloadAbsent,
    "expect_no_gpuworkload": ExpectNoGpuWorkload,
    "never_phase": NeverPhase,
    "wait_count": WaitCount,
    "count_stays": CountStays,
    "wait_absent": WaitAbsent,
    "wait_bound": WaitBound,
    "wait_admitted": WaitAdmitted,
    "wait_preempted": WaitPreempted,
    "wait_share": WaitShare,
    "expect_present": ExpectPresent,
    "delete": Delete,
    "wait_event": WaitEvent,
    "remember": Remember,
    "expect_status": ExpectStatus,
    "create_gpuworkload": CreateGpuWorkload,
    "stop_operator": StopOperator,
    "start_operator": StartOperator,
    "restart_operator": RestartOperator,
    "revoke": Revoke,
    "grant": Grant,
    "requires": Requires,
    "kueue_cluster_queue": KueueClusterQueue,
    "sleep": Sleep,
}
_KEYWORDS: Final = {kind: keyword for keyword, kind in STEP_KINDS.items()}


def keyword_of(step: Step) -> str:
    """Return the keyword that a step has in a file."""
    return _KEYWORDS[type(step)]
