"""What the API server refuses, as `Status` objects in the real server's wording.

Source: answers of a 1.37 server; k8s.io/apimachinery's error constructors fix reasons and codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = [
    "StatusError",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "invalid",
    "method_not_allowed",
    "not_acceptable",
    "not_found",
    "other_kind",
    "path_not_found",
    "precondition_failed",
    "too_large",
    "too_many_requests",
    "unauthorized",
    "unsupported_media_type",
]


class Named(Protocol):
    """What of a kind the texts need."""

    @property
    def group(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def resource(self) -> str: ...


class FieldCause(Protocol):
    """One field that is wrong."""

    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def field(self) -> str: ...


class StatusError(Exception):
    """An answer other than success: HTTP code, reason, message and details."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}
        self.metadata: dict[str, Any] = {}

    def status(self) -> dict[str, Any]:
        """Return the v1 Status object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(kind: Named, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return {**details, **more}


def not_found(kind: Named, name: str) -> StatusError:
    """There is no such object."""
    return StatusError(404, "NotFound", f'{kind.resource} "{name}" not found', _details(kind, name))


def path_not_found() -> StatusError:
    """A path that names no resource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(kind: Named, name: str) -> StatusError:
    """An object of that name is there."""
    return StatusError(
        409, "AlreadyExists", f'{kind.resource} "{name}" already exists', _details(kind, name)
    )


def conflict(kind: Named, name: str, why: str = "", subresource: str = "") -> StatusError:
    """The object is not as the caller thinks; without `why`: it has been modified since."""
    suffix = f"/{subresource}" if subresource else ""
    why = why or (
        "the object has been modified; please apply your changes to the latest version and "
        "try again"
    )
    details = _details(kind, name)
    details["kind"] += suffix
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {kind.resource}{suffix} "{name}": {why}',
        details,
    )


def precondition_failed(kind: Named, name: str, field: str, asked: str, found: str) -> StatusError:
    """A delete whose precondition on `UID` or `ResourceVersion` does not hold."""
    return conflict(
        kind,
        name,
        f"Precondition failed: {field} in precondition: {asked}, {field} in object meta: {found}",
    )


def bad_request(message: str) -> StatusError:
    """The request cannot be understood."""
    return StatusError(400, "BadRequest", message)


def other_kind(kind: Named, api_version: object, name: object) -> StatusError:
    """The object sent states that it is of another kind than the path's."""
    package = (kind.group or "core").partition(".")[0]
    group, _, version = str(api_version).rpartition("/")
    return bad_request(
        f'{name} in version "{version}" cannot be handled as a {kind.kind}: converting '
        f"({group and group + '/'}{version}.{name}) to ({package}.{kind.kind}): "
        "unknown conversion"
    )


def unauthorized() -> StatusError:
    """The user is not known."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(kind: Named, name: str, why: str) -> StatusError:
    """Refused by admission."""
    return StatusError(
        403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', _details(kind, name)
    )


def invalid(kind: Named, name: str, causes: Sequence[FieldCause]) -> StatusError:
    """One or more fields that are wrong."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = _details(
        kind,
        name,
        causes=[
            {"reason": cause.reason, "message": cause.message, "field": cause.field}
            for cause in causes
        ],
    )
    details["kind"] = kind.kind
    return StatusError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details)


def expired(message: str) -> StatusError:
    """History that is compacted: watch or page from an old version."""
    return StatusError(410, "Expired", message)


def method_not_allowed() -> StatusError:
    """The resource does not do that."""
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        {},
    )


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """A body of a type that is not read here."""
    return StatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    """No form of answer that the client accepts."""
    return StatusError(
        406,
        "NotAcceptable",
        f"only the following media types are accepted: {', '.join(accepted)}",
    )


def too_large(limit: int) -> StatusError:
    """A body of more than `limit` bytes."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def too_many_requests(
    message: str, seconds: int, causes: Sequence[dict[str, Any]] = ()
) -> StatusError:
    """Come back later, after `seconds` if that is more than zero."""
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = list(causes)
    if seconds:
        details["retryAfterSeconds"] = seconds
    return StatusError(
        429,
        "TooManyRequests",
        message,
        details,
        {"Retry-After": str(seconds)} if seconds else None,
    )
