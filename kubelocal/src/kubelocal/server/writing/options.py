"""What a request may set beside its object: write, delete and list options, and list results.

Names and defaults: meta/v1 CreateOptions, UpdateOptions, PatchOptions, DeleteOptions, ListOptions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from kubelocal.server.errors import bad_request, invalid
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.schema import Cause, FieldValidation

__all__ = [
    "DeleteOptions",
    "ListOptions",
    "PatchType",
    "Propagation",
    "WriteOptions",
    "query_number",
]


class PatchType(StrEnum):
    """The content types of patches."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(StrEnum):
    """What becomes of an object's dependents."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(slots=True)
class WriteOptions:
    """Options of create, update and patch; `warnings` collects the answer's header."""

    field_manager: str = "kubelocal"
    dry_run: bool = False
    validation: FieldValidation = FieldValidation.IGNORE
    force: bool = False
    warnings: list[str] = field(default_factory=list)
    # Set by the server: the object comes from a patch, which changes how errors are named.
    patched: bool = False


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of delete; preconditions hold on the object's uid and resourceVersion."""

    grace_seconds: int | None = None
    propagation: Propagation | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Options of list and watch as the query gives them."""

    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""
    send_initial_events: bool = False


OPTIONS_KIND: Final = Kind(
    "meta.k8s.io", "v1", "ListOptions", "listoptions", "", False, "", (), (), frozenset(), None
)


def parse_delete_options(query: Mapping[str, str], body: dict[str, Any]) -> DeleteOptions:
    """Return the options of a delete; the body wins over the query.

    Raises:
        StatusError: 400 or 422, a value is not accepted.
    """
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    try:
        seconds = None if grace is None else int(grace)
    except (TypeError, ValueError):
        raise bad_request(f"gracePeriodSeconds: {grace!r} is not a number of seconds") from None
    policy = body.get("propagationPolicy", "")
    if not isinstance(policy, str | None):
        raise bad_request("propagationPolicy: not a text")
    policy = policy or query.get("propagationPolicy")
    orphan = body.get("orphanDependents")
    if orphan is None and "orphanDependents" in query:
        orphan = query["orphanDependents"] == "true"
    if policy is None and orphan is not None:
        policy = Propagation.ORPHAN if orphan else Propagation.BACKGROUND
    preconditions = body.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise bad_request("preconditions: not an object")
    if policy is not None and policy not in list(Propagation):
        raise invalid(
            OPTIONS_KIND,
            "",
            [
                Cause(
                    "FieldValueNotSupported",
                    f'Unsupported value: "{policy}": supported values: "Foreground", "Background",'
                    ' "Orphan", "nil"',
                    "propagationPolicy",
                )
            ],
        )
    return DeleteOptions(
        seconds,
        None if policy is None else Propagation(policy),
        preconditions.get("uid"),
        preconditions.get("resourceVersion"),
        _dry_run(body.get("dryRun") or query.get("dryRun")),
    )


def parse_write_options(query: Mapping[str, str], user_agent: str) -> WriteOptions:
    """Return the options of a create, update or patch.

    Raises:
        StatusError: 400, a value is not accepted.
    """
    asked = query.get("fieldValidation", "")
    try:
        validation = FieldValidation(asked) if asked else FieldValidation.WARN
    except ValueError:
        raise bad_request(
            f'fieldValidation: Unsupported value: "{asked}": supported values: '
            '"Ignore", "Strict", "Warn"'
        ) from None
    return WriteOptions(
        field_manager=query.get("fieldManager") or user_agent.partition("/")[0] or "unknown",
        dry_run=_dry_run(query.get("dryRun")),
        validation=validation,
        force=query.get("force") == "true",
    )


def _dry_run(value: object) -> bool:
    if value in (None, "", []):
        return False
    if value in ("All", ["All"]):
        return True
    raise bad_request(f'dryRun: Unsupported value: "{value}": supported values: "All"')


def query_number(query: Mapping[str, str], name: str) -> int | None:
    """Return a whole number of the query, None when it is not there or empty.

    Raises:
        StatusError: 400 in the words of the real server, which are those of Go's strconv.
    """
    text = query.get(name)
    if not text:
        return None
    why = "invalid syntax"
    if re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
        if -(2**63) <= int(text[:25]) < 2**63:
            return int(text)
        why = "value out of range"
    raise bad_request(f"strconv.ParseInt: parsing {orjson.dumps(text).decode()}: {why}")


def parse_list_options(query: Mapping[str, str], watch: bool) -> ListOptions:
    """Return the options of a list or watch.

    Raises:
        StatusError: 400 or 422 as the real server answers bad combinations.
    """
    limit = query_number(query, "limit") or 0
    if limit < 0:
        raise bad_request(f"limit: {limit} is not a number of objects")
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    token = query.get("continue", "")
    initial = query.get("sendInitialEvents")
    name, message = "resourceVersionMatch", ""
    if watch and initial is None and match:
        message = f"{name} is forbidden for watch unless sendInitialEvents is provided"
    elif watch and initial is not None and match != "NotOlderThan":
        message = f"sendInitialEvents requires setting {name} to NotOlderThan"
    elif not watch and initial is not None:
        name, message = "sendInitialEvents", "sendInitialEvents is forbidden for list"
    elif not watch and match and not version:
        message = f"{name} is forbidden unless resourceVersion is provided"
    elif not watch and match and token:
        message = f"{name} is forbidden when continue is provided"
    elif not watch and match == "Exact" and version == "0":
        message = f'{name} "exact" is forbidden for resourceVersion "0"'
    if message:
        cause = Cause("FieldValueForbidden", f"Forbidden: {message}", name)
        raise invalid(OPTIONS_KIND, "", [cause])
    if match not in ("", "Exact", "NotOlderThan"):
        message = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"'
        raise invalid(OPTIONS_KIND, "", [Cause("FieldValueNotSupported", message, name)])
    return ListOptions(limit, token, version, match, initial == "true")


def parse_revision(text: str) -> int:
    """Return a resourceVersion as a number; empty and `0` are 0.

    Raises:
        StatusError: 400 in the real server's words.
    """
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)
