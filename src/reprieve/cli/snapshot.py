"""`reprieve snapshot -o FILE`: what a cluster holds, as far as decisions depend on it, in a file.

It is read with the caller's rights and holds what the planes read of each object, nothing else.
`explain --from` and `plan --from` answer from it, wherever they run.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import click

from kubeworld.units.clock import SystemClock
from reprieve.answers.kinds import BETWEEN, POD_GROUPS, WORKLOADS
from reprieve.cli.options.cluster_options import context_option, kubeconfig_option, namespace_option
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.cli.sessions.reading import reading_client
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import DISRUPTIONS, GPU_WORKLOADS, Resource
from reprieve.operator.collector import relax_collector
from reprieve.units.counts import counted
from reprieve.units.errors import UsageError
from reprieve.whatif.copy.lists import gather
from reprieve.whatif.snapshots.anonymous import Pseudonyms
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.whatif.snapshots.stored import snapshot_of_bytes, stored_bytes

__all__ = ["read_snapshot", "snapshot"]

_LARGEST: Final = 512 * 2**20


@click.command()
@click.option("-o", "--output", required=True, metavar="FILE", help="Write it here; - prints it.")
@click.option(
    "--anonymize",
    is_flag=True,
    help="With pseudonyms in the place of names, under a key that is thrown away.",
)
@namespace_option("Where to look without wider rights.")
@kubeconfig_option
@context_option
def snapshot(
    output: str,
    anonymize: bool,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Store what decisions depend on, for explain --from, plan --from and reports of bugs.

    No environment, images, arguments or secrets, and only annotations that are read. What you may
    not list is not in it.
    """
    relax_collector()
    chosen = asyncio.run(_snapshot(namespace, kubeconfig, context))
    body = stored_bytes(chosen, pseudonyms=Pseudonyms() if anonymize else None)
    if output == "-":
        sys.stdout.buffer.write(body)
        return
    try:
        Path(output).write_bytes(body)
    except OSError as error:
        raise UsageError(f"-o {output}: cannot be written: {error.strerror}") from None
    objects = sum(len(each.objects) for each in chosen.kinds.values())
    reported = (
        f"{output}: {counted(objects, 'object')}, {counted(len(body) // 1024 + 1, 'KiB', 'KiB')}"
    )
    refused = f"; not all of {counted(len(chosen.unseen), 'kind')}" if chosen.unseen else ""
    click.echo(reported + refused, err=True)


def read_snapshot(filename: str, where: str | None = None) -> Snapshot:
    """Return the snapshot of a file; - is standard input. `where`: the option that named it.

    Raises:
        UsageError: it cannot be read, is damaged or of another version.
    """
    place = where or f"--from {filename}"
    try:
        with click.open_file(filename, "rb") as file:
            body = file.read(_LARGEST)
    except OSError as error:
        raise UsageError(f"{place}: cannot be read: {error.strerror}") from None
    return snapshot_of_bytes(body, place)


def wanted_kinds() -> tuple[Resource, ...]:
    """Return the kinds that the planes, the stand-ins and the answers read."""
    found = dict.fromkeys(deciders_of(None, (), {}).kinds())
    for row in BUILT_IN:
        group, _, version = row.api_version.rpartition("/")
        found[Resource(group, version, row.plural, row.kind)] = None
    found |= dict.fromkeys((*POD_GROUPS, *WORKLOADS, *BETWEEN, GPU_WORKLOADS, DISRUPTIONS))
    return tuple(found)


async def _snapshot(namespace: str | None, kubeconfig: str | None, context: str | None) -> Snapshot:
    clock = SystemClock()
    connection = await load_connection(kubeconfig, context, clock)
    client = reading_client(connection, clock)
    try:
        place = namespace or connection.namespace
        return await gather(client, wanted_kinds(), clock, namespaces=[place])
    except ApiError as failure:
        raise UsageError(" ".join(str(failure).split())) from None
    finally:
        await client.close()
