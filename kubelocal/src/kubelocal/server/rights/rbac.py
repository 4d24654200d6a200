"""Role-based access: which rules of the stored Roles and bindings cover a request.

Rules only ever allow. A ClusterRoleBinding holds everywhere, a RoleBinding in its namespace; an
aggregated ClusterRole has the rules of the roles that its selectors find. Source: the RBAC
authorizer of Kubernetes; texts of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubelocal.server.rights.identity import MASTERS, SERVICE_ACCOUNT, Attributes, User
from kubelocal.store import Store, Stored
from kubeworld.objects.selectors import matches_labels

__all__ = ["Decision", "Roles", "Rule", "covers"]

_GROUP: Final = "rbac.authorization.k8s.io"
Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` names the binding that allows, or what was wrong on the way to a refusal."""

    allowed: bool
    reason: str = ""


@dataclass(slots=True)
class Roles:
    """The stored roles and bindings, read anew for each question."""

    store: Store
    # (resource, namespace, name) -> the version that was decoded, and what it states.
    _decoded: dict[tuple[str, str, str], tuple[int, dict[str, Any]]] = field(default_factory=dict)

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Return whether some rule covers `wanted`."""
        if MASTERS in user.groups:
            return Decision(True)
        missing: list[str] = []
        for binding, subject in self._bindings(user, wanted.namespace):
            role = self._role(binding, missing)
            if role is not None and any(covers(rule, wanted) for rule in self._rules(role)):
                return Decision(True, _reason(binding, subject))
        return Decision(False, f"RBAC: [{', '.join(missing)}]" if missing[1:] else _one(missing))

    def rules(self, user: User, namespace: str) -> list[Rule]:
        """Return every rule that holds for `user` in `namespace`."""
        if MASTERS in user.groups:
            return [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        return [
            rule
            for binding, _ in self._bindings(user, namespace)
            if (role := self._role(binding, [])) is not None
            for rule in self._rules(role)
        ]

    def granted(self, binding: Mapping[str, Any]) -> list[Rule]:
        """Return the rules of the role that a binding names; none where there is no such role."""
        role = self._role(binding, [])
        return [] if role is None else list(self._rules(role))

    def _bindings(
        self, user: User, namespace: str
    ) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
        """Yield the bindings that name `user`, each with the subject that does."""
        for stored in self._stored_bindings(namespace):
            binding = self._read(stored)
            for subject in binding.get("subjects") or ():
                if _is(subject, user, stored.namespace):
                    yield binding, subject
                    break

    def _stored_bindings(self, namespace: str) -> Iterator[Stored]:
        yield from self.store.range(f"clusterrolebindings.{_GROUP}", None)
        if namespace:
            yield from self.store.range(f"rolebindings.{_GROUP}", namespace)

    def _role(self, binding: Mapping[str, Any], missing: list[str]) -> dict[str, Any] | None:
        reference, everywhere = binding["roleRef"], binding["roleRef"]["kind"] == "ClusterRole"
        namespace = "" if everywhere else binding["metadata"].get("namespace", "")
        plural = "clusterroles" if everywhere else "roles"
        stored = self.store.get(f"{plural}.{_GROUP}", namespace, reference["name"])
        if stored is None:
            missing.append(f'{plural[:-1]}.{_GROUP} "{reference["name"]}" not found')
            return None
        return self._read(stored)

    def _rules(self, role: Mapping[str, Any]) -> Iterable[Rule]:
        yield from role.get("rules") or ()
        selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
        if not selectors:
            return
        for stored in self.store.range(f"clusterroles.{_GROUP}", None):
            if stored.name != role["metadata"]["name"] and any(
                matches_labels(selector, stored.labels) for selector in selectors
            ):
                yield from self._rules(self._read(stored))

    def _read(self, stored: Stored) -> dict[str, Any]:
        key = (stored.resource, stored.namespace, stored.name)
        known = self._decoded.get(key)
        if known is None or known[0] != stored.revision:
            known = self._decoded[key] = (stored.revision, stored.decode())
        return known[1]


def _is(subject: Mapping[str, Any], user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "User":
        return name == user.name
    if kind == "Group":
        return name in user.groups
    where = subject.get("namespace") or namespace
    return kind == "ServiceAccount" and user.name == f"{SERVICE_ACCOUNT}{where}:{name}"


def covers(rule: Rule, wanted: Attributes) -> bool:
    """Return whether `rule` allows what is wanted."""
    if not _has(rule.get("verbs"), wanted.verb):
        return False
    if wanted.path:
        return any(_path_covers(path, wanted.path) for path in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    return (
        _has(rule.get("apiGroups"), wanted.group)
        and _resource_covers(rule.get("resources") or (), wanted.resource)
        and (not names or (bool(wanted.name) and wanted.name in names))
    )


def _has(words: Iterable[str] | None, word: str) -> bool:
    return words is not None and ("*" in words or word in words)


def _resource_covers(resources: Iterable[str], wanted: str) -> bool:
    _, _, subresource = wanted.partition("/")
    return any(
        one in ("*", wanted) or (bool(subresource) and one == f"*/{subresource}")
        for one in resources
    )


def _path_covers(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern[:-1])
    return pattern == path


def _reason(binding: Mapping[str, Any], subject: Mapping[str, Any]) -> str:
    reference, metadata = binding["roleRef"], binding["metadata"]
    name = metadata["name"]
    if metadata.get("namespace"):
        name += f"/{metadata['namespace']}"
    who = subject["name"]
    if subject["kind"] == "ServiceAccount":
        who += f"/{subject.get('namespace') or metadata.get('namespace', '')}"
    return (
        f'RBAC: allowed by {binding["kind"]} "{name}" of {reference["kind"]} '
        f'"{reference["name"]}" to {subject["kind"]} "{who}"'
    )


def _one(missing: list[str]) -> str:
    return f"RBAC: {missing[0]}" if missing else ""
