"""What a Job's podFailurePolicy states about a failed pod.

Source: `batch/v1` PodFailurePolicy: the first rule that matches decides; a rule has exit codes or
pod conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeworld.controllers.acts import Object

__all__ = ["judge"]


def judge(policy: Mapping[str, Any] | None, pod: Object) -> tuple[str, str]:
    """Return the action (Count, Ignore, FailJob, ...) and the reason in the controller's words."""
    where = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
    for index, rule in enumerate((policy or {}).get("rules") or ()):
        matched = f"matching {rule['action']} rule at index {index}"
        if "onExitCodes" in rule:
            found = _exit(rule["onExitCodes"], pod)
            if found is not None:
                name, code = found
                text = f"Container {name} for pod {where} failed with exit code {code} {matched}"
                return rule["action"], text
        for wanted in rule.get("onPodConditions") or ():
            if _has(pod, wanted):
                return rule["action"], f"Pod {where} has condition {wanted['type']} {matched}"
    return "Count", ""


def _exit(requirement: Mapping[str, Any], pod: Object) -> tuple[str, int] | None:
    """Return the container and the exit code that meet the requirement."""
    status = pod.get("status") or {}
    only, values = requirement.get("containerName"), requirement.get("values") or ()
    for container in [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]:
        code = ((container.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
        if code == 0 or (only and only != container["name"]):
            continue
        if (code in values) == (requirement.get("operator") == "In"):
            return container["name"], code
    return None


def _has(pod: Object, wanted: Mapping[str, Any]) -> bool:
    return any(
        found["type"] == wanted["type"] and found["status"] == wanted.get("status", "True")
        for found in (pod.get("status") or {}).get("conditions") or ()
    )
