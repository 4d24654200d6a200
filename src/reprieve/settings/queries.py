"""What a PromQL query of the configuration states about whose series it reads.

A Prometheus server gives the series of all targets that it scrapes. Its own labels `job` and
`namespace` distinguish the targets, and a query that names neither for the exporters' metrics reads
also what a tenant publishes under their names. Source: Prometheus' query language, selectors.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

__all__ = ["pins_exporters"]

_QUOTED: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|\'(?:[^\'\\]++|\\.)*+\'')
_SELECTOR: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*+)?+\s*+(?:\{([^{}]*+)\})?+")
_PIN: Final = re.compile(r"(?:^|,)\s*+(?:job|namespace)\s*+=")


def pins_exporters(query: str, families: Collection[str]) -> bool:
    """Return whether every selector of these families names a `job` or `namespace`.

    A query of recording rules has none of them; then every selector with braces is looked at.
    """
    bare = _QUOTED.sub('""', query)
    found = [m for m in _SELECTOR.finditer(bare) if m[0]]
    named = [m for m in found if m[1] in families or (not m[1] and m[2])]
    chosen = named or [m for m in found if m[2] is not None]
    return bool(chosen) and all(_PIN.search(m[2] or "") for m in chosen)
