"""Cells of the columns of built-in kinds, each a function of the object and at most the time.

Source: the printed forms of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubelocal.server.printing.ages import age, human_duration
from kubeworld.units.instants import Nanos, parse_instant

Object = Mapping[str, Any]

_NONE: Final = "<none>"


def _spec(obj: Object) -> Object:
    return obj.get("spec") or {}


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def labels(pairs: Mapping[str, str] | None) -> str:
    """Return `a=1,b=2`, or `<none>`."""
    return ",".join(f"{key}={value}" for key, value in sorted((pairs or {}).items())) or _NONE


def selector(obj: Object) -> str:
    """Return a selector as users write it on the command line."""
    chosen = _spec(obj).get("selector")
    if obj.get("kind") == "CronJob":
        chosen = ((_spec(obj).get("jobTemplate") or {}).get("spec") or {}).get("selector")
    if not chosen:
        return _NONE
    if not {"matchLabels", "matchExpressions"} & set(chosen):
        return labels(chosen)
    words = [f"{key}={value}" for key, value in (chosen.get("matchLabels") or {}).items()]
    for expression in chosen.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        words.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }.get(expression["operator"], key)
        )
    return ",".join(sorted(words)) or _NONE


def _containers(obj: Object) -> Iterable[Object]:
    holder = obj if obj.get("kind") == "PodTemplate" else _spec(obj)
    if obj.get("kind") == "CronJob":
        holder = (holder.get("jobTemplate") or {}).get("spec") or {}
    return ((holder.get("template") or {}).get("spec") or {}).get("containers") or ()


def template_labels(obj: Object) -> str:
    """The labels that a template gives its pods."""
    return labels(((obj.get("template") or {}).get("metadata") or {}).get("labels"))


def container_names(obj: Object) -> str:
    """The names of the template's containers."""
    return ",".join(each.get("name", "") for each in _containers(obj))


def images(obj: Object) -> str:
    """The images of the template's containers."""
    return ",".join(each.get("image", "") for each in _containers(obj))


def data_count(obj: Object) -> int:
    """How many keys there are."""
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def ready_of_desired(obj: Object) -> str:
    """`ready/desired` replicas."""
    return f"{_status(obj).get('readyReplicas', 0)}/{_spec(obj).get('replicas', 0)}"


def node_selector(obj: Object) -> str:
    """The node selector of the template."""
    template = (_spec(obj).get("template") or {}).get("spec") or {}
    return labels(template.get("nodeSelector"))


def node_status(obj: Object) -> str:
    """`Ready`, `NotReady` or `Unknown`, and whether pods are kept off."""
    ready = [each for each in _status(obj).get("conditions") or () if each.get("type") == "Ready"]
    words = ["Ready" if each.get("status") == "True" else "NotReady" for each in ready]
    if _spec(obj).get("unschedulable"):
        words = [*(words or ["Unknown"]), "SchedulingDisabled"]
    return ",".join(words) or "Unknown"


def node_roles(obj: Object) -> str:
    """The roles that labels give a node."""
    prefix = "node-role.kubernetes.io/"
    roles = set()
    for key, value in (obj["metadata"].get("labels") or {}).items():
        if key.startswith(prefix) and len(key) > len(prefix):
            roles.add(key.removeprefix(prefix))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or _NONE


def node_address(obj: Object, kind: str) -> str:
    """The first address of a kind."""
    for address in _status(obj).get("addresses") or ():
        if address.get("type") == kind:
            return str(address.get("address"))
    return _NONE


def node_info(obj: Object, word: str) -> str:
    """A field of what the node states of itself."""
    return (_status(obj).get("nodeInfo") or {}).get(word) or "<unknown>"


def node_kernel(obj: Object) -> str:
    """Kernel and machine."""
    kernel, machine = node_info(obj, "kernelVersion"), node_info(obj, "architecture")
    return kernel if kernel == "<unknown>" else f"{kernel} ({machine})"


def readiness_gates(obj: Object) -> str:
    """`true/all` readiness gates."""
    gates = [gate.get("conditionType") for gate in _spec(obj).get("readinessGates") or ()]
    if not gates:
        return _NONE
    true = {
        each.get("type")
        for each in _status(obj).get("conditions") or ()
        if each.get("status") == "True"
    }
    return f"{sum(gate in true for gate in gates)}/{len(gates)}"


def external_addresses(obj: Object) -> str:
    """The addresses under which a service is reached from outside."""
    spec = _spec(obj)
    given = list(spec.get("externalIPs") or ())
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName") or _NONE)
    if spec.get("type") == "LoadBalancer":
        ingress = (_status(obj).get("loadBalancer") or {}).get("ingress") or ()
        found = [each.get("ip") or each.get("hostname") for each in ingress]
        return ",".join([*found, *given]) or "<pending>"
    return ",".join(given) or _NONE


def service_ports(obj: Object) -> str:
    """`port[:nodePort]/protocol`, one for each port."""
    words = []
    for port in _spec(obj).get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        words.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(words) or _NONE


def _listed(words: list[str], limit: int = 3) -> str:
    if not words:
        return _NONE
    more = f" + {len(words) - limit} more..." if len(words) > limit else ""
    return ",".join(words[:limit]) + more


