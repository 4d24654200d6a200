"""Pods: the spec on its own and what an update may change in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.internal_form import difference
from kubelocal.server.types.metadata import (
    check_labels,
    label_problem,
    qualified_name_problems,
    subdomain_problem,
)
from kubelocal.server.validation import affinity
from kubelocal.server.validation import containers as containers_of
from kubelocal.server.validation.evictions import responders
from kubelocal.server.validation.resources import container_resources, non_negative

__all__ = ["pod", "pod_spec", "pod_template_spec", "pod_update"]

Object = Mapping[str, Any]

_RESTART: Final = ("Always", "OnFailure", "Never")
_DNS: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULL: Final = ("Always", "IfNotPresent", "Never")
_VARIABLE: Final = re.compile(r"[ -<>-~]+", re.ASCII)


def pod(obj: Object) -> Iterator[Cause]:
    """Check a pod."""
    spec = obj.get("spec") or {}
    yield from pod_spec(spec, "spec", is_pod=True)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        text = "cannot be set until all schedulingGates have been cleared"
        yield causes.forbidden("spec.nodeName", text)


def pod_template_spec(template: Object, field: str) -> Iterator[Cause]:
    """Check a pod template: labels, annotations and the spec."""
    metadata = template.get("metadata") or {}
    yield from check_labels(metadata.get("labels") or {}, f"{field}.labels")
    yield from pod_spec(template.get("spec") or {}, f"{field}.spec")


def pod_spec(spec: Object, field: str, *, is_pod: bool = False) -> Iterator[Cause]:
    """Check a pod's spec at `field`; `is_pod`: it is no template."""
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    yield from _volumes(spec.get("volumes") or (), f"{field}.volumes")
    containers = spec.get("containers") or ()
    if not containers:
        yield causes.required(f"{field}.containers")
    seen: set[str] = set()
    for place in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(place) or ()):
            here = f"{field}.{place}[{index}]"
            yield from _container(container, here, volumes, seen)
            yield from containers_of.check_handlers(container, here)
    yield from _word(spec, "restartPolicy", _RESTART, field)
    yield from _word(spec, "dnsPolicy", _DNS, field)
    yield from containers_of.check_around(spec, field, is_pod=is_pod)
    yield from check_labels(spec.get("nodeSelector") or {}, f"{field}.nodeSelector")
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield causes.required(f"{field}.imagePullSecrets[{index}].name")
    yield from affinity.check_affinity(spec.get("affinity") or {}, f"{field}.affinity")
    yield from affinity.check_tolerations(spec.get("tolerations") or (), f"{field}.tolerations")
    yield from affinity.check_spread(
        spec.get("topologySpreadConstraints") or (), f"{field}.topologySpreadConstraints"
    )
    for word in ("serviceAccountName", "priorityClassName", "runtimeClassName", "nodeName"):
        value = spec.get(word)
        if value and (problem := subdomain_problem(value)) is not None:
            yield causes.bad(f"{field}.{word}", value, problem)
    for word in ("hostname", "subdomain"):
        value = spec.get(word)
        if value and (problem := label_problem(value)) is not None:
            yield causes.bad(f"{field}.{word}", value, problem)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        yield causes.bad(
            f"{field}.activeDeadlineSeconds",
            deadline,
            "must be between 1 and 2147483647, inclusive",
        )
    group = spec.get("schedulingGroup")
    if group is not None:
        name = group.get("podGroupName") or ""
        if not name:
            yield causes.bad(f"{field}.schedulingGroup", "", "must specify one of: `podGroupName`")
        elif (problem := subdomain_problem(name)) is not None:
            yield causes.bad(f"{field}.schedulingGroup.podGroupName", name, problem)
    yield from responders(spec, field)
    gates: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        here = f"{field}.schedulingGates[{index}]"
        name = gate.get("name", "")
        for problem in qualified_name_problems(name):
            yield causes.bad(here, name, problem)
        if name in gates:
            yield causes.duplicate(here, name)
        gates.add(name)
    for name, amount in (spec.get("overhead") or {}).items():
        yield from non_negative(amount, f"{field}.overhead[{name}]")


def _word(holder: Object, name: str, supported: Sequence[str], field: str) -> Iterator[Cause]:
    value = holder.get(name)
    if not value:
        yield causes.required(f"{field}.{name}")
    elif value not in supported:
        yield causes.unsupported(f"{field}.{name}", value, supported)


