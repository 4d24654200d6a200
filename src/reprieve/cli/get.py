"""`reprieve get holders|pending|preemptions|loops`: the page's tables, for people at a terminal.

Read once, with the caller's rights, by the same functions that the web page shows: numbers agree.
What the caller may not list is stated below the table.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import click
import yaml

from kubeworld.units.clock import Clock, SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.answers.layout import safe
from reprieve.answers.preemptions.displacements import records
from reprieve.answers.quantities import duration
from reprieve.answers.sources import ClusterSource, Reading
from reprieve.api.reprieve import ObjectRef
from reprieve.cli.options.cluster_options import context_option, kubeconfig_option, namespace_option
from reprieve.cli.options.operator_option import operator_namespace
from reprieve.cli.sessions.reading import reading_client
from reprieve.kube.client import Client
from reprieve.kube.credentials import load_connection
from reprieve.units.errors import UsageError
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.watches import read_once
from reprieve.web.pages.table import PAGES
from reprieve.web.records.loops import loops_of
from reprieve.web.tables import Cell, Column, Kind, Page, Table, Viewer, seconds

__all__ = ["Answer", "get", "printed"]

_FORMS: Final = ("text", "wide", "json", "yaml")
_EVERYTHING: Final = Viewer(sees_all=True)
_LOOPS: Final = "loops"
_PENDING: Final = "pending"
#: The former name of a table, which is read for one release.
_FORMER: Final = {"waiters": _PENDING}
_LOOP: Final = (
    Column("loop", Kind.TEXT),
    Column("displacements", Kind.NUMBER),
    Column("lostDeviceSeconds", Kind.NUMBER),
    Column("began", Kind.INSTANT),
    Column("until", Kind.INSTANT),
    Column("held", Kind.TEXT),
)
#: What stands above a column, where that is not its name.
_HEADERS: Final = {"lost": "lost s", "lostDeviceSeconds": "lost s"}


@dataclass(frozen=True, slots=True)
class _Asked:
    namespace: str | None
    all_namespaces: bool
    resource: str | None
    form: str
    kubeconfig: str | None
    context: str | None


@dataclass(frozen=True, slots=True)
class _Shown:
    """A table of a page, and which of its columns stand in the plain and the wide form."""

    page: str
    table: str
    plain: tuple[str, ...]
    wide: tuple[str, ...] = ()


_TABLES: Final[Mapping[str, _Shown]] = MappingProxyType(
    {
        "holders": _Shown(
            "now",
            "holders",
            ("unit", "queue", "amount", "idle", "since", "state"),
            ("cohort", "leaving", "pods", "nodes"),
        ),
        _PENDING: _Shown(
            "waiting",
            "waiting",
            ("unit", "queue", "position", "amount", "resource", "since", "reason"),
            ("plane", "shape", "priority", "message", "step"),
        ),
        "preemptions": _Shown(
            "preemptions",
            "preemptions",
            ("preemption", "decided", "plane", "preemptor", "units", "gpus", "lost", "state"),
            ("victims", "duration", "rule"),
        ),
        _LOOPS: _Shown("", "loops", ("loop", "displacements", "began", "until", "held")),
    }
)


class _TableName(click.Choice[str]):
    """The name of a table, a former one too."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the present name."""
        return super().convert(_FORMER.get(value, value), param, ctx)


