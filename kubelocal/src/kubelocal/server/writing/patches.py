"""JSON patch (RFC 6902), JSON merge patch (RFC 7396) and strategic merge patch.

JSON patches are the jsonpatch library's work, the others that of `kubeworld.writes.merging`.
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
from kubelocal.server.types.structure import structure_of
from kubelocal.server.wire.negotiation import DEPTH_LIMIT, check_depth
from kubelocal.server.writing.options import PatchType
from kubeworld.writes.merging import merge_patch, strategic_merge
from kubeworld.writes.refusals import Refused

__all__ = ["accepted_types", "patched"]

_OPERATIONS_LIMIT: Final = 10_000
# Copies of copies grow without bound: so many bytes of JSON may one patch copy.
_COPIED_LIMIT: Final = 3 * 1024 * 1024


def accepted_types(kind: Kind) -> list[str]:
    """Return the content types of patches that `kind` accepts."""
    types = [PatchType.JSON, PatchType.MERGE, PatchType.STRATEGIC, PatchType.APPLY]
    if kind.custom is not None:
        types.remove(PatchType.STRATEGIC)
    return [str(one) for one in types]


def patched(
    kind: Kind, current: dict[str, Any], patch: bytes, patch_type: PatchType
) -> dict[str, Any]:
    """Return `current` patched, which itself is left as it is; the result may share its parts.

    Raises:
        StatusError: 400 not a patch, 415 a type that the kind does not accept, 422 the patch does
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
            result = merge_patch(current, decoded)
        else:
            result = _strategic(kind, current, decoded)
    says = (result.get("apiVersion"), result.get("kind"))
    if says != was and None not in says:
        raise other_kind(kind, *says)
    return result


def _strategic(kind: Kind, current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    try:
        return strategic_merge(structure_of(kind), current, patch)
    except Refused as refusal:
        raise bad_request(refusal.message) from None


def _type_name(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}
    return names.get(type(value), "number")


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
