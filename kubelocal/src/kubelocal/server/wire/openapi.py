"""OpenAPI v3: the index and one document for each group and version.

kubectl reads them for `explain`, and to learn whether it may leave validation to the server: a
PATCH operation that names the kind and accepts `fieldValidation` states it. The documents carry
schemas and those operations, nothing more. Source: documents of a 1.37 server.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.layout import Field, Message, Shape, descriptions, message
from kubelocal.server.types.registry import Registry

__all__ = ["openapi_document", "openapi_index"]

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_SCALARS: Final[Mapping[str, dict[str, Any]]] = {
    "string": {"type": "string"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "bool": {"type": "boolean"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "Strings": {"type": "array", "items": {"type": "string"}},
}
_NAMED: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "Time": (f"{_META}.Time", {"type": "string", "format": "date-time"}),
    "MicroTime": (f"{_META}.MicroTime", {"type": "string", "format": "date-time"}),
    "FieldsV1": (f"{_META}.FieldsV1", {"type": "object"}),
    "Quantity": (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        {"oneOf": [{"type": "string"}, {"type": "number"}]},
    ),
    "IntOrString": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    ),
    "RawExtension": ("io.k8s.apimachinery.pkg.runtime.RawExtension", {"type": "object"}),
    **{
        name: (f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}", {})
        for name in (
            "JSON",
            "JSONSchemaPropsOrArray",
            "JSONSchemaPropsOrBool",
            "JSONSchemaPropsOrStringArray",
        )
    },
}
_USUAL: Final = {
    "metadata": "Name, labels, owners and the server's own bookkeeping.",
    "spec": "What is asked for.",
    "status": "What was observed.",
}
"""The description of fields with these names wherever there is no other."""
_API_VERSION: Final = {
    "type": "string",
    "description": "Group and version of the schema that this object is written in.",
}
_KIND: Final = {"type": "string", "description": "Name of the kind that this object is of."}


def openapi_index(registry: Registry) -> bytes:
    """Return the list of documents; each address carries a hash that changes with its content."""
    paths = {}
    for group, version in _versions(registry):
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        document = openapi_document(registry, group, version) or b""
        digest = hashlib.sha256(document).hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return orjson.dumps({"paths": paths})


def openapi_document(registry: Registry, group: str, version: str) -> bytes | None:
    """Return the document of one group and version, None where nothing is served."""
    kinds = [kind for kind in registry.all() if (kind.group, kind.version) == (group, version)]
    if not kinds:
        return None
    cached = registry.documents.get((group, version))
    if cached is None:
        cached = orjson.dumps(_document(kinds))
        registry.documents[group, version] = cached
    return cached


def _versions(registry: Registry) -> list[tuple[str, str]]:
    return list(dict.fromkeys((kind.group, kind.version) for kind in registry.all()))


def _document(kinds: list[Kind]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for kind in kinds:
        name = _component(kind, schemas)
        paths.update(_operations(kind, name))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.0"},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _component(kind: Kind, schemas: dict[str, Any]) -> str:
    """Add the schemas that `kind` needs and return the name of its own."""
    identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    if kind.custom is None:
        name = _component_name(kind.layout)
        _add(message(kind.layout), schemas)
        properties = schemas[name]["properties"]
        schemas[name]["properties"] = {"apiVersion": _API_VERSION, "kind": _KIND, **properties}
    else:
        name = ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
        _add(message("meta/v1.ObjectMeta"), schemas)
        schemas[name] = _custom(kind.custom.schema)
    schemas[name]["x-kubernetes-group-version-kind"] = [identity]
    return name


def _custom(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = {
        "apiVersion": _API_VERSION,
        "kind": _KIND,
        "metadata": {
            "description": _USUAL["metadata"],
            "allOf": [{"$ref": f"#/components/schemas/{_META}.ObjectMeta"}],
        },
    }
    own = schema.get("properties", {})
    rest = {name: value for name, value in own.items() if name not in properties}
    return {**schema, "properties": {**properties, **rest}}


def _component_name(qualified: str) -> str:
    package, _, name = qualified.partition(".")
    holder, _, version = package.partition("/")
    if holder == "meta":
        return f"{_META}.{name}"
    if holder == "apiextensions":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{name}"
    return f"io.k8s.api.{holder}.{version}.{name}"


def _add(known: Message, schemas: dict[str, Any]) -> None:
    name = _component_name(known.qualified)
    if name in schemas:
        return
    schema: dict[str, Any] = {"type": "object"}
    schemas[name] = schema
    described = descriptions()
    if known.qualified in described:
        schema["description"] = described[known.qualified]
    wanted = [field.name for field in known.json.values() if field.required]
    if wanted:
        schema["required"] = wanted
    schema["properties"] = {}
    for field in known.json.values():
        shown = _property(field, schemas)
        text = described.get(f"{known.qualified}.{field.name}") or _USUAL.get(field.name)
        if text is not None:
            shown = {"description": text, **shown}
        schema["properties"][field.name] = shown
    if known.atomic:
        schema["x-kubernetes-map-type"] = "atomic"


def _property(field: Field, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = _type(field, schemas)
    if field.enum and field.shape is Shape.ONE:
        schema["enum"] = list(field.enum)
    if field.default is not None:
        schema["default"] = json.loads(field.default)
    if field.shape is Shape.MAP:
        schema = {"type": "object", "additionalProperties": _item(schema)}
        if field.list_type == "atomic":
            schema["x-kubernetes-map-type"] = "atomic"
        return schema
    if field.shape is Shape.LIST:
        return {"type": "array", "items": _item(schema), **_list_markers(field)}
    if field.retain_keys or field.replaced:
        schema["x-kubernetes-patch-strategy"] = "retainKeys" if field.retain_keys else "replace"
    return schema


def _list_markers(field: Field) -> dict[str, Any]:
    markers: dict[str, Any] = {}
    if field.list_keys:
        markers["x-kubernetes-list-map-keys"] = list(field.list_keys)
    if field.list_type:
        markers["x-kubernetes-list-type"] = field.list_type
    if field.merge_key is not None:
        if field.merge_key:
            markers["x-kubernetes-patch-merge-key"] = field.merge_key
        markers["x-kubernetes-patch-strategy"] = (
            "merge,retainKeys" if field.retain_keys else "merge"
        )
    return markers


def _type(field: Field, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.is_message:
        _add(message(field.type), schemas)
        return {"allOf": [{"$ref": f"#/components/schemas/{_component_name(field.type)}"}]}
    if field.type in _NAMED:
        name, schema = _NAMED[field.type]
        schemas[name] = schema
        return {"allOf": [{"$ref": f"#/components/schemas/{name}"}]}
    return dict(_SCALARS[field.type])


def _item(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what stands under `items`: a bare reference where nothing is stated beside it."""
    inner = schema.get("allOf")
    return inner[0] if inner and len(schema) == 1 else schema