def _volumes(volumes: Sequence[Object], field: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        name = volume.get("name", "")
        if not name:
            yield causes.required(f"{field}[{index}].name")
        elif (problem := label_problem(name)) is not None:
            yield causes.bad(f"{field}[{index}].name", name, problem)
        if name in seen:
            yield causes.duplicate(f"{field}[{index}].name", name)
        seen.add(name)
        sources = [word for word, value in volume.items() if word != "name" and value is not None]
        for source in sources[1:]:
            yield causes.forbidden(
                f"{field}[{index}].{source}", "may not specify more than 1 volume type"
            )
        for source, word in (
            ("persistentVolumeClaim", "claimName"),
            ("hostPath", "path"),
            ("configMap", "name"),
            ("secret", "secretName"),
        ):
            if source in volume and not volume[source].get(word):
                yield causes.required(f"{field}[{index}].{source}.{word}")


def _container(
    container: Object, field: str, volumes: Sequence[str], seen: set[str]
) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield causes.required(f"{field}.name")
    elif (problem := label_problem(name)) is not None:
        yield causes.bad(f"{field}.name", name, problem)
    elif name in seen:
        yield causes.duplicate(f"{field}.name", name)
    seen.add(name)
    image = container.get("image", "")
    if not image:
        yield causes.required(f"{field}.image")
    elif image != image.strip():
        yield causes.bad(f"{field}.image", image, "must not have leading or trailing whitespace")
    yield from containers_of.check_message(container, field)
    yield from _ports(container.get("ports") or (), f"{field}.ports")
    for index, variable in enumerate(container.get("env") or ()):
        yield from _variable(variable, f"{field}.env[{index}]")
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here = f"{field}.volumeMounts[{index}]"
        if not mount.get("name"):
            yield causes.required(f"{here}.name")
        elif mount["name"] not in volumes:
            yield Cause("FieldValueNotFound", f'Not found: "{mount["name"]}"', f"{here}.name")
        path = mount.get("mountPath")
        if not path:
            yield causes.required(f"{here}.mountPath")
        elif path in paths:
            yield causes.bad(f"{here}.mountPath", path, "must be unique")
        paths.add(path or "")
    policy = container.get("imagePullPolicy")
    if policy and policy not in _PULL:
        yield causes.unsupported(f"{field}.imagePullPolicy", policy, _PULL)
    yield from container_resources(container.get("resources") or {}, f"{field}.resources")


def _ports(ports: Sequence[Object], field: str) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{field}[{index}]"
        number = port.get("containerPort", 0)
        if not number:
            yield causes.required(f"{here}.containerPort")
        elif not 1 <= number <= 65535:
            yield causes.bad(
                f"{here}.containerPort", number, "must be between 1 and 65535, inclusive"
            )
        name = port.get("name")
        problems = list(containers_of.port_name(name, f"{here}.name")) if name else []
        yield from problems
        if name and not problems and name in names:
            yield causes.duplicate(f"{here}.name", name)
        names.add(name or "")
        protocol = port.get("protocol")
        if protocol not in ("SCTP", "TCP", "UDP"):
            yield causes.unsupported(f"{here}.protocol", protocol, ("SCTP", "TCP", "UDP"))


def _variable(variable: Object, field: str) -> Iterator[Cause]:
    name = variable.get("name", "")
    if not name:
        yield causes.required(f"{field}.name")
    elif not _VARIABLE.fullmatch(name):
        yield causes.bad(
            f"{field}.name",
            name,
            "a valid environment variable name must consist only of printable ASCII characters "
            "other than '='",
        )
    yield from containers_of.variable_source(variable, field)


_CHANGEABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions"
    " to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it"
    " was previously negative)"
)


def pod_update(obj: Object, old: Object) -> Iterator[Cause]:
    """Yield the changes of a pod's spec that are not allowed."""
    new, was = dict(obj.get("spec") or {}), dict(old.get("spec") or {})
    gates = [gate.get("name") for gate in was.get("schedulingGates") or ()]
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in gates:
            yield causes.forbidden(
                f"spec.schedulingGates[{index}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
            )
    tolerations = [_without_seconds(one) for one in new.get("tolerations") or ()]
    if any(_without_seconds(one) not in tolerations for one in was.get("tolerations") or ()):
        yield causes.forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        )
    deadline, former = new.get("activeDeadlineSeconds"), was.get("activeDeadlineSeconds")
    if former is not None and (deadline is None or deadline > former):
        why = (
            "must not update from a positive integer to nil value"
            if deadline is None
            else "must be less than or equal to previous value"
        )
        yield causes.bad("spec.activeDeadlineSeconds", deadline, why)
        if deadline is not None:
            return
    # What may change is reset to what it was, and what is left has to be the same.
    kept = ["schedulingGates", "tolerations", "activeDeadlineSeconds"]
    if gates:
        # While a pod is gated its placement may be narrowed.
        placement = ("nodeSelector", "affinity")
        kept += [word for word in placement if _is_narrowed(was.get(word), new.get(word))]
    if was.get("terminationGracePeriodSeconds", 0) < 0:
        kept.append("terminationGracePeriodSeconds")
    for word in kept:
        if word in was:
            new[word] = was[word]
        else:
            new.pop(word, None)
    for group in ("containers", "initContainers"):
        if group in new:
            new[group] = _with_images(new[group], was.get(group) or ())
    if new != was:
        yield causes.forbidden("spec", f"{_CHANGEABLE}\n{difference(was, new)}")


def _without_seconds(toleration: Object) -> Object:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _with_images(containers: Sequence[Object], old: Sequence[Object]) -> list[Object]:
    """Return `containers` with the images of those in the same places before."""
    if len(containers) != len(old):
        return list(containers)
    return [
        {**container, "image": former.get("image", "")}
        for container, former in zip(containers, old, strict=True)
    ]


def _is_narrowed(old: Any, new: Any) -> bool:
    """Whether `new` requests all that `old` requests."""
    if not old:
        return True
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return all(name in new and _is_narrowed(value, new[name]) for name, value in old.items())
    return bool(old == new)
