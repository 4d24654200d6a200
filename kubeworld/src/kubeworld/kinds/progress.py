"""How far the pods below an object are, in the words of its kind's status.

The states are read off the pods at the lower end of the chain: suspended when the spec states it,
else pending until every pod runs and is ready, succeeded when all have succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from kubeworld.kinds.families import TRAINING
from kubeworld.objects.conditions import set_condition
from kubeworld.objects.pods import is_over, is_ready

__all__ = ["COUNTS", "STATUSES", "State", "state_of"]

Object = dict[str, Any]


class State(Enum):
    """Of everything below one object."""

    SUSPENDED = auto()
    PENDING = auto()
    RUNNING = auto()
    SUCCEEDED = auto()


Status: TypeAlias = dict[str, Any]
_Writer: TypeAlias = Callable[[Status, State, str], None]


def state_of(pods: list[Object], suspended: bool) -> State:
    """Return the state that these pods make."""
    if suspended:
        return State.SUSPENDED
    phases = [(pod.get("status") or {}).get("phase") for pod in pods]
    if pods and all(phase == "Succeeded" for phase in phases):
        return State.SUCCEEDED
    live = [p for p, phase in zip(pods, phases, strict=True) if phase != "Succeeded"]
    return State.RUNNING if live and all(map(is_ready, live)) else State.PENDING


def _words(field: str, suspended: str, pending: str, running: str, succeeded: str) -> _Writer:
    words = {
        State.SUSPENDED: suspended,
        State.PENDING: pending,
        State.RUNNING: running,
        State.SUCCEEDED: succeeded,
    }

    def write(status: Status, state: State, now: str) -> None:
        if words[state]:
            status[field] = words[state]
        else:
            status.pop(field, None)

    return write


def _together(*writers: _Writer) -> _Writer:
    def write(status: Status, state: State, now: str) -> None:
        for writer in writers:
            writer(status, state, now)

    return write


def _ready(status: Status, state: State, now: str) -> None:
    set_condition(status, "Ready", state is State.RUNNING, now)


def _conditions(**of: State) -> _Writer:
    """Return the writer of conditions, each true in its state; the false ones only once seen."""

    def write(status: Status, state: State, now: str) -> None:
        known = {found["type"] for found in status.get("conditions") or ()}
        for kind, its in of.items():
            if its is state or kind in known:
                set_condition(status, kind, its is state, now)

    return write


_KUBEFLOW: Final = _conditions(
    Suspended=State.SUSPENDED,
    Created=State.PENDING,
    Running=State.RUNNING,
    Succeeded=State.SUCCEEDED,
)
_KAIWO: Final = _words("status", "PENDING", "PENDING", "RUNNING", "COMPLETE")
_AIM: Final = _words("status", "Pending", "Pending", "Running", "Running")

_SPARK: Final = _words("state", "SUSPENDED", "SUBMITTED", "RUNNING", "COMPLETED")


def _spark(status: Status, state: State, now: str) -> None:
    _SPARK(status.setdefault("applicationState", {}), state, now)


STATUSES: Final[Mapping[str, _Writer]] = {
    "rayclusters.ray.io": _words("state", "suspended", "", "ready", "ready"),
    "rayjobs.ray.io": _together(
        _words("jobDeploymentStatus", "Suspended", "Initializing", "Running", "Complete"),
        _words("jobStatus", "", "PENDING", "RUNNING", "SUCCEEDED"),
    ),
    "rayservices.ray.io": _words("serviceStatus", "", "", "Running", "Running"),
    "kaiwojobs.kaiwo.silogen.ai": _KAIWO,
    "kaiwoservices.kaiwo.silogen.ai": _KAIWO,
    "aimservices.aim.silogen.ai": _AIM,
    "aimservices.aim.eai.amd.com": _AIM,
    "inferenceservices.serving.kserve.io": _ready,
    "appwrappers.workload.codeflare.dev": _words(
        "phase", "Suspended", "Resuming", "Running", "Succeeded"
    ),
    "jobsets.jobset.x-k8s.io": _together(
        _words("terminalState", "", "", "", "Completed"), _conditions(Completed=State.SUCCEEDED)
    ),
    "leaderworkersets.leaderworkerset.x-k8s.io": _conditions(
        Progressing=State.PENDING, Available=State.RUNNING
    ),
    **{f"{kind.lower()}s.kubeflow.org": _KUBEFLOW for kind in (*TRAINING, "MPIJob")},
    "sparkapplications.sparkoperator.k8s.io": _spark,
    "trainjobs.trainer.kubeflow.org": _conditions(
        Suspended=State.SUSPENDED, Complete=State.SUCCEEDED
    ),
}
"""By resource: changes a status in place to show a state."""


def _groups_of_leaders(owner: Object, pods: list[Object], status: Status) -> None:
    prefix = "leaderworkerset.sigs.k8s.io"
    leaders = [
        pod
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(f"{prefix}/role") == "leader"
        and not is_over(pod)
    ]
    status["replicas"] = len(leaders)
    status["readyReplicas"] = sum(map(is_ready, leaders))
    status["hpaPodSelector"] = f"{prefix}/name={owner['metadata']['name']},{prefix}/role=leader"


COUNTS: Final[Mapping[str, Callable[[Object, list[Object], Status], None]]] = {
    "leaderworkersets.leaderworkerset.x-k8s.io": _groups_of_leaders,
}
"""By resource: changes a status in place to show how many replicas there are, as `scale` does."""
