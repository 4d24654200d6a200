"""Has a process answer pods that request notices, where that is wanted.

Any process does: the one that leads knows the answers, the others pass requests on to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from reprieve.operator.leading import end
from reprieve.planes.common.assembly import Surroundings

if TYPE_CHECKING:
    from reprieve.operator.notice_tls import Contexts

__all__ = ["notice_desk"]

log: Final = logging.getLogger("reprieve")


@contextlib.asynccontextmanager
async def notice_desk(given: Surroundings, lease: str) -> AsyncIterator[dict[str, str]]:
    """Answer pods during the block; gives the annotations of the lease while this process leads."""
    options, notices = given.options, given.notices
    if options.notice_port is None or options.dry_run or notices is None:
        yield {}
        return
    # Here, since most operators answer no pods.
    from reprieve.execution.accounts.reported_checkpoints import ReportedCheckpoints
    from reprieve.operator.notice_leader import ADDRESS, Leader, published
    from reprieve.operator.notice_server import NoticeDesk, serve_notices
    from reprieve.operator.pod_tokens import PodTokens

    chosen = None
    if options.notice_files:
        chosen = ReportedCheckpoints(given.client, given.fence, given.clock)
    async with _contexts(given) as tls:
        where, context = (given.namespace, lease), None if tls is None else tls.leader
        leader = Leader(given.client, given.clock, where, given.identity, context)
        tokens = PodTokens(given.client, given.clock)
        desk = NoticeDesk(notices, tokens, given.clock, chosen, leader)
        serving = None if tls is None else tls.serving
        async with serve_notices(desk, options.metrics_host, options.notice_port, serving) as port:
            log.info("notice server listens on port %d%s", port, "" if tls is None else ", TLS")
            writing = [] if chosen is None else [asyncio.create_task(chosen.run())]
            host = options.metrics_host or await _own_host(given)
            try:
                yield {ADDRESS: published(given.identity, host, port)} if host else {}
            finally:
                await end(writing)


async def _own_host(given: Surroundings) -> str:
    from reprieve.kube.credentials import load_connection
    from reprieve.operator.notice_leader import own_host

    options = given.options
    connection = await load_connection(options.kubeconfig, options.context, given.clock)
    return await own_host(connection.server)


@contextlib.asynccontextmanager
async def _contexts(given: Surroundings) -> AsyncIterator[Contexts | None]:
    """Give what notices are served over TLS with, None where they are served without."""
    service, folder = given.options.notice_tls, given.options.notice_certificate
    if not service and folder is None:
        yield None
        return
    # Here, since what makes certificates uses 8 MiB, and most operators have none made.
    from reprieve.operator.notice_tls import NoticeTls, notice_contexts

    tls = NoticeTls(service, given.settings.start.operator_namespace, folder)
    async with notice_contexts(tls, given.client, given.clock) as contexts:
        yield contexts