def endpoints(obj: Object) -> str:
    """The first addresses with ports, and how many more there are."""
    words = []
    for subset in obj.get("subsets") or ():
        for address in subset.get("addresses") or ():
            ports = subset.get("ports") or ()
            words += [f"{address['ip']}:{port['port']}" for port in ports] or [address["ip"]]
    return _listed(words)


def slice_ports(obj: Object) -> str:
    """The ports of a slice."""
    ports = obj.get("ports")
    if not ports:
        return "<unset>"
    return _listed([str(port.get("port") or port.get("name") or "*") for port in ports])


def slice_endpoints(obj: Object) -> str:
    """The addresses of a slice."""
    found = [
        str(address) for each in obj.get("endpoints") or () for address in each.get("addresses", ())
    ]
    return _listed(found) if found else "<unset>"


_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def access_modes(obj: Object) -> str:
    """The access modes, abbreviated."""
    modes = _status(obj).get("accessModes") if obj.get("kind") == "PersistentVolumeClaim" else None
    modes = modes if modes is not None else _spec(obj).get("accessModes")
    if obj.get("kind") == "PersistentVolumeClaim" and not _spec(obj).get("volumeName"):
        modes = ()
    return ",".join(_MODES.get(mode, mode) for mode in modes or ())


def volume_phase(obj: Object) -> str:
    """The phase, or `Terminating`."""
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(_status(obj).get("phase") or "")


def volume_claim(obj: Object) -> str:
    """The claim that a volume is bound to."""
    claim = _spec(obj).get("claimRef")
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def quota(obj: Object, which: str) -> str:
    """`name: used/hard` of the `limits`, or of everything else."""
    used = _status(obj).get("used") or {}
    return ", ".join(
        f"{name}: {used.get(name, '0')}/{hard}"
        for name, hard in sorted((_status(obj).get("hard") or {}).items())
        if name.startswith("limits") == (which == "limits")
    )


def suspended(obj: Object) -> str:
    """`True` or `False`."""
    return "True" if _spec(obj).get("suspend") else "False"


def last_schedule(obj: Object, now: Nanos) -> str:
    """Time since a CronJob last made a Job."""
    last = _status(obj).get("lastScheduleTime")
    return age(last, now) if last else _NONE


def job_status(obj: Object) -> str:
    """One word on where a Job stands."""
    conditions = {
        each.get("type")
        for each in _status(obj).get("conditions") or ()
        if each.get("status") == "True"
    }
    for condition, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition in conditions:
            return word
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for word in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if word in conditions:
            return word
    return "Running"


def job_completions(obj: Object) -> str:
    """`done/wanted`."""
    done, spec = _status(obj).get("succeeded", 0), _spec(obj)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def job_duration(obj: Object, now: Nanos) -> str:
    """Time from start to completion, or until now."""
    status = _status(obj)
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    until = parse_instant(end) if end else now
    return human_duration(until - parse_instant(status["startTime"]))


def controller(obj: Object) -> str:
    """The controlling owner."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            kind = str(owner.get("kind", "")).lower()
            return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return _NONE


def bound_role(obj: Object) -> str:
    """The role that a binding gives."""
    role = obj.get("roleRef") or {}
    return f"{role.get('kind')}/{role.get('name')}"


def subjects(obj: Object, kind: str) -> str:
    """The subjects of one kind."""
    return ", ".join(
        f"{each.get('namespace')}/{each.get('name')}" if kind == "ServiceAccount" else each["name"]
        for each in obj.get("subjects") or ()
        if each.get("kind") == kind
    )


def parameter_kind(obj: Object) -> str:
    """The kind of a policy's parameters."""
    kind = _spec(obj).get("paramKind")
    return f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else "<unset>"


def definition_versions(obj: Object) -> str:
    """The served versions, the stored one marked."""
    words = []
    for version in _spec(obj).get("versions") or ():
        if version.get("served") or version.get("storage"):
            words.append(
                f"{version['name']}(storage)" if version.get("storage") else version["name"]
            )
    return ",".join(words)


def gang_policy(obj: Object) -> str:
    """`Gang` or `Basic`."""
    policy = _spec(obj).get("schedulingPolicy") or {}
    return next((word.capitalize() for word in ("gang", "basic") if word in policy), _NONE)


def claim_state(obj: Object) -> str:
    """What of a resource claim has happened so far."""
    status = _status(obj)
    words = [
        word
        for word, holds in (
            ("deleted", (obj.get("metadata") or {}).get("deletionTimestamp")),
            ("allocated", status.get("allocation")),
            ("reserved", status.get("reservedFor")),
        )
        if holds
    ]
    return ",".join(words) or "pending"


def group_workload(obj: Object) -> str:
    """The workload that a pod group belongs to."""
    older = (_spec(obj).get("podGroupTemplateRef") or {}).get("workload")
    workload = older or _spec(obj).get("workloadRef") or {}
    return str(workload.get("workloadName") or _NONE)


def group_status(obj: Object) -> str:
    """Whether a pod group has been placed."""
    conditions = [
        each
        for each in _status(obj).get("conditions") or ()
        if each.get("type") in ("PodGroupInitiallyScheduled", "PodGroupScheduled")
    ]
    if not conditions:
        return "Pending"
    return (
        "Scheduled"
        if conditions[-1].get("status") == "True"
        else str(conditions[-1].get("reason") or "Pending")
    )
