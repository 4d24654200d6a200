"""Bodies in and out: JSON, YAML and protobuf requests; objects, Tables and metadata as answers.

The Accept header states the form of an answer (`;as=Table;v=v1;g=meta.k8s.io`), in order of the
client's preference. Answers are JSON whatever else the client would also accept.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import orjson
import yaml

from kubelocal.bounded_yaml import FastLoader
from kubelocal.server.errors import (
    StatusError,
    bad_request,
    not_acceptable,
    unsupported_media_type,
)
from kubelocal.server.types.kinds import Kind
from kubelocal.server.wire.protobuf import UnsupportedProtobuf, decode

__all__ = [
    "DEPTH_LIMIT",
    "Form",
    "as_partial",
    "check_depth",
    "decode_body",
    "form_of",
    "read_yaml",
]

BODY_TYPES: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml")
DEPTH_LIMIT: Final = 200
PARTS_LIMIT: Final = 1_600_000


class Form(StrEnum):
    """What a reader is given."""

    OBJECT = "object"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"


def form_of(accept: str) -> Form:
    """Return the first form in `accept` that is served.

    Raises:
        StatusError: 406, none is.
    """
    if not accept or accept in ("application/json", "*/*"):
        return Form.OBJECT
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media not in ("application/json", "*/*", "application/*"):
            continue
        values = dict(part.partition("=")[::2] for part in parameters)
        wanted = values.get("as")
        if wanted is None or media != "application/json":
            return Form.OBJECT
        if values.get("g") == "meta.k8s.io" and values.get("v") in ("v1", "v1beta1"):
            if wanted == "Table":
                return Form.TABLE
            if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return Form.PARTIAL
    raise not_acceptable(BODY_TYPES)


def decode_body(body: bytes, content_type: str, kind: Kind | None = None) -> dict[str, Any]:
    """Return the object in a request body.

    Raises:
        StatusError: 400 not readable or not an object, 415 a type that is not read.
    """
    media = content_type.partition(";")[0].strip().lower()
    decoded: Any
    if not content_type or media in (
        "application/json",
        "application/x-www-form-urlencoded",
        "*/*",
    ):
        try:
            decoded = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise _unreadable(body, kind, f"json parse error: {_reason(error)}") from None
    elif media in _YAML:
        decoded = read_yaml(body)
    elif media == "application/vnd.kubernetes.protobuf":
        try:
            decoded = decode(body)
        except UnsupportedProtobuf as error:
            raise bad_request(f"the protobuf body cannot be read: {error}") from None
    else:
        raise unsupported_media_type(BODY_TYPES)
    if not isinstance(decoded, dict):
        what = {list: "array", str: "string", bool: "bool", type(None): "null"}
        raise _unreadable(
            body,
            kind,
            "json parse error: json: cannot unmarshal "
            f"{what.get(type(decoded), 'number')} into Go value of type struct",
        )
    # JSON is not nested deeper than the number of its brackets.
    in_json = body[:1] == b"{"
    if not in_json or body.count(b"{") + body.count(b"[") > DEPTH_LIMIT:
        check_depth(decoded)
    return decoded


class _Loader(FastLoader):
    """YAML as the API reads it: a text that looks like a date stays a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def read_yaml(body: bytes) -> Any:
    """Return the value of a YAML or JSON document.

    Raises:
        StatusError: 400, it is neither.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        _check_nesting(body)
        loaded = yaml.load(body, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError):
        raise bad_request("error decoding YAML: the body is no YAML document") from None
    if isinstance(loaded, dict | list):
        check_depth(loaded)
    try:
        # YAML knows more than JSON: sets, bytes, keys of other types, numbers of any size.
        return orjson.loads(orjson.dumps(loaded, option=orjson.OPT_NON_STR_KEYS))
    except (orjson.JSONEncodeError, orjson.JSONDecodeError):
        raise bad_request("error decoding YAML: the body has values that JSON has not") from None


def _check_nesting(body: bytes) -> None:
    """Refuse YAML whose nesting would overflow the stack of the library that composes it."""
    depth = 0
    for event in yaml.parse(body, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_LIMIT:
            raise bad_request(f"the object is nested more than {DEPTH_LIMIT} levels deep")


def check_depth(decoded: Any) -> None:
    """Refuse what is nested so deeply that walking it would not end well.

    Raises:
        StatusError: 400.
    """
    level = [decoded]
    # YAML aliases may unfold to far more than was sent.
    visited = 0
    for _ in range(DEPTH_LIMIT):
        visited += sum(map(len, level))
        if visited > PARTS_LIMIT:
            raise bad_request(f"the object has more than {PARTS_LIMIT} parts")
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise bad_request(f"the object is nested more than {DEPTH_LIMIT} levels deep")


def _reason(error: orjson.JSONDecodeError) -> str:
    if error.pos >= len(error.doc):
        return "unexpected end of JSON input"
    return f"invalid character {error.doc[error.pos : error.pos + 1]!r} at position {error.pos}"


def _unreadable(body: bytes, kind: Kind | None, why: str) -> StatusError:
    shown = body[:1_000].decode(errors="replace")
    wanted = f" (must be of type {kind.kind})" if kind is not None else ""
    return bad_request(
        f"the object provided is unrecognized{wanted}: couldn't get version/kind; {why} ({shown})"
    )


def as_partial(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of an object alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
