"""The lists of an overlay, in pages, as an API server gives them.

A list is of the moment at which its first page was requested, whatever is written until the last
one: later pages hold what was there by then. A page is joined when it is requested: fifty thousand
pods at once are a copy of a hundred megabytes, and memory that the next copy cannot reuse.

Source: the API conventions of Kubernetes, retrieving large results sets in chunks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from kubeworld.writes.refusals import Refused
from reprieve.kube.bodies import Json
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.snapshots.snapshot import KindKey

__all__ = ["ListPages"]

_EXPIRED: Final = "The provided continue parameter is too old or was used before"


@dataclass(slots=True)
class _Open:
    """A list of which more is to come."""

    version: int
    rest: Iterator[bytes | Json]
    left: int


class ListPages:
    """Every list that is being read."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._open: dict[str, _Open] = {}
        self._tokens = itertools.count(1)

    def first(self, kind: KindKey, namespace: str = "", name: str = "", limit: int = 0) -> bytes:
        """Return the first page of a list, all of it without a limit; `name` alone where given.

        Raises:
            Refused: the kind is not served.
        """
        found = self._overlay.held(kind, namespace, name)
        return self._page(_Open(self._overlay.version, iter(found), len(found)), limit)

    def next(self, token: str, limit: int) -> bytes:
        """Return what follows a page, each once.

        Raises:
            Refused: no page follows this token.
        """
        found = self._open.pop(token, None)
        if found is None:
            raise Refused(410, "Expired", _EXPIRED)
        return self._page(found, limit)

    def _page(self, found: _Open, limit: int) -> bytes:
        used = itertools.islice(found.rest, limit or None)
        parts = [each if isinstance(each, bytes) else msgspec.json.encode(each) for each in used]
        found.left -= len(parts)
        head = f'{{"metadata":{{"resourceVersion":"{found.version}"'
        if found.left:
            token = str(next(self._tokens))
            self._open[token] = found
            head += f',"continue":"{token}","remainingItemCount":{found.left}'
        return b"".join((head.encode(), b'},"items":[', b",".join(parts), b"]}"))
