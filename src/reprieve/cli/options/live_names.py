"""Completion with what the cluster holds: kinds, names, namespaces, and contexts of kubeconfigs.

A shell waits for this: it is given a second and 200 names, and answers nothing rather than late or
with an error. Names are read as metadata only, with the caller's rights.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from reprieve.units.errors import ReprieveError

__all__ = ["contexts", "namespaces", "subjects"]

_SECONDS: Final = 1.0
_MOST: Final = 200


def subjects(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return `KIND/`s, and after a kind its `KIND/NAME`s in the namespace that is queried.

    After a kind that is a word of its own, the names alone.
    """
    from reprieve.answers.kinds import asked_of, spelled
    from reprieve.kube.resource import PREEMPTIONS

    before = context.params.get("words") or ()
    if len(before) > 1 or (before and "/" in before[0]):
        return []
    kind, slash, name = (before[0], " ", incomplete) if before else incomplete.partition("/")
    if not slash:
        return [CompletionItem(f"{each}/") for each in spelled() if each.startswith(kind)]
    try:
        resources = asked_of(f"{kind}/x").resources
    except ReprieveError:
        return []
    # Records stand in the operator's namespace, wherever that is.
    found = _found(context, resources, namespaced=resources != (PREEMPTIONS,))
    start = "" if before else f"{kind}/"
    return [CompletionItem(f"{start}{each}") for each in found if each.startswith(name)]


def namespaces(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the names of namespaces."""
    from reprieve.kube.resource import NAMESPACES

    found = _found(context, (NAMESPACES,), namespaced=False)
    return [CompletionItem(each) for each in found if each.startswith(incomplete)]


def contexts(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the contexts of the kubeconfig."""
    from reprieve.kube.credentials import context_names

    try:
        found = context_names(context.params.get("kubeconfig"))
    except ReprieveError:
        return []
    return [CompletionItem(each) for each in found if each.startswith(incomplete)]


def _found(context: click.Context, resources: Sequence[Any], *, namespaced: bool) -> list[str]:
    """Return names of the first kind that is served; none where they cannot be had in time."""

    async def names() -> list[str]:
        async with asyncio.timeout(_SECONDS):
            return await _names(context.params, resources, namespaced)

    with contextlib.suppress(ReprieveError, TimeoutError, OSError):
        return asyncio.run(names())
    return []


async def _names(given: dict[str, Any], resources: Sequence[Any], namespaced: bool) -> list[str]:
    from kubeworld.units.clock import SystemClock
    from reprieve.kube.client import connect
    from reprieve.kube.credentials import load_connection
    from reprieve.kube.errors import NotFound

    connection = await load_connection(given.get("kubeconfig"), given.get("context"))
    namespace = (given.get("namespace") or connection.namespace) if namespaced else ""
    client = connect(connection, SystemClock())
    try:
        for resource in resources:
            with contextlib.suppress(NotFound):
                async for page in client.list_pages(
                    resource, dict, namespace=namespace, page_size=_MOST, metadata_only=True
                ):
                    return sorted(each["metadata"]["name"] for each in page.items)
    finally:
        await client.close()
    return []
