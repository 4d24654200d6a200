"""What of a sent object is accepted: decoded, defaulted, valid, and left as it was by an update.

In front of `schema`, whose findings become Status errors here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import orjson

from kubelocal.server.admitting import webhooks
from kubelocal.server.admitting.admission import complete_update
from kubelocal.server.causes import Invalid, StrictDecoding
from kubelocal.server.errors import StatusError, bad_request, invalid
from kubelocal.server.state import State
from kubelocal.server.types.gates import drop_disabled
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.layout import message
from kubelocal.server.types.schema import decode, validate
from kubelocal.server.writing import subresources
from kubelocal.server.writing.options import WriteOptions
from kubelocal.server.writing.replacement import check_identity, keep_system_metadata

__all__ = ["check", "decoded", "mutated", "succeeding"]

_OF_PODS: Final = ("resize", "ephemeralcontainers")
_STATUS_PARTS: Final = ("apiVersion", "kind", "metadata", "status")
# Kinds that are written often and whose validation does not look at the status.
_STATUS_WITHOUT_RULES: Final = frozenset(("pods", "jobs.batch"))


def succeeding(
    kind: Kind,
    old: dict[str, Any],
    new: dict[str, Any],
    options: WriteOptions,
    subresource: str,
    *,
    replaced_whole: bool,
    mutate: Callable[[dict[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """Return what replaces `old`, decoded, changed by `mutate`, and valid.

    Raises:
        StatusError: 400, 409 or 422.
    """
    check_identity(kind, old, new, replaced_whole=replaced_whole)
    new = subresources.merged(kind, old, new, subresource)
    if subresource != "status":
        keep_system_metadata(old, new)
        new = decoded(kind, new, options)
        drop_disabled(kind, new, old)
        new = mutate(new)
        complete_update(kind, old, new)
        # What a subresource for it changed is not held against a pod.
        check(kind, new, None if subresource in _OF_PODS else old)
        return new
    # The rest is the stored object's, which needs neither decoding nor another check.
    parts: dict[str, Any] = {name: new[name] for name in _STATUS_PARTS if name in new}
    parts = decoded(kind, parts, options)
    new |= {name: parts[name] for name in _STATUS_PARTS if name in parts}
    keep_system_metadata(old, new)
    new = mutate(new)
    if kind.resource not in _STATUS_WITHOUT_RULES or new["metadata"] != old["metadata"]:
        check(kind, new, old)
    return new


def mutated(api: State, request: webhooks.Request, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a decoded object as the mutating webhooks leave it, decoded.

    Raises:
        StatusError: as `webhooks.mutated`, or 400 for what a webhook made.
    """
    changed = webhooks.mutated(api, request, obj)
    if changed is obj:
        return obj
    assert isinstance(request.options, WriteOptions)
    changed = decoded(request.kind, changed, request.options)
    keep_system_metadata(obj, changed)
    return changed


def decoded(kind: Kind, obj: dict[str, Any], options: WriteOptions) -> dict[str, Any]:
    """Return `obj` with defaults and without unknown fields; warnings are in `options`.

    Raises:
        StatusError: 400; for the result of a patch 422.
    """
    try:
        result = decode(kind, obj, options.validation)
    except StrictDecoding as error:
        if options.patched:
            raise _unfit(kind, obj, error) from None
        raise bad_request(str(error)) from None
    options.warnings.extend(result.warnings)
    return result.obj


def check(kind: Kind, obj: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Refuse a decoded object that is not valid, or not in the place of `old`.

    Raises:
        StatusError: 422 with all causes.
    """
    try:
        validate(kind, obj, old)
    except Invalid as error:
        raise invalid(kind, obj["metadata"].get("name", ""), error.causes) from None


def _unfit(kind: Kind, obj: dict[str, Any], error: StrictDecoding) -> StatusError:
    """A patch whose result does not decode is invalid, not malformed.

    The result is shown as the server has it then: of a built-in kind, metadata in the order of the
    type's fields, what patches work on by name.
    """
    texts = ", ".join(error.messages)
    if "unknown field" in texts:
        texts = f"strict decoding error: {texts}"
    ordered = _ordered(obj, "")
    if kind.custom is None and "metadata" in obj:
        ordered["metadata"] = _ordered(obj["metadata"], "meta/v1.ObjectMeta")
    shown = json.dumps(orjson.dumps(ordered).decode(), ensure_ascii=False)
    message = f"Invalid value: {shown}: {texts}"
    return StatusError(
        422,
        "Invalid",
        f' "" is invalid: patch: {message}',
        {"causes": [{"reason": "FieldValueInvalid", "message": message, "field": "patch"}]},
    )


def _ordered(value: Any, kept_as: str) -> Any:
    """Return `value` with its fields in the order of the message `kept_as`, all others by name."""
    if isinstance(value, list):
        return [_ordered(one, kept_as) for one in value]
    if not isinstance(value, dict):
        return value
    fields = message(kept_as).json if "." in kept_as else {}
    names = [*(name for name in fields if name in value), *sorted(value.keys() - fields.keys())]
    return {
        name: _ordered(value[name], fields[name].type if name in fields else "") for name in names
    }
