"""`Preemption` (`reprieve.dev/v1alpha1`): intent log and record of every eviction, as structs.

The spec is written once, before anything is evicted, and never changes (CEL in the CRD); the status
states how far the operator got. Objects live in the operator's namespace and are written by the
operator alone. What is too large for one object stands in `PreemptionPart` objects beside it, which
are written before it and named in it. Source: the design's section "Intent log and executor".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = [
    "API_VERSION",
    "DRY_RUN_LABEL",
    "FORMER_REPLICAS",
    "NOTICE",
    "NOTICE_FILE",
    "NOTICE_MAX",
    "NOTICE_SPEAKER",
    "NOTICE_TOLD",
    "ON_PREEMPTION",
    "PLAN_ANNOTATION",
    "PREEMPTION_DELAY",
    "PREEMPTION_LABEL",
    "PREEMPT_MIN_RUNTIME",
    "SAVE_COST",
    "Action",
    "Frees",
    "Guard",
    "IntentPhase",
    "Metadata",
    "ObjectRef",
    "PartSpec",
    "PartVictim",
    "Placement",
    "Preemption",
    "PreemptionPart",
    "PreemptionSpec",
    "PreemptionStatus",
    "Proof",
    "Rejected",
    "Stage",
    "SubjectClass",
    "Victim",
    "VictimClass",
    "VictimGuard",
    "VictimNotice",
    "VictimState",
    "VictimStatus",
]

API_VERSION: Final = "reprieve.dev/v1alpha1"
PLAN_ANNOTATION: Final = "reprieve.dev/plan"
DRY_RUN_LABEL: Final = "reprieve.dev/dry-run"
#: On a part: the name of the Preemption that it belongs to.
PREEMPTION_LABEL: Final = "reprieve.dev/preemption"
#: For how long after its start, or its admission, work is no victim; a duration.
PREEMPT_MIN_RUNTIME: Final = "reprieve.dev/preempt-min-runtime"
ON_PREEMPTION: Final = "reprieve.dev/on-preemption"
#: On a root that was scaled to zero: how many replicas it had.
FORMER_REPLICAS: Final = "reprieve.dev/former-replicas"
#: On a pod: how long before its eviction it requests notice; a duration.
NOTICE: Final = "reprieve.dev/notice"
#: On a ClusterQueue, LocalQueue or PriorityClass: the longest notice for its victims; a duration.
NOTICE_MAX: Final = "reprieve.dev/notice-max"
#: On a pod: how long its save lasts; a duration.
SAVE_COST: Final = "reprieve.dev/save-cost"
#: On a pod: it answers for its unit.
NOTICE_SPEAKER: Final = "reprieve.dev/notice-speaker"
#: When the work last wrote down how far it is, RFC 3339; on a pod, its PodGroup or Workload.
LAST_CHECKPOINT: Final = "reprieve.dev/last-checkpoint"
#: On a pod: `true`, it reads its notice from a file.
NOTICE_FILE: Final = "reprieve.dev/notice-file"
#: What the operator writes there; JSON, which a downwardAPI volume shows.
NOTICE_TOLD: Final = "reprieve.dev/notice-told"
#: On a ClusterQueue or a class of priorities: how long its work waits before it preempts; a
#: duration.
PREEMPTION_DELAY: Final = "reprieve.dev/preemption-delay"


class Action(StrEnum):
    """What is done to a victim's root."""

    DELETE = "Delete"
    SCALE_TO_ZERO = "ScaleToZero"
    SUSPEND = "Suspend"


class IntentPhase(StrEnum):
    """How far an intent is: the first three are open, the others are final.

    NOTICED: no victim is marked or evicted yet, since victims got notice before.
    """

    PLANNED = "Planned"
    NOTICED = "Noticed"
    EVICTING = "Evicting"
    COMPLETED = "Completed"
    ABANDONED = "Abandoned"

    @property
    def open(self) -> bool:
        """Whether the operator still has to do something about it."""
        return self in (IntentPhase.PLANNED, IntentPhase.NOTICED, IntentPhase.EVICTING)


class VictimState(StrEnum):
    """How a victim came out of it.

    A victim is EVICTED in at most one record, that of the plan by which it was evicted. GONE: it
    was found deleted or ending by another plan, or by another actor.
    """

    PENDING = "Pending"
    EVICTED = "Evicted"
    GONE = "Gone"
    SPARED = "Spared"
    FAILED = "Failed"

    @property
    def over(self) -> bool:
        """Whether the victim is out of the way."""
        return self in (VictimState.EVICTED, VictimState.GONE)