_PARAMETERS: Final = [
    {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}
    for name, kind in (
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("fieldValidation", "string"),
        ("force", "boolean"),
    )
]


def _operations(kind: Kind, component: str) -> dict[str, Any]:
    prefix = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    space = "/namespaces/{namespace}" if kind.namespaced else ""
    body = {"schema": {"$ref": f"#/components/schemas/{component}"}}
    answers = {"200": {"description": "OK", "content": {"application/json": body}}}
    identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}

    def operation(action: str, media_types: tuple[str, ...]) -> dict[str, Any]:
        return {
            "parameters": _PARAMETERS,
            "requestBody": {"content": dict.fromkeys(media_types, body), "required": True},
            "responses": answers,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": identity,
        }

    patches: tuple[str, ...] = ("application/json-patch+json", "application/merge-patch+json")
    if kind.custom is None:
        patches += ("application/strategic-merge-patch+json",)
    patches += ("application/apply-patch+yaml",)
    paths: dict[str, Any] = {
        f"{prefix}{space}/{kind.plural}": {"post": operation("post", ("*/*",))}
    }
    if "patch" in kind.verbs:
        paths[f"{prefix}{space}/{kind.plural}/{{name}}"] = {
            "put": operation("put", ("*/*",)),
            "patch": operation("patch", patches),
        }
    return paths
