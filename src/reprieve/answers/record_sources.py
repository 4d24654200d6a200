"""Where a record of a preemption is read from: a cluster, or a file that kubectl wrote."""

from __future__ import annotations

from typing import Any

import click
import msgspec
import yaml

from reprieve.api.reprieve import Preemption, PreemptionPart
from reprieve.execution.intents import stored_whole
from reprieve.execution.parts import PartsMissing, whole
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PREEMPTIONS
from reprieve.kube.yaml_text import ManifestLoader
from reprieve.units.clock import SystemClock
from reprieve.units.errors import ReprieveError, UsageError

__all__ = ["record_of_cluster", "record_of_file", "whole_record"]


async def record_of_cluster(
    name: str, namespace: str, kubeconfig: str | None, context: str | None
) -> Preemption:
    """Return a record of a cluster, whole.

    Raises:
        UsageError: there is none of that name.
        ReprieveError: the cluster does not serve such records.
        ApiError: it cannot be read.
    """
    clock = SystemClock()
    client = connect(await load_connection(kubeconfig, context, clock), clock)
    try:
        return await whole_record(client, namespace, name)
    except NotFound as missing:
        if missing.details.get("name") != name:
            raise ReprieveError(
                "the cluster knows no Preemptions: Reprieve is not installed there"
            ) from None
        raise UsageError(
            f"no Preemption {name!r} in namespace {namespace!r}; "
            "those there are: kubectl get preemptions -A"
        ) from None
    finally:
        await client.close()


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
    try:
        with click.open_file(filename, encoding="utf-8") as file:
            document = yaml.load(file, ManifestLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"-f {filename}: cannot be read: {error}") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise UsageError(f"-f {filename}: not YAML: {' '.join(str(error).split())}") from None
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
    try:
        record = msgspec.convert(found[0], Preemption)
        names = {*record.spec.parts, *record.spec.input_parts}
        parts = [
            msgspec.convert(each, PreemptionPart).spec
            for each in _listed(document, "PreemptionPart")
            if _name_of(each) in names
        ]
    except msgspec.ValidationError as error:
        raise UsageError(f"-f {filename}: not a Preemption: {error}") from None
    try:
        return msgspec.structs.replace(record, spec=whole(record.spec, parts))
    except PartsMissing as missing:
        raise UsageError(
            f"-f {filename}: {missing}; accepted: the Preemption with its PreemptionParts, as "
            "kubectl get preemptions,preemptionparts -o yaml prints them"
        ) from None


def _listed(document: object, kind: str = "Preemption") -> list[dict[str, Any]]:
    items = [document]
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        items = document["items"]
    return [item for item in items if isinstance(item, dict) and item.get("kind") == kind]


def _name_of(item: dict[str, Any]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) else ""
