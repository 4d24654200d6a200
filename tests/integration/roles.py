"""The operator's rights on a real API server: the chart's roles and policy, bound to a user."""

from __future__ import annotations

from typing import Any

import yaml

from tests.chart.helm import CHART, HelmMissing, run_helm

Object = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
KINDS = (
    "ClusterRole",
    "Role",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


def operator_rights(user: str, namespace: str) -> list[Object]:
    """Return roles, bindings and, with a Helm at hand, the policy, as installed in `namespace`."""
    try:
        text = run_helm(
            "template",
            "reprieve",
            str(CHART),
            "--namespace",
            namespace,
            "--set",
            f"admissionPolicy.extraUsers={{{user}}},rbac.actions=true",
        )
        found = [one for one in yaml.safe_load_all(text) if one and one["kind"] in KINDS]
    except HelmMissing:
        found = _roles_of_the_template(namespace)
    roles = [one for one in found if one["kind"] in ("ClusterRole", "Role")]
    assert {role["kind"] for role in roles} == {"ClusterRole", "Role"}
    return [*found, *(_binding(role, user) for role in roles)]


def _roles_of_the_template(namespace: str) -> list[Object]:
    """Return all rules that stand in the template as text, without those made of values."""
    text = (CHART / "templates" / "rbac.yaml").read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if "{{" not in line]
    roles = []
    for document in yaml.safe_load_all("\n".join(kept)):
        if document["kind"] not in ("ClusterRole", "Role"):
            continue
        document["metadata"] = {"name": "reprieve"}
        if document["kind"] == "Role":
            document["metadata"]["namespace"] = namespace
        roles.append(document)
    return roles


def _binding(role: Object, user: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": {**role["metadata"], "name": f"{role['metadata']['name']}-of-{user}"},
        "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
