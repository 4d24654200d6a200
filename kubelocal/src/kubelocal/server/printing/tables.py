"""Tables: the rows that `kubectl get` prints, made by the server.

Built-in kinds have their columns in `columns`; a custom kind has those of its definition, found
by JSONPath, or just the age. Source: the API's Table kind; answers of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from kubelocal.server.printing.ages import age
from kubelocal.server.printing.columns import ColumnSpec, columns_of
from kubelocal.server.types.custom_versions import Column
from kubelocal.server.types.jsonpath import InvalidPath, find
from kubelocal.server.types.kinds import Kind
from kubeworld.units.instants import Nanos

__all__ = ["table"]

_NAME_COLUMN: Final = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name of the object, unique among those of its kind and namespace.",
    "priority": 0,
}


def table(
    kind: Kind,
    objects: Sequence[dict[str, Any]],
    now: Nanos,
    include_object: str,
    resource_version: str,
    continue_token: str = "",
    columns: bool = True,
) -> dict[str, Any]:
    """Return the meta.k8s.io/v1 Table of `objects`.

    `include_object`: what each row carries: `Metadata` (also when empty), `Object` or `None`.
    `columns`: False leaves the column definitions out, as events after the first of a watch do.
    """
    metadata: dict[str, Any] = {"resourceVersion": resource_version}
    if continue_token:
        metadata["continue"] = continue_token
    served = objects[0].get("kind", "") if objects else ""
    if kind.custom is not None and served != "Scale":
        definitions, rows = _custom(kind.custom.columns, objects, now)
    else:
        specs = columns_of(kind, served)
        definitions = [_definition(spec) for spec in specs]
        rows = [[spec.cell(obj, now) for spec in specs] for obj in objects]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions if columns else None,
        "rows": [
            {"cells": cells, "object": _carried(obj, include_object)}
            for cells, obj in zip(rows, objects, strict=True)
        ],
    }


def _name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"].get("name", ""))


def _carried(obj: dict[str, Any], include_object: str) -> dict[str, Any] | None:
    if include_object == "None":
        return None
    if include_object == "Object":
        return obj
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def _definition(spec: ColumnSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "type": spec.type,
        "format": "name" if spec.name == "Name" else "",
        "description": spec.description,
        "priority": spec.priority,
    }


def _custom(
    columns: Sequence[Column], objects: Sequence[dict[str, Any]], now: Nanos
) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    definitions = [_NAME_COLUMN]
    for column in columns:
        description = column.description or f"Custom resource definition column: {column.json_path}"
        definitions.append(
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": description,
                "priority": column.priority,
            }
        )
    rows = [
        [_name(obj), *(_custom_cell(column, obj, now) for column in columns)] for obj in objects
    ]
    return definitions, rows


def _custom_cell(column: Column, obj: dict[str, Any], now: Nanos) -> Any:
    try:
        found = find(column.json_path, obj)
    except InvalidPath:
        return None
    if not found or found[0] is None:
        return None
    value = found[0]
    if column.type == "string":
        return " ".join(_text(each) for each in found) if len(found) > 1 else _text(value)
    if column.type == "date":
        return age(value, now) if isinstance(value, str) else "<invalid>"
    if column.type == "integer":
        return int(value) if type(value) in (int, float) else None
    if column.type == "number":
        return value if type(value) in (int, float) else None
    return value if isinstance(value, bool) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
