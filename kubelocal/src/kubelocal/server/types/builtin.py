"""The built-in kinds that the embedded server serves, read from `layouts/kinds.txt`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from kubelocal.server.types.gates import serves
from kubelocal.server.types.kinds import ALL_VERBS, Kind
from kubelocal.server.types.layout import GROUPS, kind_lines

__all__ = ["builtin_kinds"]


@cache
def builtin_kinds(features: frozenset[str]) -> Sequence[Kind]:
    """Return the built-in kinds that are served with these gates, as discovery lists them."""
    kinds = (_kind(columns, features) for columns in kind_lines())
    return tuple(kind for kind in kinds if serves(features, kind.resource))


def _kind(columns: Sequence[str], features: frozenset[str]) -> Kind:
    package, name, plural, scope, short_names, categories, subresources, verbs = columns
    package, derived, kept = package.partition("@")
    holder, _, version = package.partition("/")
    return Kind(
        group=GROUPS[holder],
        version=version,
        kind=name,
        plural=plural,
        singular=name.lower(),
        namespaced=scope == "N",
        list_kind=f"{name}List",
        short_names=_words(short_names),
        categories=_words(categories),
        subresources=frozenset(_words(subresources)),
        verbs=ALL_VERBS if verbs == "*" else _words(verbs),
        layout=f"{holder}/{kept or version}.{name}",
        stored=not derived,
        custom=None,
        features=features,
    )


def _words(column: str) -> tuple[str, ...]:
    return () if column == "-" else tuple(column.split(","))