class _Struct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Common settings: camel case in JSON, defaults left out."""


class ObjectRef(_Struct, frozen=True):
    """One API object, by identity: the form of `units.references.Reference` on the wire.

    The engine's value knows no msgspec, and reading a record refuses a reference without a uid.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""

    @classmethod
    def of(cls, reference: Reference) -> ObjectRef:
        """Return a reference as a record has it."""
        return cls(
            reference.api_version,
            reference.kind,
            reference.name,
            reference.uid,
            reference.namespace,
        )

    @property
    def reference(self) -> Reference:
        """The object, as everything but the wire names it."""
        return Reference(self.api_version, self.kind, self.namespace, self.name, Uid(self.uid))


class Frees(_Struct, frozen=True):
    """What the eviction of a victim frees: quota, capacity on nodes, or both."""

    quota: bool = False
    room: bool = False


class VictimNotice(_Struct, frozen=True):
    """Until when a victim with notice may save: instants, which never change.

    `extend_until`: to when the deadline moves at most.
    """

    deadline: str
    extend_until: str


class Victim(_Struct, frozen=True):
    """One victim as planned: the object that is marked and the root that is evicted.

    `unit`: victims that bear the same one are evicted together or not at all; empty for one that is
    evicted alone. `lineage` and `lost_device_seconds` are the unit's, and stand with its first
    victim. `plane`, whose rule permits it, and `frees` stand there where several planes decide.
    `notice`: of all of a unit that gets notice before it is evicted; `notice_withheld`: why one
    that requests notice gets none.
    """

    subject: ObjectRef
    root: ObjectRef
    amounts: dict[str, int]
    rule: str
    reason: str = ""
    action: Action = Action.DELETE
    unit: str = ""
    lineage: str = ""
    lost_device_seconds: int = 0
    plane: str = ""
    frees: Frees | None = None
    notice: VictimNotice | None = None
    notice_withheld: str = ""


class Guard(_Struct, frozen=True):
    """A condition for starting: the subject is in one of these phases."""

    subject: ObjectRef
    phases: list[str]


class Placement(_Struct, frozen=True):
    """Where a pod of the preemptor was proven to fit."""

    uid: str
    node: str


class Stage(_Struct, frozen=True):
    """A plane that sees a demand through, and the record that it wrote; empty for this one."""

    plane: str
    preemption: str = ""


class Rejected(_Struct, frozen=True):
    """A plane that does not evict for the demand, and why."""

    plane: str
    reason: str


class Proof(_Struct, frozen=True):
    """Need, credit and freed amounts per resource name, and the level they were proven at.

    `quota` and `placement`: how far each half is proven, where several planes decide. `profile` and
    `gap`: how victims were chosen, and by how many per cent they may exceed the least possible.
    """

    level: str
    compatible: bool = False
    need: dict[str, int] = {}
    in_flight: dict[str, int] = {}
    freed: dict[str, int] = {}
    free: dict[str, int] = {}
    quota: str = ""
    placement: str = ""
    profile: str = ""
    gap: int | None = None


class PreemptionSpec(_Struct, frozen=True):
    """The decision. Immutable.

    `parts`: names of the objects that hold `victims`, `placement` and `guards`, in order, where one
    object is too small for them; `victim_count` states how many victims they hold. `input_parts`:
    likewise for the data of `input`. `stages`, `rejected`, `depth`, `debt_of`,
    `preemptor_priority` and `reclaims_any` stand there where several planes decide
    (`engine.demands`).
    """

    plane: str
    plan_id: str
    attempt: int
    proof: Proof
    victims: list[Victim]
    decided_at: str
    preemptor: ObjectRef | None = None
    revision: int = 0
    reprieved: dict[str, int] = {}
    guards: list[Guard] = []
    placement: list[Placement] = []
    dry_run: bool = False
    input: dict[str, Any] | None = None
    parts: list[str] = []
    input_parts: list[str] = []
    victim_count: int = 0
    preemptor_lineage: str = ""
    stages: list[Stage] = []
    rejected: list[Rejected] = []
    depth: int = 0
    debt_of: str = ""
    preemptor_priority: int | None = None
    reclaims_any: bool = False

    @property
    def number_of_victims(self) -> int:
        """How many victims the plan has, be they here or in parts."""
        return self.victim_count or len(self.victims)


