"""What a version of a CustomResourceDefinition states beyond names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubelocal.server.types.cel import Rules
from kubelocal.server.types.structural import Schema, Validator

__all__ = ["Column", "CustomVersion"]


@dataclass(frozen=True, slots=True)
class Column:
    """One printer column; `priority` above 0 shows with `-o wide` only."""

    name: str
    type: str
    format: str
    description: str
    priority: int
    json_path: str


@dataclass(frozen=True, slots=True, eq=False)
class CustomVersion:
    """What one version of a CRD states beyond names.

    `scale`: paths of spec replicas, status replicas and label selector (empty: none), or None.
    `conversion`: the webhook that converts between the versions, None where only names differ.
    `status`: the status is a subresource of its own. `deprecation`: the warning that every request
    for it gets.
    """

    crd: str
    schema: Schema
    validator: Validator
    rules: Rules
    columns: tuple[Column, ...]
    status: bool
    scale: tuple[str, str, str] | None
    selectable: tuple[str, ...]
    deprecation: str | None
    conversion: Mapping[str, Any] | None = None
