"""Connections that are cut and servers that are started anew: the page shows what the server does.

A browser's side of the wire is cut at any byte, and it goes on from the last event that arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import aiohttp

from kubeworld.units.instants import Nanos
from reprieve.web.live.watching import Key
from reprieve.web.tables import Viewer
from tests.web.reading import Browser, meant
from tests.web.serving import serving
from tests.web.stand_in import StandIn

_NOW = Key.of("now", {}, Viewer(True))
_RESUMES = 200
_ENOUGH = 5  # of each kind of cut
_BOUND = 2000


async def test_two_hundred_connections_cut_anywhere_show_the_servers_page_in_the_end() -> None:
    random, cluster, browser = Random(18), StandIn(), Browser()
    resumes = cut_within_an_event = restarts = 0
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving(cluster))
        # Where a cut falls is chance: it goes on until there are enough of each kind.
        while resumes < _RESUMES or (
            min(cut_within_an_event, restarts, browser.snapshots) <= _ENOUGH and resumes < _BOUND
        ):
            if random.random() < 0.1:
                await stack.aclose()
                served = await stack.enter_async_context(serving(cluster))
                restarts += 1
            told = {"Last-Event-ID": browser.position} if browser.position else {}
            told["Accept-Encoding"] = "identity"
            path = served.address + "/api/live?page=now"
            async with served.client.get(path, headers=told) as answer:
                for _ in range(random.randint(0, 3)):
                    cluster.set(f"team-{random.randrange(3)}/u{random.randrange(20)}", resumes)
                    await asyncio.sleep(random.random() / 100)
                    rest = await _heard(answer, browser, random)
                    cut_within_an_event += bool(rest)
                    if rest:
                        break
            for _ in range(random.randint(0, 2)):
                cluster.set(f"team-{random.randrange(3)}/u{random.randrange(20)}", -resumes)
            resumes += 1
        path = f"{served.address}/api/live?page=now&from={browser.position}"
        async with asyncio.timeout(60), served.client.get(path) as answer:
            while browser.shown() != meant(cluster.page(_NOW, Nanos(0))):
                browser.hear(await answer.content.readuntil(b"\n\n"))

    assert min(cut_within_an_event, restarts, browser.snapshots) > _ENOUGH
    assert browser.snapshots < resumes / 2, "most go on from where they were"


async def _heard(answer: aiohttp.ClientResponse, browser: Browser, random: Random) -> bytes:
    """Take what has come, up to any byte; return what is not a whole event of it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            text = await answer.content.read(random.choice((20, 200, 100_000)))
            whole, end, rest = text.rpartition(b"\n\n")
            browser.hear(whole + end)
            return rest
    return b""
