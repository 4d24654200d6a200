"""What an update may state about identity: name, namespace, uid, version of the stored object.

Order and texts of the generic registry's update. What else of the metadata must not change is
checked with the object itself (`metadata.check_metadata_update`).
"""

from __future__ import annotations

from typing import Any, Final

from kubelocal.server.causes import Cause
from kubelocal.server.errors import bad_request, conflict, invalid, precondition_failed
from kubelocal.server.types.kinds import Kind

__all__ = ["check_identity", "keep_system_metadata"]

_SYSTEM: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "generateName",
    "selfLink",
)


def check_identity(
    kind: Kind, old: dict[str, Any], new: dict[str, Any], *, replaced_whole: bool
) -> None:
    """Compare the identity in an update with the stored one.

    `replaced_whole`: a PUT, whose uid is a precondition; in a patch a changed uid is invalid.

    Raises:
        StatusError: 400, 409 or 422.
    """
    before, after = old["metadata"], new.get("metadata")
    name = before["name"]
    if not isinstance(after, dict):
        raise bad_request(f"{kind.kind}.metadata is not an object")
    if after.get("name") != name:
        raise bad_request(
            f"the name of the object ({after.get('name', '')}) "
            f"does not match the name on the URL ({name})"
        )
    namespace = after.get("namespace") or ""
    if namespace != before.get("namespace", "") and (namespace or not replaced_whole):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    uid = after.get("uid")
    if uid and uid != before["uid"]:
        if replaced_whole:
            raise precondition_failed(kind, name, "UID", uid, before["uid"])
        message = f'Invalid value: "{uid}": field is immutable'
        raise invalid(kind, name, [Cause("FieldValueInvalid", message, "metadata.uid")])
    version = after.get("resourceVersion")
    if version and version != before["resourceVersion"]:
        raise conflict(kind, name)
    if replaced_whole and not version and (kind.custom is not None or kind.plural == "leases"):
        message = "Invalid value: 0: must be specified for an update"
        raise invalid(kind, name, [Cause("FieldValueInvalid", message, "metadata.resourceVersion")])


def keep_system_metadata(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Restore what only the server may write."""
    before, after = old["metadata"], new["metadata"]
    if "namespace" in before:
        after["namespace"] = before["namespace"]
    for name in _SYSTEM:
        if name in before:
            after[name] = before[name]
        else:
            after.pop(name, None)