@click.command()
@click.argument("what", type=_TableName(tuple(_TABLES)))
@namespace_option("Work of this namespace alone.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Work of all namespaces.")
@click.option(
    "--resource",
    metavar="NAME",
    help="The resource to count; default: the GPUs of most nodes for `holders`, all for `pending`.",
)
@click.option("-o", "--output", "form", default="text", metavar="FORM", help="wide, json or yaml.")
@kubeconfig_option
@context_option
def get(
    what: str,
    namespace: str | None,
    all_namespaces: bool,
    resource: str | None,
    form: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """List holders of GPUs, pending work, preemptions or loops.

    Without -n or -A the work in the namespace of the kubeconfig's context; loops are of all.
    """
    if form not in _FORMS:
        raise UsageError(f"-o: {form!r}; accepted: {', '.join(_FORMS)}")
    if namespace is not None and all_namespaces:
        raise UsageError("-n and -A: accepted: one of them")
    asked = _Asked(namespace, all_namespaces, resource, form, kubeconfig, context)
    found = asyncio.run(_found(what, asked))
    click.echo(printed(found, what, form), nl=False)
    if found.unseen and form in ("text", "wide"):
        click.echo(f"you may not list: {', '.join(found.unseen)}", err=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """A table with what it is of.

    `namespace`: the one looked in, empty for all. `resource`: what is counted, empty where nothing
    is. `elsewhere`: how many rows there would be by other resources, where there are none by this.
    """

    table: Table
    unseen: Sequence[str]
    at: Nanos
    namespace: str = ""
    resource: str = ""
    elsewhere: Mapping[str, int] = field(default_factory=dict)


async def _found(what: str, asked: _Asked) -> Answer:
    connection = await load_connection(asked.kubeconfig, asked.context)
    clock = SystemClock()
    namespace = asked.namespace or connection.namespace
    client = reading_client(connection, clock)
    try:
        if what == _LOOPS:
            return Answer(*await _loops(client, clock), clock.wall())
        mirror = Mirror()
        await read_once(mirror, client, [namespace])
    finally:
        await client.close()
    parameters: dict[str, tuple[str, ...]] = {}
    if not asked.all_namespaces:
        parameters["ns"] = (namespace,)
    shown, at = _TABLES[what], clock.wall()

    def page_of(resource: str | None) -> Page:
        chosen = {} if resource is None else {"resource": (resource,)}
        return PAGES[shown.page](mirror, _EVERYTHING, {**parameters, **chosen}, at)

    page = page_of(asked.resource)
    table, elsewhere = page.tables[shown.table], dict[str, int]()
    resource = str(page.values.get("resource", "")) if "amount" in shown.plain else ""
    if page.values.get("everything"):
        resource = ""
    if resource and not table.rows:
        others = {each: page_of(each) for each in page.values["resources"] if each != resource}
        elsewhere = {name: len(other.tables[shown.table].rows) for name, other in others.items()}
    place = "" if asked.all_namespaces else namespace
    return Answer(table, mirror.unseen, at, place, resource, elsewhere)


async def _loops(client: Client, clock: Clock) -> tuple[Table, Sequence[str]]:
    """Return the loops that the operator's guard finds in the records, by its default settings."""
    reading = Reading(ClusterSource(client, clock))
    known = await records(reading, operator_namespace())
    rows_shown: dict[str, tuple[Cell, ...]] = {}
    for loop in loops_of(known, clock.wall()):
        members = [_called(each) for each in loop.members]
        rows_shown["/".join(loop.lineages)] = (
            " -> ".join((*members, members[0])),
            loop.displacements,
            loop.lost_device_seconds,
            seconds(loop.began),
            seconds(loop.until),
            ", ".join(f"{_called(one)} from {_called(other)}" for one, other in loop.held),
        )
    return Table(_LOOP, rows_shown), sorted({kind for kind, _ in reading.refused})


def _called(ref: ObjectRef) -> str:
    return f"{ref.namespace}/{ref.name}"


def printed(found: Answer, what: str, form: str) -> str:
    """Return what stands at the terminal, by a form of `_FORMS`."""
    shown, table = _TABLES[what], found.table
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows.values()]
    if form == "json":
        return json.dumps({"items": rows}, indent=2) + "\n"
    if form == "yaml":
        return str(yaml.safe_dump({"items": rows}, sort_keys=False))
    if not rows:
        return f"{_nothing(found, what)}.\n"
    wanted = (*shown.plain, *shown.wide) if form == "wide" else shown.plain
    columns = [column for name in wanted for column in table.columns if column.name == name]
    headers = {**_HEADERS, "amount": _header_of(found.resource)}
    if found.resource:
        columns = [column for column in columns if column.name != "resource"]
    return "".join(f"{line}\n" for line in _lines(columns, rows, found.at, headers))


def _nothing(found: Answer, what: str) -> str:
    """Return that there are no rows, and of which resource and where there are some."""
    named = "pending work" if what == _PENDING else what
    said = f"No {named}{f' of {safe(found.resource)}' if found.resource else ''} found"
    if found.namespace:
        said += f" in namespace {safe(found.namespace)}; -A looks in all"
    others = [f"{number:,} of {safe(name)}" for name, number in found.elsewhere.items() if number]
    return f"{said}; --resource shows {', '.join(others)}" if others else said


def _header_of(resource: str) -> str:
    """Return what stands above amounts of a resource."""
    name = resource.rpartition("/")[2]
    return "gpus" if name == "gpu" else name or "requests"


def _lines(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Cell]],
    at: Nanos,
    headers: Mapping[str, str],
) -> Iterator[str]:
    """Yield a header and a line for each row, in columns; numbers to the right."""
    cells = [[headers.get(column.name, column.name).upper() for column in columns]]
    cells += [[_cell(column, row[column.name], at) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        aligned = (
            text.rjust(width) if column.kind is Kind.NUMBER else text.ljust(width)
            for column, text, width in zip(columns, row, widths, strict=True)
        )
        yield "   ".join(aligned).rstrip()


def _cell(column: Column, value: Cell, at: Nanos) -> str:
    if value is None or value == "":
        return "-"
    if column.kind is Kind.INSTANT and isinstance(value, (int, float)):
        age = at - int(value * SECOND)
        return duration(age) if age >= 0 else f"in {duration(-age)}"
    if column.kind is Kind.DURATION and isinstance(value, (int, float)):
        return duration(int(value * SECOND))
    if isinstance(value, list):
        return safe(",".join(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}"
    return safe(str(value))
