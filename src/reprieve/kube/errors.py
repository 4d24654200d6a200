"""The API server's answer when it did not do what was requested.

ClusterError
└── ApiError            any refusal; has `code`, `reason`, `message`, `call`
    ├── Unauthorized    401  the credentials are not accepted
    ├── Forbidden       403  RBAC or admission; `rule` is the RBAC rule that would allow it; also
    │                        any other status, but 422, by which a webhook or a policy denies
    ├── NotFound        404  the object, or the whole kind, is not there
    ├── AlreadyExists   409  create under a name in use
    ├── Conflict        409  stale resourceVersion, failed precondition, foreign field owner
    ├── Expired         410  the resourceVersion or continue token is too old: list again
    ├── Invalid         422  validation
    ├── TooManyRequests 429  flow control or a disruption budget; `retry_after` in seconds
    ├── ServerError     5xx  `retry_after` in seconds where the server named one
    ├── Undecodable          the answer is not what its kind promises
    └── Unreachable          no answer: refused, reset or timed out; the write may have happened

A webhook that denies a request chooses its status and reason, and the API server passes both on. A
429, 503 or 404 of that origin is no overloaded server and no deleted object, and a 413 of a
ValidatingAdmissionPolicy is about no size: only the server's own words before those of the webhook
or the policy tell them apart.

Source: the API conventions, section "Response Status Kind"; apiserver's webhookerrors.ToStatusErr
and the dispatcher of its validating policies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reprieve.kube.resource import Resource
from reprieve.units.errors import ClusterError

__all__ = [
    "REFUSED_CREDENTIALS",
    "AlreadyExists",
    "ApiError",
    "Call",
    "Conflict",
    "Expired",
    "Forbidden",
    "Invalid",
    "NotFound",
    "ServerError",
    "TooManyRequests",
    "Unauthorized",
    "Undecodable",
    "Unreachable",
    "error_from",
    "rbac_rule",
]


@dataclass(frozen=True, slots=True)
class Call:
    """What was requested, in RBAC's words.

    Attributes:
        verb: `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
        resource: plural, with the subresource: `pods`, `pods/eviction`.
        group: API group, empty for core.
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def on(
        cls,
        verb: str,
        resource: Resource,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> Call:
        """Return a call about a kind, one object of it or that object's subresource."""
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        return cls(verb, plural, resource.group, namespace if resource.namespaced else "", name)

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f" {self.namespace}/{self.name}" if self.namespace else f" {self.name}"
        return f"{self.verb} {kind}{where if self.name else self._place()}"

    def _place(self) -> str:
        return f" in namespace {self.namespace}" if self.namespace else ""


#: What is stated of a refusal that states no more than its name.
REFUSED_CREDENTIALS: Final = (
    "the API server does not accept these credentials (Unauthorized): they have expired, were "
    "revoked, or were made for another audience"
)


class ApiError(ClusterError):
    """The API server refused; `code` is the HTTP status, 0 where there was no answer."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        call: Call | None = None,
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self.code = code
        self.reason = reason
        self.call = call
        self.message = message
        self.retry_after = retry_after
        self.details: Mapping[str, Any] = details or {}
        super().__init__(f"{call}: {message}" if call else message)


class Unauthorized(ApiError):
    """The server does not accept the credentials."""

    def __init__(self, message: str, **rest: Any) -> None:
        text = message if message not in ("", "Unauthorized") else REFUSED_CREDENTIALS
        super().__init__(text, **rest)


class NotFound(ApiError):
    """The object is not there, or its kind is not served."""


class AlreadyExists(ApiError):
    """An object of that name exists."""


class Conflict(ApiError):
    """The object is not in the state that the write requested."""


class Expired(ApiError):
    """The server no longer has that resourceVersion or continue token."""


class Invalid(ApiError):
    """The object breaks its schema or a validation rule."""


class TooManyRequests(ApiError):
    """Flow control, or a PodDisruptionBudget that refuses an eviction now."""


class ServerError(ApiError):
    """The server failed; the write may have happened."""


class Unreachable(ApiError):
    """No answer in time; the write may have happened."""


class Undecodable(ApiError):
    """An object has other types than its kind promises; the message names the field."""


class Forbidden(ApiError):
    """RBAC or admission refused.

    `rule` is the RBAC rule that would allow the call as one line of YAML; None where the refusal
    came from admission (a quota, a webhook), which no rule would change.
    """

    rule: str | None = None

    def __init__(self, message: str, *, call: Call | None = None, **rest: Any) -> None:
        denial = None if _ADMISSION.match(message) else _DENIAL.match(message)
        if denial is not None:
            verb, resource, group = denial.group("verb", "resource", "group")
            self.rule = rbac_rule(group, resource, verb)
        elif call is not None and not message:
            self.rule = rbac_rule(call.group, call.resource, call.verb)
        text = message or "forbidden"
        if self.rule is not None:
            text = f"{text}; the rule to add: {self.rule}"
        super().__init__(text, call=call, **rest)


def rbac_rule(group: str, resource: str, verb: str) -> str:
    """Return the RBAC rule that allows one verb, as a line of YAML for a role's `rules`."""
    return f'- {{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}}'


# Before the words of a refusal the API server names the object, or its resource alone.
_NAMED: Final = r'(?:[^\s:]++ (?:"[^"]*+" )?+is forbidden: )?+'

# The words of every authorizer's refusal, from apiserver's responsewriters. The same words within
# another's message are of whoever wrote that.
_DENIAL: Final = re.compile(
    _NAMED + r'User "(?:[^"\\]|\\.)*+" cannot (?P<verb>\S++) resource "(?P<resource>[^"]++)" '
    r'in API group "(?P<group>[^"]*+)"'
)

# The words that the API server writes before those of a webhook or of a policy.
_ADMISSION: Final = re.compile(
    r'admission webhook "[^"]*+" denied the request|' + _NAMED + "ValidatingAdmissionPolicy "
)

_BY_REASON: Final[Mapping[str, type[ApiError]]] = {
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Expired": Expired,
    "Gone": Expired,
    "Forbidden": Forbidden,
    "Invalid": Invalid,
    "NotFound": NotFound,
    "TooManyRequests": TooManyRequests,
    "Unauthorized": Unauthorized,
}
_BY_CODE: Final[Mapping[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def error_from(
    code: int,
    status: Mapping[str, Any],
    call: Call | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """Return the error for an answer.

    Args:
        code: the HTTP status, or the `code` of a Status that came inside a watch.
        status: the Status object as a mapping; empty where the body was none.
        call: what was requested.
        retry_after: seconds from the `Retry-After` header.
    """
    reason = _text(status.get("reason"))
    details = status.get("details")
    details = details if isinstance(details, Mapping) else {}
    message = _text(status.get("message"))
    if retry_after is None and isinstance(details.get("retryAfterSeconds"), int):
        retry_after = float(details["retryAfterSeconds"])
    family = _BY_REASON.get(reason) or _BY_CODE.get(code)
    if _ADMISSION.match(message):
        # For how long the webhook requests a pause is no state of the API server.
        retry_after = None
        family = family if family is Invalid else Forbidden
    if family is None:
        family = ServerError if code >= 500 else ApiError
    if not message and family is not Forbidden:
        message = reason or f"the server answered {code}"
    return family(
        message, code=code, reason=reason, call=call, retry_after=retry_after, details=details
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
