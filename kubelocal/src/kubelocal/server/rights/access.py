"""Users, and what is refused: bearer tokens, impersonation, deny switches and reviews.

Without `roles` everybody with a token may do everything that no switch denies; with them a request
needs a rule. Texts are those of the real authorizer.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubelocal.server.errors import StatusError, bad_request, unauthorized
from kubelocal.server.rights.identity import (
    ADMINISTRATOR,
    ANONYMOUS,
    SERVICE_ACCOUNT,
    Attributes,
    User,
)
from kubelocal.server.rights.rbac import Decision, Roles
from kubeworld.units.instants import Nanos, format_instant

__all__ = ["AUDIENCE", "Access"]

_POD_UID = "authentication.kubernetes.io/pod-uid"
_POD_NAME = "authentication.kubernetes.io/pod-name"

#: The audience of tokens that name none: this server.
AUDIENCE = "https://kubernetes.default.svc.cluster.local"


@dataclass(slots=True)
class Access:
    """Tokens and rights. `secret` signs tokens, so that they hold after a restart.

    `tokenless` is the user of requests without a token: the administrator over plain HTTP, where
    kubectl sends none and the port is open on this machine only.
    """

    secret: bytes
    tokenless: User = field(default_factory=lambda: User.named(ADMINISTRATOR))
    roles: Roles | None = None
    # Tokens that hold no longer.
    _revoked: set[str] = field(default_factory=set)
    # (user, verb, group, resource), each may be "*".
    _denied: set[tuple[str, str, str, str]] = field(default_factory=set)

    def token(
        self, user: str, audiences: Sequence[str] = (), pod_uid: str = "", pod_name: str = ""
    ) -> str:
        """Return the bearer token of `user`; without audiences it is for this server.

        `pod_uid` and `pod_name`: the pod that it is bound to.
        """
        name = _text64(user)
        meant = "" if tuple(audiences) in ((), (AUDIENCE,)) else " ".join(audiences)
        if meant or pod_uid:
            name += f"~{_text64(meant)}"
        if pod_uid:
            name += f"~{_text64(pod_uid)}"
        if pod_name:
            name += f"~{_text64(pod_name)}"
        return f"{name}.{self._signature(name)}"

    def revoke(self, token: str) -> None:
        """Revoke a token."""
        self._revoked.add(token)

    def authenticate(
        self, authorization: str, impersonated: str = "", groups: Sequence[str] = ()
    ) -> User:
        """Return the user of a request, or the user that it impersonates.

        Raises:
            StatusError: 401, a token that was not made here; 403, no right to impersonate that
                user.
        """
        user = self.tokenless
        if authorization:
            scheme, _, token = authorization.partition(" ")
            user, audiences = self._owner(token.strip() if scheme.lower() == "bearer" else "")
            if user == ANONYMOUS or AUDIENCE not in audiences:
                raise unauthorized()
        elif user == ANONYMOUS and self.roles is None:
            raise unauthorized()
        if not impersonated or (impersonated == user.name and not groups):
            return user
        for wanted in _impersonation(impersonated, groups):
            self.check(user, wanted)
        return User.named(impersonated, tuple(groups) or None)

    def _owner(self, token: str) -> tuple[User, tuple[str, ...]]:
        """Return the user of this token, and its audiences."""
        name, _, signature = token.partition(".")
        good = hmac.compare_digest(self._signature(name).encode(), signature.encode())
        if not good or token in self._revoked:
            return ANONYMOUS, ()
        user, _, rest = name.partition("~")
        audiences, _, _ = rest.partition("~")
        return User.named(_from_text64(user)), tuple(_from_text64(audiences).split()) or (AUDIENCE,)

    def deny(self, user: str, verb: str, group: str, resource: str) -> None:
        self._denied.add((user, verb, group, resource))

    def allow(self, user: str, verb: str, group: str, resource: str) -> None:
        self._denied.discard((user, verb, group, resource))

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Return whether `user` may do that, and why."""
        asked = (user.name, wanted.verb, wanted.group, wanted.resource)
        if any(
            all(rule in ("*", value) for rule, value in zip(denied, asked, strict=True))
            for denied in self._denied
        ):
            return Decision(False)
        return Decision(True) if self.roles is None else self.roles.decide(user, wanted)

    def check(self, user: User, wanted: Attributes) -> None:
        """Refuse what is denied.

        Raises:
            StatusError: 403 in the authorizer's words.
        """
        if self.roles is None and not self._denied:
            return
        decision = self.decide(user, wanted)
        if not decision.allowed:
            raise _refusal(user, wanted, decision.reason)

    def _signature(self, name: str) -> str:
        return hmac.new(self.secret, name.encode(), hashlib.sha256).hexdigest()[:40]

    def review(
        self, user: User, kind: str, obj: dict[str, Any], namespace: str, now: Nanos
    ) -> dict[str, Any]:
        """Answer a review of access, of rules, of a token or of the requesting user itself."""
        spec = _part(kind, obj, "spec")
        status: dict[str, Any]
        match kind:
            case "SelfSubjectReview":
                status = {"userInfo": _information(user)}
                obj = {**obj, "metadata": {"creationTimestamp": format_instant(now)}}
            case "TokenReview":
                status = self._token_review(spec)
            case "SelfSubjectRulesReview":
                status = self._rules(user, str(spec.get("namespace", "")))
            case _:
                if kind != "SelfSubjectAccessReview":
                    groups = spec.get("groups")
                    groups = groups if isinstance(groups, list) else ()
                    user = User(str(spec.get("user", "")), tuple(map(str, groups)))
                decision = self.decide(user, _attributes(kind, spec, namespace))
                status = {"allowed": decision.allowed}
                if decision.reason:
                    status["reason"] = decision.reason
        metadata = obj.get("metadata")
        return {**obj, "metadata": metadata if isinstance(metadata, dict) else {}, "status": status}

    def _token_review(self, spec: dict[str, Any]) -> dict[str, Any]:
        owner, audiences = self._owner(str(spec.get("token", "")))
        if owner == ANONYMOUS:
            return {"user": {}, "error": "invalid bearer token"}
        asked = spec.get("audiences")
        wanted = [str(each) for each in asked] if isinstance(asked, list) and asked else [AUDIENCE]
        meant = [each for each in wanted if each in audiences]
        if not meant:
            error = (
                f"[invalid bearer token, token audiences {_quoted(audiences)} is invalid for "
                f"the target audiences {_quoted(wanted)}]"
            )
            return {"user": {}, "error": error}
        information = _information(owner)
        pod_uid, pod_name = _pod_of(str(spec.get("token", "")))
        if pod_uid:
            information["extra"] = {_POD_UID: [pod_uid]}
            if pod_name:
                information["extra"][_POD_NAME] = [pod_name]
        return {"authenticated": True, "user": information, "audiences": meant}

    def _rules(self, user: User, namespace: str) -> dict[str, Any]:
        everything: list[Any] = [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]
        rules = everything if self.roles is None else self.roles.rules(user, namespace)
        return {
            "resourceRules": [dict(one) for one in rules if not one.get("nonResourceURLs")],
            "nonResourceRules": [dict(one) for one in rules if one.get("nonResourceURLs")],
            "incomplete": bool(self._denied),
        }


