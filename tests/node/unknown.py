"""A pod that a kubelet alone knows of: what it holds is free by all that the API server shows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping

from tests.node.cluster import SMALL, Cluster
from tests.node.release import Object

__all__ = ["unknown_pod"]

_GROUP = "admissionregistration.k8s.io/v1"
_NAME = "unknown"
_KINDS = "validatingadmissionpolicybinding,validatingadmissionpolicy"


@contextlib.contextmanager
def unknown_pod(cluster: Cluster, node: str, amounts: Mapping[str, str]) -> Iterator[None]:
    """Run a static pod with these limits on a node: the API server refuses to show it."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    mirror = "object.metadata.?annotations[?'kubernetes.io/config.mirror'].hasValue()"
    policy: Object = {
        "apiVersion": _GROUP,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": _NAME},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": f"!{mirror}"}],
        },
    }
    binding: Object = {
        "apiVersion": _GROUP,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": _NAME},
        "spec": {"policyName": _NAME, "validationActions": ["Deny"]},
    }
    cluster.apply(policy, binding)
    shown = _static({})
    shown["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    shown["spec"]["nodeName"] = node

    def in_force() -> bool:
        try:
            cluster.kubectl("apply", "--dry-run=server", "-f", "-", given=json.dumps(shown))
        except RuntimeError as refusal:
            return f"ValidatingAdmissionPolicy '{_NAME}'" in str(refusal)
        return False

    cluster.until("no such pod is shown", in_force)
    file = cluster.folder / node / "static" / "unknown.json"
    file.write_text(json.dumps(_static(amounts)))

    def phases() -> list[str]:
        found = json.loads(cluster.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/pods"))
        return [
            each["status"].get("phase", "")
            for each in found["items"] or ()
            if each["metadata"]["name"] == f"{_NAME}-{node}"
        ]

    try:
        cluster.until("the kubelet runs its own pod", lambda: phases() == ["Running"])
        yield
    finally:
        file.unlink()
        cluster.kubectl("delete", _KINDS, _NAME)


def _static(amounts: Mapping[str, str]) -> Object:
    container = {
        "name": "main",
        "image": SMALL,
        "imagePullPolicy": "Never",
        "command": ["sleep", "1000000"],
        "resources": {"requests": amounts, "limits": amounts},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _NAME, "namespace": "default"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
