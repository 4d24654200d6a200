"""Feature gates: `--feature-gates A=true,B=false` and the mapping `scheduling.featureGates`.

The names are those of Kubernetes 1.37, and one is Koordinator's; GenericWorkload and
TopologyAwareWorkloadScheduling, which the scheduling plane is made for, are on here and off there.
A gate that is on by default is switched off with the one that it needs; requesting it then is an
error.
Source: specification of the scheduling plane, section 15; of gang jobs, 1.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reprieve.engine.placement.profile import Gates
from reprieve.settings.idle import Notice
from reprieve.units.errors import UsageError

__all__ = ["GATES", "Gate", "Wish", "gates_of_mapping", "gates_of_text", "resolve_gates"]


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate. `field`: of `Gates`; without one nothing depends on it, and `notice` states why."""

    name: str
    default: bool
    field: str = ""
    needs: tuple[str, ...] = ()
    notice: str = ""


_GENERIC: Final = "GenericWorkload"
_TOPOLOGY: Final = "TopologyAwareWorkloadScheduling"

GATES: Final = (
    Gate(_GENERIC, True, "generic_workload"),
    Gate(_TOPOLOGY, True, "topology_aware", (_GENERIC,)),
    Gate("SchedulerAsyncPreemption", True, "async_preemption"),
    Gate("PodGroupPreemptionPolicy", False, "pod_group_preemption_policy", (_GENERIC,)),
    Gate("CompositePodGroup", False, "composite_pod_group", (_GENERIC, _TOPOLOGY)),
    Gate("DRANodeAllocatableResources", False, "node_allocatable_claims"),
    Gate("PreemptionPolicyTransformer", False, "preemption_policy_label"),
    Gate("TaintTolerationComparisonOperators", False, "toleration_comparisons"),
    Gate(
        "DRAWorkloadResourceClaims",
        True,
        needs=(_GENERIC,),
        notice="it changes nothing here: what a group's resourceClaims may hold is up to the "
        "API server",
    ),
    Gate(
        "SchedulerAsyncAPICalls",
        False,
        notice="it changes nothing here: status patches always pass a queue",
    ),
    Gate(
        "WorkloadAwarePreemption",
        True,
        needs=(_GENERIC,),
        notice="removed in Kubernetes 1.37; GenericWorkload=false switches it off",
    ),
    Gate(
        "GangScheduling",
        True,
        needs=(_GENERIC,),
        notice="removed in Kubernetes 1.37; GenericWorkload=false switches it off",
    ),
)
_BY_NAME: Final = {gate.name: gate for gate in GATES}


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user requested of a gate, and how the user calls the place."""

    on: bool
    where: str


def gates_of_text(text: str, where: str = "--feature-gates") -> dict[str, Wish]:
    """Return what `A=true,B=false` requests; of a gate that is named twice the last counts.

    Raises:
        UsageError: an unknown gate, or a value that is neither true nor false.
    """
    wishes = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        _check_name(name, where)
        wishes[name] = Wish(_boolean(value, f"{where}: {name}"), where)
    return wishes


def gates_of_mapping(value: object, where: str = "scheduling.featureGates") -> dict[str, Wish]:
    """Return what a mapping of the configuration requests; None requests nothing.

    Raises:
        UsageError: not a mapping, an unknown gate, or a value that is neither true nor false.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {value!r}; accepted: a mapping from gates to true or false")
    for name in value:
        _check_name(name, where)
    return {
        name: Wish(_boolean(on, f"{where}.{name}"), f"{where}.{name}") for name, on in value.items()
    }


def resolve_gates(*tiers: Mapping[str, Wish]) -> tuple[Gates, tuple[Notice, ...]]:
    """Return the gates in force and what has no effect; of a gate the first tier counts.

    Raises:
        UsageError: a gate is requested whose needed gate is off.
    """
    wishes: dict[str, Wish] = {}
    for tier in tiers:
        wishes = {**tier, **wishes}
    on: dict[str, bool] = {}
    for gate in GATES:
        wish = wishes.get(gate.name)
        off = [name for name in gate.needs if not on[name]]
        if wish is not None and wish.on and off and gate.field:
            raise UsageError(
                f"{wish.where}: {gate.name} needs {' and '.join(off)}; accepted: "
                f"{gate.name}=false, or {', '.join(f'{name}=true' for name in off)}"
            )
        on[gate.name] = (gate.default if wish is None else wish.on) and not off
    notices = tuple(
        Notice(wish.where, f"{name}={str(wish.on).lower()}", _BY_NAME[name].notice)
        for name, wish in wishes.items()
        if _BY_NAME[name].notice
    )
    return Gates(**{gate.field: on[gate.name] for gate in GATES if gate.field}), notices


def _check_name(name: object, where: str) -> None:
    if name not in _BY_NAME:
        raise UsageError(f"{where}: unknown feature gate {name!r}; accepted: {', '.join(_BY_NAME)}")


def _boolean(value: object, where: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise UsageError(f"{where}: {value!r}; accepted: true or false")