class VictimStatus(_Struct, frozen=True):
    """What became of one victim; `uid` is that of its root."""

    uid: str
    state: VictimState
    at: str = ""
    message: str = ""


class PreemptionStatus(_Struct, frozen=True):
    """How far the operator got, who does it, and under which epoch of the process lease.

    `victims`: of a plan in parts only some of those that were not evicted; `victims_by_state`
    counts all, and `numbers_by_state` states which they are, by their places in the plan
    ("0-3998,4000"). `disruptions_pending`: not all of its Disruptions are written yet.
    `lost_after_save`: device seconds that victims lost who had saved after a notice, from then on,
    by the uid of their root.
    `extended`: to when their deadlines were extended, likewise. `saved_pods`: uids of pods that
    reported their save while others of the plan still saved. `untold`: the former name of
    `disruptions_pending`, read and not written.
    """

    phase: IntentPhase
    owner: str = ""
    epoch: int = 0
    reason: str = ""
    victim_count: int = 0
    victims: list[VictimStatus] = []
    victims_by_state: dict[str, int] = {}
    numbers_by_state: dict[str, str] = {}
    started_at: str = ""
    finished_at: str = ""
    disruptions_pending: bool = False
    lost_after_save: dict[str, int] = {}
    extended: dict[str, str] = {}
    saved_pods: list[str] = []
    untold: bool = False

    @property
    def owes_disruptions(self) -> bool:
        """Whether some of its Disruptions are still to be written."""
        return self.disruptions_pending or self.untold


class Metadata(_Struct, frozen=True):
    """The part of object metadata that the log needs."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Preemption(msgspec.Struct, frozen=True, rename="camel"):
    """One intent and, once it is final, the record of it."""

    metadata: Metadata
    spec: PreemptionSpec
    status: PreemptionStatus = PreemptionStatus(IntentPhase.PLANNED)
    api_version: str = API_VERSION
    kind: str = "Preemption"


class SubjectClass(_Struct, frozen=True):
    """What the subjects of victims have in common, where they are no roots.

    `name`: with `*` for the root's name and `#` for the first letters of its uid; empty where that
    does not give their names.
    """

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""


class VictimClass(_Struct, frozen=True):
    """What victims have in common: all but who they are.

    `reason`: of those that state no other.
    """

    api_version: str
    kind: str
    rule: str
    namespace: str = ""
    amounts: dict[str, int] = {}
    action: Action = Action.DELETE
    subject: SubjectClass | None = None
    reason: str = ""
    plane: str = ""
    frees: Frees | None = None
    notice: VictimNotice | None = None
    notice_withheld: str = ""


class PartVictim(_Struct, frozen=True, array_like=True):
    """One victim within a part: its root, without what its class states. A JSON array.

    `number`: of its class within the part; `unit`: of its unit, None for a victim that is evicted
    alone; `reason`: None where it is that of its class. `subject_uid` stands where the subject is
    another object than the root, `subject_name` where the class does not give it. What is empty at
    the end is left out. `lineage` and `lost` as in `Victim`.
    """

    name: str
    uid: str
    number: int = 0
    unit: int | None = None
    reason: str | None = None
    subject_uid: str | None = None
    subject_name: str | None = None
    lineage: str | None = None
    lost: int | None = None


class VictimGuard(_Struct, frozen=True, array_like=True):
    """Guards about the subjects of a part's victims, from the `first` to the `last` of the part."""

    first: int
    last: int
    phases: list[str]


class PartSpec(_Struct, frozen=True):
    """A piece of a plan, or of the input that it was decided on. Immutable.

    `victims`, `placement` and `guards` are texts of many lines: a `PartVictim` each, a uid and a
    node as a JSON array, a `VictimGuard` or a `Guard`. Thousands of objects in an object would cost
    an API server a second and more for each write, and a text costs it nothing.

    `preemption`: name of the Preemption; without one that names it, a part means nothing. `index`:
    its place among the parts of the same sort. `input`: a piece of the input's data.
    """

    preemption: str
    plan_id: str
    decided_at: str
    index: int
    classes: list[VictimClass] = []
    units: list[str] = []
    victims: str = ""
    placement: str = ""
    guards: str = ""
    input: str = ""


class PreemptionPart(msgspec.Struct, frozen=True, rename="camel"):
    """One part as it is stored."""

    metadata: Metadata
    spec: PartSpec
    api_version: str = API_VERSION
    kind: str = "PreemptionPart"
