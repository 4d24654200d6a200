"""The kinds that the server serves: the built-in ones, and custom ones as CRDs change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubelocal.server.types.builtin import builtin_kinds
from kubelocal.server.types.crds import kinds_of
from kubelocal.server.types.gates import enabled
from kubelocal.server.types.kinds import Kind

__all__ = ["Registry"]


@dataclass(slots=True)
class Registry:
    """All served kinds. `revision` grows with every change; it is part of hashes and ETags."""

    revision: int = 0
    features: frozenset[str] = field(default_factory=enabled)
    without: Collection[str] = ()
    """API versions that are not served, such as `scheduling.k8s.io/v1alpha2`."""
    documents: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """OpenAPI documents already made, by group and version; a changed group's are dropped."""
    _kinds: dict[tuple[str, str, str], Kind] = field(default_factory=dict)
    # Built-in kinds of `without`: no client can request them, but objects may be kept in them.
    _hidden: list[Kind] = field(default_factory=list)
    # The kinds of each installed CRD, by the CRD's name.
    _custom: dict[str, tuple[Kind, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind in builtin_kinds(self.features):
            if kind.api_version in self.without:
                self._hidden.append(kind)
            else:
                self._kinds[kind.group, kind.version, kind.plural] = kind

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the served kind with that path, or None."""
        return self._kinds.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind that an object's `apiVersion` and `kind` name, or None."""
        group, _, version = api_version.rpartition("/")
        for known in (*self._kinds.values(), *self._hidden):
            if (known.group, known.version, known.kind) == (group, version, kind):
                return known
        return None

    def stored(self, group: str, plural: str) -> Kind | None:
        """Return the version in which objects of that resource are kept, or None."""
        candidates = [
            kind
            for kind in (*self._kinds.values(), *self._hidden)
            if (kind.group, kind.plural) == (group, plural)
        ]
        return next((kind for kind in candidates if kind.stored), next(iter(candidates), None))

    def all(self) -> Sequence[Kind]:
        """Return every served kind, built-in ones first, custom ones by group and name."""
        builtin = [kind for kind in self._kinds.values() if kind.custom is None]
        custom = [kind for kind in self._kinds.values() if kind.custom is not None]
        return [*builtin, *sorted(custom, key=lambda kind: (kind.group, kind.plural, kind.version))]

    def install(self, crd: Mapping[str, Any]) -> None:
        """Serve what `crd` defines, in place of what a CRD of that name defined before.

        Raises:
            Invalid: the definition is not acceptable; nothing has changed.
        """
        kinds = kinds_of(crd)
        name = str(crd["metadata"]["name"])
        self._withdraw(name)
        for kind in kinds:
            self._kinds[kind.group, kind.version, kind.plural] = kind
        self._custom[name] = tuple(kinds)
        self.revision += 1
        self._forget({kind.group for kind in kinds})

    def remove(self, name: str) -> None:
        """Stop serving what the CRD `name` defined; unknown names are fine."""
        if self._withdraw(name):
            self.revision += 1

    def _withdraw(self, name: str) -> bool:
        kinds = self._custom.pop(name, None)
        for kind in kinds or ():
            self._kinds.pop((kind.group, kind.version, kind.plural), None)
        self._forget({kind.group for kind in kinds or ()})
        return kinds is not None

    def _forget(self, groups: set[str]) -> None:
        for key in [key for key in self.documents if key[0] in groups]:
            del self.documents[key]