def _pod_of(token: str) -> tuple[str, str]:
    """Return uid and name of the pod that a token is bound to, empty where it is to none."""
    said = [*token.partition(".")[0].split("~")[2:4], "", ""]
    return _from_text64(said[0]), _from_text64(said[1])


def _quoted(texts: Sequence[str]) -> str:
    return f"[{' '.join(map(json.dumps, texts))}]"


def _text64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _from_text64(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def _information(user: User) -> dict[str, Any]:
    return {"username": user.name, "groups": list(user.groups)}


def _impersonation(name: str, groups: Sequence[str]) -> Iterator[Attributes]:
    if name.startswith(SERVICE_ACCOUNT) and name.count(":") == 3:
        namespace, _, account = name.removeprefix(SERVICE_ACCOUNT).partition(":")
        yield Attributes("impersonate", "", "serviceaccounts", namespace, account)
    else:
        yield Attributes("impersonate", "", "users", "", name)
    for group in groups:
        yield Attributes("impersonate", "", "groups", "", group)


def _part(kind: str, holder: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object inside a review, empty where there is none.

    Raises:
        StatusError: 400, it is something else.
    """
    part = holder.get(name)
    if part is not None and not isinstance(part, dict):
        raise bad_request(f"{kind} cannot be read: {name} is not an object")
    return part or {}


def _attributes(kind: str, spec: dict[str, Any], namespace: str) -> Attributes:
    wanted = _part(kind, spec, "resourceAttributes")
    if not wanted:
        path = _part(kind, spec, "nonResourceAttributes")
        return Attributes(str(path.get("verb", "")), "", "", path=str(path.get("path") or "/"))
    resource = str(wanted.get("resource", ""))
    if wanted.get("subresource"):
        resource += f"/{wanted['subresource']}"
    return Attributes(
        str(wanted.get("verb", "")),
        str(wanted.get("group", "")),
        resource,
        str(wanted.get("namespace") or namespace),
        str(wanted.get("name", "")),
    )


def _refusal(user: User, wanted: Attributes, reason: str) -> StatusError:
    suffix = f": {reason}" if reason else ""
    if wanted.path:
        message = f'forbidden: User "{user.name}" cannot {wanted.verb} path "{wanted.path}"{suffix}'
        return StatusError(403, "Forbidden", message, {})
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
        f'"{wanted.resource}" in API group "{wanted.group}" {where}{suffix}',
        details,
    )
