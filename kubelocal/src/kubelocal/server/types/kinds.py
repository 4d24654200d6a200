"""A served version of a kind, as data.

A kind is data: names, scope, subresources and either the layout of a built-in message or the
version of a CustomResourceDefinition. Nothing else in the server knows a kind by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubelocal.server.types.custom_versions import CustomVersion

__all__ = ["ALL_VERBS", "Kind"]

ALL_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One served version of one kind.

    `layout`: qualified name of the built-in message, empty for custom kinds; `custom`: schema,
    columns and paths of a CRD's version, None for built-in kinds; `features`: feature gates that
    are on, for built-in kinds.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    list_kind: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    subresources: frozenset[str]
    custom: CustomVersion | None
    verbs: tuple[str, ...] = ALL_VERBS
    layout: str = ""
    stored: bool = True
    features: frozenset[str] = frozenset()

    @property
    def api_version(self) -> str:
        """`v1`, `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`pods`, `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def title(self) -> str:
        """The kind as error texts name it: `Pod`, `Job.batch`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind
