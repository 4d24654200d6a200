"""The operator's rights on a real API server: the chart's roles and policy, bound to a user."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import yaml

from reprieve.execution.writes.rights import SELF_SUBJECT_ACCESS_REVIEWS
from reprieve.kube.client import Client
from reprieve.kube.resource import Resource
from reprieve.records.harm_sums import PARTS, part_name
from tests.chart.go_tools import ToolMissing
from tests.chart.helm import CHART, installed, run_helm

Object = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
ROLES = {
    "Role": Resource(RBAC, "v1", "roles", "Role"),
    "ClusterRole": Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
}
_LOOKS = 600
_BLOCK = re.compile(r"\{\{- (?:(?P<end>end)|if (?P<if>.+?)|range (?P<range>.+?)) \}\}")
_HAS = re.compile(r'has "(\w+)" \.Values\.controllers')
_NAMED = re.compile(r"\{\{ (.+?) \}\}")
KINDS = (
    "ClusterRole",
    "Role",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


@cache
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
        found = [one for one in installed(text).objects if one["kind"] in KINDS]
    except ToolMissing:
        found = roles_of_the_template(namespace)
    roles = [one for one in found if one["kind"] in ("ClusterRole", "Role")]
    assert {role["kind"] for role in roles} == {"ClusterRole", "Role"}
    return [*found, *(_binding(role, user) for role in roles)]


class RoleRights:
    """`scenarios.stage.Rights` over the roles: RBAC knows no denial, so rules are rewritten.

    Returns when the API server decides by the new rules.
    """

    def __init__(self, administrator: Client, operator: Client, rights: Sequence[Object]) -> None:
        self._administrator = administrator
        self._operator = operator
        self._roles = [one for one in rights if one["kind"] in ("ClusterRole", "Role")]
        self._denied: set[tuple[str, str, str]] = set()

    async def deny(self, verb: str, group: str, resource: str) -> None:
        self._denied.add((verb, group, resource))
        await self._rewrite((verb, group, resource), allowed=False)

    async def allow(self, verb: str, group: str, resource: str) -> None:
        self._denied.discard((verb, group, resource))
        await self._rewrite((verb, group, resource), allowed=True)

    async def restore(self) -> None:
        for denied in list(self._denied):
            await self.allow(*denied)

    async def _rewrite(self, right: tuple[str, str, str], allowed: bool) -> None:
        for role in self._roles:
            namespace = role["metadata"].get("namespace", "")
            await self._administrator.patch(
                ROLES[role["kind"]],
                namespace,
                role["metadata"]["name"],
                {"rules": [one for rule in role["rules"] for one in self._left(rule)]},
                dict,
            )
        for _ in range(_LOOKS):
            if await self._has(*right) is allowed:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{right} is not {'granted' if allowed else 'revoked'}")

    def _left(self, rule: Object) -> list[Object]:
        return [
            {**rule, "apiGroups": [group], "resources": [resource], "verbs": verbs}
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            if (verbs := [v for v in rule["verbs"] if (v, group, resource) not in self._denied])
        ]

    async def _has(self, verb: str, group: str, resource: str) -> bool:
        attributes = {"verb": verb, "group": group, "resource": resource}
        review: Object = await self._operator.create(
            SELF_SUBJECT_ACCESS_REVIEWS, {"spec": {"resourceAttributes": attributes}}, dict
        )
        return bool(review["status"]["allowed"])


def roles_of_the_template(namespace: str) -> list[Object]:
    """Return the roles of the template by the chart's defaults and `rbac.actions`, without Helm.

    Raises:
        AssertionError: the template asks something that is not known here.
    """
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    values["rbac"]["actions"] = True
    text = (CHART / "templates" / "rbac.yaml").read_text(encoding="utf-8")
    names = {
        'include "reprieve.clusterName" .': "reprieve",
        'include "reprieve.fullname" .': "reprieve",
        'include "reprieve.serviceAccountName" .': "reprieve",
        'include "reprieve.harmLedger" .': json.dumps(harm_ledger()),
        ".Release.Namespace": namespace,
    }
    lines = []
    for line in _kept(text.splitlines(), values):
        if not line.lstrip().startswith("{{-"):  # labels
            lines.append(_NAMED.sub(lambda found: names[found[1]], line))
    documents = yaml.safe_load_all("\n".join(lines))
    return [each for each in documents if each and each["kind"] in ("ClusterRole", "Role")]


def harm_ledger() -> list[str]:
    """Return the names of the parts of the ledger of harm."""
    months = (f"2026-{month:02}" for month in range(1, 13))
    return [part_name(month, number) for month in months for number in range(PARTS)]


def _kept(lines: Iterable[str], values: Object) -> Iterator[str]:
    """Yield the lines of the blocks whose conditions hold."""
    blocks: list[bool] = []
    for line in lines:
        block = _BLOCK.fullmatch(line)
        if block is None:
            if all(blocks):
                yield line
        elif block["end"]:
            blocks.pop()
        elif block["if"]:
            blocks.append(all(blocks) and _holds(block["if"], values))
        elif all(blocks):
            assert not _value(block["range"], values), f"not known here: {line}"
            blocks.append(False)
        else:
            blocks.append(False)


def _holds(condition: str, values: Object) -> bool:
    plane = _HAS.search(condition)
    if plane is not None and (plane[0] == condition or condition.startswith(f"and ({plane[0]})")):
        has = plane[1] in values["controllers"]
        assert not has or plane[0] == condition, f"not known here: {condition}"
        return has
    return bool(_value(condition, values))


def _value(path: str, values: Object) -> Any:
    found: Any = values
    assert path.startswith(".Values."), f"not known here: {path}"
    for name in path.removeprefix(".Values.").split("."):
        found = found[name]
    return found


def _binding(role: Object, user: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": {**role["metadata"], "name": f"{role['metadata']['name']}-of-{user}"},
        "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
