"""JSON patch (RFC 6902), JSON merge patch (RFC 7396) and strategic merge patch.

JSON patches are the jsonpatch library's work. Strategic merge follows
sig-api-machinery/strategic-merge-patch: lists with a merge key merge item by item, directives
`$patch`, `$retainKeys`, `$setElementOrder/..` and `$deleteFromPrimitiveList/..` are obeyed.
"""

from __future__ import annotations

from typing import Any, Final

import jsonpatch
import orjson

from kubelocal.server.errors import (
    StatusError,
    bad_request,
    other_kind,
    too_large,
    unsupported_media_type,
)
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.structure import Structure, structure_of
from kubelocal.server.wire.negotiation import DEPTH_LIMIT, check_depth
from kubelocal.server.writing.options import PatchType

__all__ = ["accepted_types", "merge", "patched"]

_OPERATIONS_LIMIT: Final = 10_000
# Copies of copies grow without bound: so many bytes of JSON may one patch copy.
_COPIED_LIMIT: Final = 3 * 1024 * 1024
_ORDER: Final = "$setElementOrder/"
_DELETE_VALUES: Final = "$deleteFromPrimitiveList/"


def accepted_types(kind: Kind) -> list[str]:
    """Return the content types of patches that `kind` takes."""
    types = [PatchType.JSON, PatchType.MERGE, PatchType.STRATEGIC, PatchType.APPLY]
    if kind.custom is not None:
        types.remove(PatchType.STRATEGIC)
    return [str(one) for one in types]


def patched(
    kind: Kind, current: dict[str, Any], patch: bytes, patch_type: PatchType
) -> dict[str, Any]:
    """Return `current` patched, which itself is left as it is; the result may share its parts.

    Raises:
        StatusError: 400 not a patch, 415 a type that the kind does not take, 422 the patch does
            not apply.
    """
    if str(patch_type) not in accepted_types(kind):
        raise unsupported_media_type(accepted_types(kind))
    try:
        decoded = orjson.loads(patch)
    except orjson.JSONDecodeError:
        raise bad_request("invalid JSON patch") from None
    was = (current.get("apiVersion"), current.get("kind"))
    if patch_type is PatchType.JSON:
        result = _json_patched(current, decoded)
    elif not isinstance(decoded, dict):
        prefix = "error decoding patch: " if patch_type is PatchType.MERGE else ""
        raise bad_request(
            f"{prefix}json: cannot unmarshal {_type_name(decoded)} "
            "into Go value of type map[string]interface {}"
        )
    else:
        if patch.count(b"{") + patch.count(b"[") > DEPTH_LIMIT:
            check_depth(decoded)
        if patch_type is PatchType.MERGE:
            result = merge(current, decoded)
        else:
            result = _merge_map(structure_of(kind), current, decoded)
    says = (result.get("apiVersion"), result.get("kind"))
    if says != was and None not in says:
        raise other_kind(kind, *says)
    return result


def _type_name(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}
    return names.get(type(value), "number")


def _in_go(value: Any) -> str:
    """Return a value as Go prints it."""
    match value:
        case dict():
            return f"map[{' '.join(f'{key}:{_in_go(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(_in_go, value))}]"
        case bool():
            return str(value).lower()
        case None:
            return "<nil>"
    return str(value)


def _json_patched(current: dict[str, Any], operations: Any) -> dict[str, Any]:
    if not isinstance(operations, list):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {_type_name(operations)} "
            "into Go value of type []handlers.jsonPatchOp"
        )
    if len(operations) > _OPERATIONS_LIMIT:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            "The allowed maximum operations in a JSON patch is "
            f"{_OPERATIONS_LIMIT}, got {len(operations)}",
        )
    check_depth(operations)
    copied = 0
    result: Any = orjson.loads(orjson.dumps(current))
    try:
        for operation in operations:
            if operation["op"] == "copy":
                copied += len(
                    orjson.dumps(jsonpatch.JsonPointer(operation["from"]).resolve(result))
                )
                if copied > _COPIED_LIMIT:
                    raise too_large(_COPIED_LIMIT)
            result = jsonpatch.JsonPatch([operation]).apply(result, in_place=True)
    except (
        jsonpatch.JsonPatchException,
        jsonpatch.JsonPointerException,
        KeyError,
        TypeError,
        ValueError,
    ):
        raise StatusError(
            422, "Invalid", "the server rejected our request due to an error in our request", {}
        ) from None
    if not isinstance(result, dict):
        raise bad_request("the patch does not leave an object")
    check_depth(result)
    return result


