"""What an API server fills in of a new pod, beyond plain defaults.

In this order: a limit stands in for a request that is missing; LimitRanges give each container what
it still lacks; where the whole pod has limits, its own requests are what its containers request by
then, or its limit; the priority class gives a number and a policy; the runtime class gives overhead
and states on which nodes; nodes that fail are tolerated for five minutes.

Each function fills in the spec that it is given. Source: the API's defaults of pods (KEP-2837 for
the whole pod), the plugins LimitRanger, Priority, RuntimeClass and DefaultTolerationSeconds, 1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kubeworld.objects.pod_sum import ALWAYS, pod_level, pod_sum
from kubeworld.objects.requests import milli_amounts
from kubeworld.units.canonical import canonical

__all__ = [
    "bind_host_ports",
    "complete_limit_range",
    "complete_whole_pod",
    "default_class",
    "give_class",
    "give_runtime",
    "range_containers",
    "request_limits",
    "tolerate_failing_nodes",
]

Object = dict[str, Any]

_FAILING: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATED_SECONDS: Final = 300
_POLICY: Final = "PreemptLowerPriority"


def request_limits(spec: Object) -> None:
    """Have each container request its limits, where it requests nothing itself."""
    for container in _containers(spec):
        resources = container.get("resources") or {}
        if resources.get("limits"):
            requests = {**resources["limits"], **(resources.get("requests") or {})}
            container["resources"] = {**resources, "requests": requests}


def bind_host_ports(spec: Object) -> None:
    """Give the ports of a pod in its node's network the same number there."""
    for container in _containers(spec) if spec.get("hostNetwork") else ():
        for port in container.get("ports") or ():
            port["hostPort"] = port.get("hostPort") or port.get("containerPort")


def complete_limit_range(item: Object) -> None:
    """Fill in the defaults of a LimitRange's item for containers from its bounds."""
    if item.get("type") != "Container":
        return
    default = {**(item.get("max") or {}), **(item.get("default") or {})}
    least = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
    item["default"], item["defaultRequest"] = default, least


def range_containers(spec: Object, items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Give containers the default requests and limits of LimitRange items; return what was given.

    Args:
        spec: of the pod.
        items: of the namespace's LimitRanges, complete; those not for containers are passed over.
    """
    notes = []
    for item in items:
        if item.get("type") != "Container":
            continue
        for group, title in (("containers", "container"), ("initContainers", "init container")):
            for container in spec.get(group) or ():
                for part, source in (("requests", "defaultRequest"), ("limits", "default")):
                    added = _fill(container, part, item.get(source) or {})
                    if added:
                        given = f"{', '.join(added)} {part[:-1]}"
                        notes.append(f"{given} for {title} {container['name']}")
    return notes


def complete_whole_pod(spec: Object) -> None:
    """Fill in the requests of the whole pod, where it has limits."""
    own = spec.get("resources") or {}
    limits = own.get("limits") or {}
    if not limits:
        return
    asked = pod_sum(
        [_requests(each) for each in spec.get("containers") or ()],
        [
            (each.get("restartPolicy") == ALWAYS, _requests(each))
            for each in spec.get("initContainers") or ()
        ],
    )
    summed = {name: canonical(f"{asked[name]}m") for name in ("cpu", "memory") if name in asked}
    limited = {name: limits[name] for name in pod_level(dict.fromkeys(limits, 0))}
    requests = {**limited, **summed, **(own.get("requests") or {})}
    spec["resources"] = {**own, "requests": requests}


def default_class(classes: Iterable[Object]) -> Object | None:
    """Return the priority class of pods that name none: the lowest of those marked as default."""
    marked = [each for each in classes if each.get("globalDefault")]
    return min(marked, key=_value, default=None)


def _value(priority_class: Mapping[str, Any]) -> int:
    value: int = priority_class.get("value", 0)
    return value


def give_class(spec: Object, chosen: Mapping[str, Any] | None, *, with_policy: bool = True) -> None:
    """Give a pod the number and the preemption policy of its class; None: it has no class.

    A policy that it states itself stays: an API server refuses one that is not the class's.
    """
    if chosen is not None:
        spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = 0 if chosen is None else _value(chosen)
    if with_policy and spec.get("preemptionPolicy") is None:
        spec["preemptionPolicy"] = (chosen or {}).get("preemptionPolicy") or _POLICY


def give_runtime(spec: Object, runtime_class: Mapping[str, Any]) -> None:
    """Give a pod the overhead of its runtime class, and the nodes that have it."""
    fixed = (runtime_class.get("overhead") or {}).get("podFixed")
    if fixed and not spec.get("overhead"):
        spec["overhead"] = fixed
    scheduling = runtime_class.get("scheduling") or {}
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **scheduling["nodeSelector"]}
    if scheduling.get("tolerations"):
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *scheduling["tolerations"]]


def tolerate_failing_nodes(spec: Object) -> None:
    """Have a pod tolerate nodes that fail for five minutes, unless it states something of them."""
    tolerations = list(spec.get("tolerations") or ())
    for key in _FAILING:
        if not any(
            one.get("key") in (key, None, "") and one.get("effect") in ("NoExecute", None, "")
            for one in tolerations
        ):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATED_SECONDS,
                }
            )
    spec["tolerations"] = tolerations


def _containers(spec: Mapping[str, Any]) -> Iterator[Object]:
    for group in ("initContainers", "containers"):
        yield from spec.get(group) or ()


def _fill(container: Object, part: str, defaults: Mapping[str, Any]) -> list[str]:
    given = (container.get("resources") or {}).get(part) or {}
    added = sorted(name for name in defaults if name not in given)
    if added:
        wanted = {**given, **{name: defaults[name] for name in added}}
        container["resources"] = {**(container.get("resources") or {}), part: wanted}
    return added


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    return milli_amounts((container.get("resources") or {}).get("requests"))
