"""No user gives rights that they do not have: checked when roles and bindings are written.

A user may write a role whose rules they hold, or with the verb `escalate` on it; may bind a role
whose rules they hold, or with the verb `bind` on it. Source: the RBAC storage of Kubernetes; texts
of that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kubelocal.server.admitting import outside
from kubelocal.server.errors import forbidden
from kubelocal.server.rights.identity import MASTERS, Attributes, User
from kubelocal.server.rights.rbac import Rule, covers
from kubelocal.server.state import State
from kubelocal.server.types.kinds import Kind

__all__ = ["check"]

_GROUP: Final = "rbac.authorization.k8s.io"
_EVERYTHING: Final = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
_RULES: Final = ("rules", "aggregationRule")


def check(api: State, kind: Kind, obj: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Refuse a role or binding that gives more than its writer has.

    Raises:
        StatusError: 403 with the rules that the writer lacks.
    """
    user = outside.acting.get()
    if api.roles is None or kind.group != _GROUP or MASTERS in user.groups:
        return
    namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
    if "roleRef" in obj:
        if old is not None and old.get("subjects") == obj.get("subjects"):
            return
        bound = obj["roleRef"]
        plural = "roles" if bound["kind"] == "Role" else "clusterroles"
        wanted = Attributes("bind", _GROUP, plural, namespace, bound["name"])
        granted: Iterable[Rule] = api.roles.granted(obj)
    else:
        if old is not None and all(old.get(word) == obj.get(word) for word in _RULES):
            return
        wanted = Attributes("escalate", _GROUP, kind.plural, namespace, name)
        granted = _EVERYTHING if obj.get("aggregationRule") else obj.get("rules") or ()
    if api.roles.decide(user, wanted).allowed:
        return
    held = api.roles.rules(user, namespace)
    lacking = [
        one
        for rule in granted
        for one in _parts(rule)
        if not any(covers(mine, one) for mine in held)
    ]
    if lacking:
        raise forbidden(kind, name, _reported(user, lacking))


def _parts(rule: Mapping[str, Any]) -> Iterator[Attributes]:
    """Yield everything that a rule allows, one by one."""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield Attributes(verb, "", "", path=path)
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    yield Attributes(verb, group, resource, name=name)


def _reported(user: User, lacking: Iterable[Attributes]) -> str:
    verbs: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for one in lacking:
        about: tuple[tuple[str, str], ...]
        if one.path:
            about = (("NonResourceURLs", one.path),)
        else:
            about = (("APIGroups", one.group), ("Resources", one.resource))
            about += (("ResourceNames", one.name),) if one.name else ()
        known = verbs.setdefault(about, [])
        if one.verb not in known:
            known.append(one.verb)
    lines = []
    for about, words in verbs.items():
        parts = [f"{title}:[{json.dumps(value)}]" for title, value in about]
        quoted = " ".join(json.dumps(word) for word in words)
        lines.append(f"{{{', '.join(parts)}, Verbs:[{quoted}]}}")
    groups = " ".join(json.dumps(group) for group in user.groups)
    text = "is attempting to grant RBAC permissions not currently held:"
    return f'user "{user.name}" (groups=[{groups}]) {text}\n' + "\n".join(sorted(lines))
