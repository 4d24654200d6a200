"""Pages of a mirror, by their names, for those that keep them up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.web.live.watching import Key
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages.table import PAGES, MakePage
from reprieve.web.tables import NotFound, Page

__all__ = ["MirroredCluster"]

#: The value of a page that lists the namespaces which were named and may not be seen.
DENIED: Final = "denied"


class MirroredCluster:
    """What pages are made of.

    Args:
        mirror: of the cluster.
        pages: makes each page, by its name.
    """

    def __init__(self, mirror: Mirror, pages: Mapping[str, MakePage] = PAGES) -> None:
        self._mirror = mirror
        self._pages = pages
        self._news = asyncio.Event()
        mirror.subscribe(self._changed)

    @property
    def version(self) -> int:
        return self._mirror.version

    async def changed(self, since: int) -> None:
        """Return once the version is another."""
        while self._mirror.version == since:
            self._news.clear()
            await self._news.wait()

    def page(self, key: Key, at: Nanos) -> Page:
        """Make a page; its value `denied` lists the namespaces named that the viewer does not see.

        Raises:
            NotFound: there is none of that name, or none for this viewer.
            InvalidParameter: a parameter cannot be read.
        """
        make = self._pages.get(key.page)
        if make is None:
            raise NotFound("there is no such page")
        parameters = dict(key.parameters)
        page = make(self._mirror, key.viewer, parameters, at)
        denied = sorted(each for each in parameters.get("ns", ()) if not key.viewer.sees(each))
        # Without it an empty table would state that there is nothing.
        return replace(page, values={**page.values, DENIED: denied}) if denied else page

    def _changed(self) -> None:
        self._news.set()
