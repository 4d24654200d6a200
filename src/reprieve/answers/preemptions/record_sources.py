"""Where records of preemptions are read from: a cluster, or a file that kubectl wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import yaml

from kubeworld.units.clock import SystemClock
from reprieve.answers.sources import Reading
from reprieve.api.reprieve import (
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionPart,
    PreemptionSpec,
    Proof,
)
from reprieve.execution.records.read_parts import stored_whole
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import Forbidden, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PREEMPTION_PARTS, PREEMPTIONS
from reprieve.kube.transport import HttpWire, Transport
from reprieve.kube.yaml_text import ManifestLoader
from reprieve.records.plans.parts import PartsMissing, whole
from reprieve.telemetry.decision_history import lines_of_log
from reprieve.units.counts import counted
from reprieve.units.errors import ReprieveError, UsageError

__all__ = [
    "record_of_cluster",
    "record_of_file",
    "records_of_file",
    "records_of_reader",
    "samples_of_log",
    "whole_record",
]

_LISTING: Final = "those there are: kubectl get preemptions -A"


async def record_of_cluster(
    name: str,
    namespace: str | None,
    operator_namespace: str,
    kubeconfig: str | None,
    context: str | None,
) -> Preemption:
    """Return a record of a cluster, whole.

    Without a namespace it is read in the operator's, then in whichever has one of that name: an
    operator that a chart installed is often elsewhere than the caller's variables state.

    Raises:
        UsageError: there is none of that name, or several.
        ReprieveError: the cluster does not serve such records.
        ApiError: it cannot be read.
    """
    clock = SystemClock()
    connection = await load_connection(kubeconfig, context, clock)
    reader = Reader(Transport(HttpWire(connection), clock))
    home = namespace or operator_namespace
    try:
        with contextlib.suppress(NotFound):
            return await _read(reader, home, name)
        if namespace is None:
            home = await _namespace_of(reader, name, operator_namespace)
            return await whole_record(reader, home, name)
        raise UsageError(f"no Preemption {name!r} in namespace {home!r}; {_LISTING}")
    finally:
        await reader.transport.close()


async def _read(reader: Reader, namespace: str, name: str) -> Preemption:
    """Return a record of a namespace.

    Raises:
        NotFound: there is none of that name.
        ReprieveError: the cluster does not serve such records.
        ApiError: it cannot be read.
    """
    try:
        return await whole_record(reader, namespace, name)
    except NotFound as missing:
        if missing.details.get("name") != name:
            raise ReprieveError(
                "the cluster knows no Preemptions: Reprieve is not installed there"
            ) from None
        raise


class _Named(msgspec.Struct, frozen=True):
    metadata: Metadata


async def _namespace_of(reader: Reader, name: str, home: str) -> str:
    """Return the namespace with a record of that name.

    Raises:
        UsageError: none or several have it, or the caller may not list them.
        ApiError: they cannot be listed.
    """
    try:
        page = await reader.list(
            PREEMPTIONS, _Named, field_selector=f"metadata.name={name}", metadata_only=True
        )
    except Forbidden:
        raise UsageError(
            f"no Preemption {name!r} in namespace {home!r}, and you may not list those of other "
            "namespaces; accepted: -n NAMESPACE"
        ) from None
    found = sorted(each.metadata.namespace for each in page.items)
    if not found:
        raise UsageError(f"no Preemption {name!r} in any namespace; {_LISTING}")
    if len(found) > 1:
        raise UsageError(
            f"Preemption {name!r} is in namespaces {', '.join(found)}; accepted: one of them by -n"
        )
    return found[0]


async def whole_record(reader: Reader, namespace: str, name: str) -> Preemption:
    """Return a record with its victims and the input of its decision, whatever it is stored in.

    Raises:
        PartsMissing: not all of it is there.
        NotFound: there is none of that name.
        ApiError: it cannot be read.
    """
    return await stored_whole(reader, await reader.get(PREEMPTIONS, namespace, name, Preemption))


def record_of_file(filename: str, name: str | None) -> Preemption:
    """Return the record of a file, of that name where several are in it.

    Raises:
        UsageError: it cannot be read, or does not hold exactly one.
    """
    document = _document(filename)
    found = _listed(document)
    if name is not None:
        found = [each for each in found if _name_of(each) == name]
    if len(found) != 1:
        which = f" named {name!r}" if name else ""
        several = "; name one: " + ", ".join(_name_of(each) for each in found) if found else ""
        raise UsageError(
            f"-f {filename}: {len(found)} Preemptions{which}; accepted: one, as "
            f"kubectl get preemption NAME -o yaml prints it{several}"
        )
    parts = {_name_of(each): each for each in _listed(document, "PreemptionPart")}
    try:
        return _whole(found[0], parts)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise UsageError(f"-f {filename}: not a Preemption: {error}") from None
    except PartsMissing as missing:
        raise UsageError(
            f"-f {filename}: {missing}; accepted: the Preemption with its PreemptionParts, as "
            "kubectl get preemptions,preemptionparts -o yaml prints them"
        ) from None


def records_of_file(filename: str) -> tuple[list[Preemption], list[str]]:
    """Return the records of a file, and what is wrong with those that cannot be used.

    Raises:
        UsageError: it cannot be read, or holds no records.
    """
    document = _document(filename)
    found = _listed(document)
    if not found and not _is_list(document):
        raise UsageError(
            f"-f {filename}: no Preemptions; accepted: what kubectl get "
            "preemptions,preemptionparts -A -o yaml prints, or -o json"
        )
    return _records(found, _listed(document, "PreemptionPart"))


def samples_of_log(path: Path) -> tuple[list[Preemption], list[str]]:
    """Return the samples of a decision log as records without victims, and what is unread.

    Raises:
        UsageError: it cannot be read, or has no samples.
    """
    records, unreadable, dropped = [], 0, 0
    for line in lines_of_log(path):
        if line is None:
            unreadable += 1
            continue
        dropped += line.dropped
        if line.input is not None:
            whom = ObjectRef("", line.kind, line.name, line.uid, line.namespace)
            spec = PreemptionSpec(
                line.plane, "", 0, Proof(""), [], line.time, preemptor=whom, input=line.input
            )
            records.append(Preemption(Metadata(line.reason or line.name, line.namespace), spec))
    if not records:
        raise UsageError(
            f"--decision-log {path}: no lines with an input; accepted: a log with some"
        )
    unread = [f"{path}: {counted(unreadable, 'line')} not of a decision log"] if unreadable else []
    unread += [f"{path}: {counted(dropped, 'line')} missing"] if dropped else []
    return records, unread


async def records_of_reader(
    reading: Reading, operator_namespace: str, namespace: str | None = None
) -> tuple[list[Preemption], list[str]]:
    """Return the records that the caller may read, and what is wrong with the others.

    Without the right to list those of all namespaces, those of the operator's are requested;
    `namespace` requests those of this one alone.

    Raises:
        UsageError: they may not be read.
        ApiError: they cannot be read.
    """
    space = namespace or ""
    found = await reading.listed((PREEMPTIONS,), space)
    if not found and (PREEMPTIONS.qualified, space) in reading.refused and namespace is None:
        space = operator_namespace
        found = await reading.listed((PREEMPTIONS,), space)
    if not found and (PREEMPTIONS.qualified, space) in reading.refused:
        raise UsageError(
            f"you may not list {PREEMPTIONS.qualified} in namespace {space!r}; "
            "accepted: a user who may, or -f FILE"
        )
    parts = []
    if any(each.get("spec", {}).get(key) for each in found for key in ("parts", "inputParts")):
        parts = await reading.listed((PREEMPTION_PARTS,), space)
    return _records(found, parts)


def _records(
    found: Iterable[dict[str, Any]], known: Iterable[dict[str, Any]]
) -> tuple[list[Preemption], list[str]]:
    parts = {_name_of(each): each for each in known}
    records, unread = [], []
    for each in found:
        try:
            records.append(_whole(each, parts))
        except (msgspec.ValidationError, UnicodeEncodeError, PartsMissing) as error:
            unread.append(f"{_name_of(each)}: {error}")
    return records, unread


def _whole(found: dict[str, Any], parts: Mapping[str, dict[str, Any]]) -> Preemption:
    record = msgspec.convert(found, Preemption)
    names = [*record.spec.parts, *record.spec.input_parts]
    specs = [
        msgspec.convert(parts[name], PreemptionPart).spec
        for name in dict.fromkeys(names)
        if name in parts
    ]
    return msgspec.structs.replace(record, spec=whole(record.spec, specs))


def _document(filename: str) -> object:
    """Return what a file states in YAML or JSON; the latter is read at once, as it may be large."""
    try:
        with click.open_file(filename, encoding="utf-8") as file:
            content = file.read()
        if content.lstrip()[:1] in ("{", "["):
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(content)
        return yaml.load(content, ManifestLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"-f {filename}: cannot be read: {error}") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise UsageError(f"-f {filename}: not YAML: {' '.join(str(error).split())}") from None


def _is_list(document: object) -> bool:
    return isinstance(document, dict) and isinstance(document.get("items"), list)


def _listed(document: object, kind: str = "Preemption") -> list[dict[str, Any]]:
    items = [document]
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        items = document["items"]
    return [item for item in items if isinstance(item, dict) and item.get("kind") == kind]


def _name_of(item: dict[str, Any]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) else ""
