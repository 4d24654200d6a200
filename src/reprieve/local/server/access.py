"""Who asks, and what is refused: bearer tokens, deny switches, access and identity reviews.

Everybody with a token may do everything that no switch denies. Texts are those of the real
authorizer; enforced Roles are another matter.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any, Final

from reprieve.local.server.errors import StatusError, unauthorized

__all__ = ["ADMINISTRATOR", "Access", "Attributes", "User"]

ADMINISTRATOR: Final = "admin"


@dataclass(frozen=True, slots=True)
class User:
    """Who makes a request."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a request wants to do; `resource` includes the subresource: `pods/log`."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


@dataclass(slots=True)
class Access:
    """Tokens and deny switches. `secret` signs tokens, so that they hold after a restart."""

    secret: bytes
    # (user, verb, group, resource), each may be "*".
    _denied: set[tuple[str, str, str, str]] = field(default_factory=set)

    def token(self, user: str) -> str:
        """Return the bearer token of `user`."""
        name = base64.urlsafe_b64encode(user.encode()).decode().rstrip("=")
        return f"{name}.{self._signature(name)}"

    def authenticate(self, authorization: str, impersonated: str) -> User:
        """Return the user of a request.

        Without a token it is the administrator: kubectl sends none over plain HTTP, and the port
        is open on this machine only.

        Raises:
            StatusError: 401, a token that was not made here.
        """
        if not authorization:
            return _user(impersonated or ADMINISTRATOR)
        scheme, _, token = authorization.partition(" ")
        name, _, signature = token.strip().partition(".")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            self._signature(name).encode(), signature.encode()
        ):
            raise unauthorized()
        if impersonated:
            return _user(impersonated)
        return _user(base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode())

    def deny(self, user: str, verb: str, group: str, resource: str) -> None:
        self._denied.add((user, verb, group, resource))

    def allow(self, user: str, verb: str, group: str, resource: str) -> None:
        self._denied.discard((user, verb, group, resource))

    def allows(self, user: str, wanted: Attributes) -> bool:
        asked = (user, wanted.verb, wanted.group, wanted.resource)
        return not any(
            all(rule in ("*", value) for rule, value in zip(denied, asked, strict=True))
            for denied in self._denied
        )

    def check(self, user: User, wanted: Attributes) -> None:
        """Refuse what is denied.

        Raises:
            StatusError: 403 in the authorizer's words.
        """
        if self._denied and not self.allows(user.name, wanted):
            raise _refusal(user, wanted)

    def _signature(self, name: str) -> str:
        return hmac.new(self.secret, name.encode(), hashlib.sha256).hexdigest()[:40]

    def review(self, user: User, kind: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Answer a SelfSubject(Access|Rules)Review, SubjectAccessReview or SelfSubjectReview."""
        spec = obj.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        if kind == "SelfSubjectReview":
            status: dict[str, Any] = {
                "userInfo": {"username": user.name, "groups": list(user.groups)}
            }
        elif kind == "SelfSubjectRulesReview":
            everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
            status = {
                "resourceRules": [everything],
                "nonResourceRules": [paths],
                "incomplete": bool(self._denied),
            }
        else:
            name = spec.get("user") or user.name if kind != "SelfSubjectAccessReview" else user.name
            wanted = spec.get("resourceAttributes")
            allowed = not isinstance(wanted, dict) or self.allows(str(name), _attributes(wanted))
            status = {"allowed": allowed}
        metadata = obj.get("metadata")
        return {**obj, "metadata": metadata if isinstance(metadata, dict) else {}, "status": status}


def _user(name: str) -> User:
    groups = ("system:authenticated",)
    return User(name, ("system:masters", *groups) if name == ADMINISTRATOR else groups)


def _attributes(wanted: dict[str, Any]) -> Attributes:
    resource = str(wanted.get("resource", ""))
    if wanted.get("subresource"):
        resource += f"/{wanted['subresource']}"
    return Attributes(
        str(wanted.get("verb", "")),
        str(wanted.get("group", "")),
        resource,
        str(wanted.get("namespace", "")),
        str(wanted.get("name", "")),
    )


def _refusal(user: User, wanted: Attributes) -> StatusError:
    plural = wanted.resource.partition("/")[0]
    qualified = f"{plural}.{wanted.group}" if wanted.group else plural
    named = f'{qualified} "{wanted.name}"' if wanted.name else qualified
    where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    details = {"kind": plural}
    if wanted.group:
        details["group"] = wanted.group
    if wanted.name:
        details["name"] = wanted.name
    return StatusError(
        403,
        "Forbidden",
        f'{named} is forbidden: User "{user.name}" cannot {wanted.verb} resource '
        f'"{wanted.resource}" in API group "{wanted.group}" {where}',
        details,
    )
