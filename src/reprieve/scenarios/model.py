"""Scenario files as typed steps: what may stand in a file, read once and refused in full detail.

A file is YAML: `name`, `operator_env`, `cluster.nodes` and `steps`, each step a mapping with one
key. Times are seconds. `root` is `Kind/name` of a root owner; its GpuWorkload is found by
`spec.workloadRef`. Every key is checked before anything runs, and an error names the file, the
step by number and keyword, the field and what is accepted. Source: the format of the idle plane's
scenario files; `namespace` is our addition, for scenarios that people look at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
import yaml

from reprieve.units.errors import UsageError

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
    "InvalidScenario",
    "KueueClusterQueue",
    "NeverPhase",
    "NodeSpec",
    "Reference",
    "Remember",
    "Requires",
    "RestartOperator",
    "Revoke",
    "Scenario",
    "SetUtilization",
    "Sleep",
    "StartOperator",
    "Step",
    "StopOperator",
    "WaitAbsent",
    "WaitCount",
    "WaitEvent",
    "WaitGpuWorkload",
    "WaitGpuWorkloadAbsent",
    "keyword_of",
    "load",
    "parse",
]


class InvalidScenario(UsageError):
    """A scenario file cannot be used: file, step, field and what is accepted."""


RootName = Annotated[str, msgspec.Meta(pattern=r"^[A-Z][A-Za-z0-9]*/[a-z0-9][a-z0-9.-]*$")]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
PhaseName = Literal[
    "PendingGpu", "PendingOther", "Active", "Idle", "Preempting", "Preempted", "Deleted"
]
Scalar = str | int | float | bool


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of the file in which every key is known."""


Known = TypeVar("Known", bound=Strict)


class NodeSpec(Strict, frozen=True):
    """One node; `allocatable` and capacity are the same."""

    name: str
    allocatable: dict[str, str | int]
    labels: dict[str, str] = {}
    taints: list[dict[str, str]] = []


class ClusterSpec(Strict, frozen=True):
    """The machines of the cluster."""

    nodes: list[NodeSpec]


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
    gpu: Annotated[int, msgspec.Meta(ge=0)] | None = None
    pod_index: Annotated[int, msgspec.Meta(ge=0)] | None = None


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
    """Until an object is gone."""

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
    fields: dict[str, Scalar | Reference | None]


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
    """Take a right from the operator."""

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
# Steps whose body is not a mapping of fields but the value of this one field.
_BODY_IS: Final = {
    "annotate_namespace": "annotations",
    "exporter": "state",
    "requires": "what",
    "sleep": "seconds",
}
_PHASES: Final = ", ".join(get_args(PhaseName))
_SECONDS: Final = "a number of seconds, 0 or more"
_ROOT: Final = "Kind/name of a root owner, such as Job/training"
_ACCEPTED: Final = {
    "root": _ROOT,
    "pods_of": _ROOT,
    "controller_owner": _ROOT,
    "phase": _PHASES,
    "phase_not": _PHASES,
    "phase_in": f"a list of {_PHASES}",
    "phases": f"a list of {_PHASES}",
    "timeout": _SECONDS,
    "during": _SECONDS,
    "seconds": _SECONDS,
    "state": "down, up",
    "type": "Normal, Warning",
    "what": "kueue",
    "value": "a number, percent",
    "annotations": "a mapping of texts to texts",
    "operator_env": "a mapping of texts to texts",
    "fields": "a mapping of status fields to literals, {gpuworkload_of: Kind/name} or "
    "{remembered: key}",
}


class _File(Strict, frozen=True):
    name: str
    operator_env: dict[str, str]
    cluster: ClusterSpec
    steps: list[Any]
    source: str = ""
    ref: str = ""
    note: str = ""
    namespace: str | None = None
    operator_replicas: Annotated[int, msgspec.Meta(ge=1)] = 1


class Scenario(msgspec.Struct, frozen=True):
    """One scenario; `namespace` None means that the runner takes a fresh one."""

    name: str
    operator_env: Mapping[str, str]
    nodes: tuple[NodeSpec, ...]
    steps: tuple[Step, ...]
    operator_replicas: int = 1
    namespace: str | None = None
    note: str = ""


def load(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        InvalidScenario: the file cannot be read or does not hold a scenario.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidScenario(f"{path}: cannot be read as text: {error}") from None
    return parse(text, str(path))


def parse(text: str, where: str) -> Scenario:
    """Read a scenario from YAML text; `where` names it in errors.

    Raises:
        InvalidScenario: not a scenario; the message names step, field and what is accepted.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidScenario(f"{where}: not YAML: {' '.join(str(error).split())}") from None
    file = _convert(document, _File, where)
    steps = tuple(
        _step(step, f"{where}: step {number}") for number, step in enumerate(file.steps, start=1)
    )
    return Scenario(
        name=file.name,
        operator_env=file.operator_env,
        nodes=tuple(file.cluster.nodes),
        steps=steps,
        operator_replicas=file.operator_replicas,
        namespace=file.namespace,
        note=file.note,
    )


def keyword_of(step: Step) -> str:
    """Return the keyword that a step has in a file."""
    return _KEYWORDS[type(step)]


def _step(raw: object, where: str) -> Step:
    if not isinstance(raw, dict) or len(raw) != 1:
        raise InvalidScenario(
            f"{where}: expected a mapping with one key, the step's keyword; "
            f"accepted: {', '.join(STEP_KINDS)}"
        )
    ((keyword, body),) = raw.items()
    kind = STEP_KINDS.get(keyword)
    if kind is None:
        raise InvalidScenario(
            f"{where}: unknown step {keyword!r}; accepted: {', '.join(STEP_KINDS)}"
        )
    if keyword in _BODY_IS:
        body = {_BODY_IS[keyword]: body}
    return _convert({} if body is None else body, kind, f"{where} ({keyword})")


def _convert(raw: object, kind: type[Known], where: str) -> Known:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        field = f" {path.rstrip('`').lstrip('.')}:" if path else ""
        accepted = _ACCEPTED.get(
            re.split(r"[.\[:]", field.strip())[0],
            f"the fields {', '.join(kind.__struct_encode_fields__)}"
            if kind.__struct_encode_fields__
            else "no fields",
        )
        raise InvalidScenario(f"{where}:{field} {reason}; accepted: {accepted}") from None