def merge(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a JSON merge patch; parts without changes are those of `current`."""
    current = dict(current)
    for key, value in patch.items():
        if value is None:
            current.pop(key, None)
        elif isinstance(value, dict):
            before = current.get(key)
            current[key] = merge(before if isinstance(before, dict) else {}, value)
        else:
            current[key] = value
    return current


def _merge_map(
    structure: Structure, current: dict[str, Any], patch: dict[str, Any]
) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type {directive!r} in the patch")
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        current = {key: value for key, value in current.items() if key in retained}
    else:
        current = dict(current)
    for key, value in patch.items():
        if key[:1] == "$":
            _obey(structure, current, key, value)
            continue
        inner = structure.field(key)
        before = current.get(key)
        if value is None:
            current.pop(key, None)
        elif isinstance(value, dict):
            current[key] = _merge_map(inner, before if isinstance(before, dict) else {}, value)
        elif isinstance(value, list) and inner.merge_key is not None:
            order = patch.get(_ORDER + key)
            current[key] = _merge_list(
                inner,
                before if isinstance(before, list) else [],
                value,
                order if isinstance(order, list) else None,
            )
        else:
            current[key] = value
    return current


def _obey(structure: Structure, current: dict[str, Any], directive: str, value: Any) -> None:
    """Obey a directive beside the field that it is about."""
    if directive.startswith(_DELETE_VALUES) and isinstance(value, list):
        name = directive.removeprefix(_DELETE_VALUES)
        if isinstance(current.get(name), list):
            current[name] = [one for one in current[name] if one not in value]
    elif directive.startswith(_ORDER) and isinstance(value, list):
        name = directive.removeprefix(_ORDER)
        inner = structure.field(name)
        if isinstance(current.get(name), list) and inner.merge_key is not None:
            current[name] = _ordered(inner.merge_key, current[name], current[name], value)


def _merge_list(
    structure: Structure, current: list[Any], patch: list[Any], order: list[Any] | None
) -> list[Any]:
    key = structure.merge_key or ""
    if not key:
        result = [*current, *(one for one in patch if one not in current)]
        return result if order is None else _ordered("", current, result, order)
    if any(isinstance(one, dict) and one.get("$patch") == "replace" for one in patch):
        return [one for one in patch if isinstance(one, dict) and "$patch" not in one]
    result = list(current)
    for one in patch:
        if not isinstance(one, dict) or key not in one:
            raise bad_request(f"map: {_in_go(one)} does not contain declared merge key: {key}")
        places = [place for place, kept in enumerate(result) if _key(key, kept) == one[key]]
        if one.get("$patch") == "delete":
            result = [kept for kept in result if _key(key, kept) != one[key]]
        elif places:
            result[places[0]] = _merge_map(structure.item(), result[places[0]], one)
        else:
            result.append(_merge_map(structure.item(), {}, one))
    return result if order is None else _ordered(key, current, result, order)


def _key(key: str, item: Any) -> Any:
    if not key:
        return item
    return item.get(key) if isinstance(item, dict) else None


def _ordered(key: str, before: list[Any], items: list[Any], order: list[Any]) -> list[Any]:
    """Sort the items that `order` names as it says; the others keep their place among them."""
    wanted = [_key(key, one) for one in order]
    named = sorted(
        (one for one in items if _key(key, one) in wanted),
        key=lambda one: wanted.index(_key(key, one)),
    )
    others = [one for one in items if _key(key, one) not in wanted]
    places = [_key(key, one) for one in before]
    result = []
    while named and others:
        name, other = _key(key, named[0]), _key(key, others[0])
        other_first = (
            other in places and name in places and places.index(other) < places.index(name)
        )
        result.append((others if other_first else named).pop(0))
    return [*result, *named, *others]
