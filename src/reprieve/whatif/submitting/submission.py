"""What is to be submitted: documents of a file, as the API server would store them.

1. The file is read: YAML or JSON, many documents, lists. An error is reported with line and
   column. An object is as large as the API server accepts one, with its aliases written out, and
   there are no more objects than a plan makes pods.
2. Each object's kind is looked up in what the API server serves; one that is not is reported with
   the kinds whose names come nearest.
3. Each is created in a dry run, so that defaulting, admission and rights are the API server's own.
   Where its namespace is created by the same file, or without a server, the document is used as it
   stands, with the defaults of pods. Pods that name another document are handled by `new_names`.

Source: the API's `dryRun=All`; YAML 1.1 as kubectl reads it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from reprieve.kube.bodies import Json
from reprieve.kube.errors import AlreadyExists, ApiError, Call, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import Resource
from reprieve.kube.transport import Request
from reprieve.kube.yaml_text import ManifestLoader
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.whatif.controllers.made_pods import MOST_PODS
from reprieve.whatif.submitting.new_names import asked_without

__all__ = [
    "Document",
    "Submitted",
    "dry_run",
    "matched",
    "read_documents",
    "refused_as_it_stands",
    "schedulers_named",
]

_NEAREST: Final = 3
_LONGEST_NAME: Final = 253
_LARGEST: Final = 3 * 2**20  # characters of an object; the API server accepts no larger request
_DEEPEST: Final = 100  # levels of one document
_DEFAULT_SCHEDULER: Final = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file; `place` states where it stands in it, for people."""

    object: Json
    place: str

    @property
    def title(self) -> str:
        """`Job team/train`, as people name it."""
        metadata = self.object["metadata"]
        name = metadata.get("name") or f"{metadata.get('generateName')}…"
        namespace = metadata.get("namespace")
        return f"{self.object['kind']} {f'{namespace}/' if namespace else ''}{name}"


@dataclass(frozen=True, slots=True)
class Submitted:
    """One object as it would be created, and the kind that it is of.

    `judged`: the API server's admission has had its state; else the document stands as it is.
    """

    resource: Resource
    object: Json
    place: str = ""
    judged: bool = False


def read_documents(text: str, where: str) -> list[Document]:
    """Return the objects of a file, in order; `where` names the file.

    Raises:
        UsageError: it is not YAML, or a document is no object of Kubernetes.
    """
    loader = ManifestLoader(text)
    found: list[Document] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                continue
            mark = node.start_mark
            place = f"{where}, line {mark.line + 1}, column {mark.column + 1}"
            document = loader.construct_document(node)
            _check_json(document, place, max(_LARGEST, len(text)))
            found += _objects(document, place)
            if len(found) > MOST_PODS:
                raise UsageError(f"{place}: one object more; accepted: at most {MOST_PODS} in all")
    except yaml.MarkedYAMLError as error:
        raise UsageError(f"{where}{_marked(error)}") from None
    except (yaml.YAMLError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise UsageError(f"{where}: not YAML: {' '.join(str(error).split())}") from None
    finally:
        loader.dispose()
    if not found:
        raise UsageError(f"{where}: it has no object; accepted: manifests in YAML or JSON")
    return found


def schedulers_named(documents: Sequence[Document]) -> tuple[str, ...]:
    """Return the schedulers that pods of these documents request, the default one among them."""
    found = {_DEFAULT_SCHEDULER}
    left: list[Any] = [each.object.get("spec") for each in documents]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            named = part.get("schedulerName")
            if isinstance(named, str) and named:
                found.add(named)
            left += part.values()
        elif isinstance(part, list):
            left += part
    return tuple(sorted(found))


def matched(
    documents: Sequence[Document], served: Sequence[Resource], namespace: str
) -> list[Submitted]:
    """Return the documents with the kinds under which they are served.

    `namespace`: of those that name none.

    Raises:
        UsageError: a kind is not served, or an object is there twice.
    """
    by_name = {(each.api_version, each.kind): each for each in served}
    found: list[Submitted] = []
    places: dict[tuple[Resource, str, str], str] = {}
    for document in documents:
        obj = document.object
        resource = by_name.get((obj["apiVersion"], obj["kind"]))
        if resource is None:
            raise UsageError(f"{document.place}: {_unknown(obj, served)}")
        metadata = dict(obj["metadata"])
        if resource.namespaced:
            metadata["namespace"] = metadata.get("namespace") or namespace
        else:
            metadata.pop("namespace", None)
        if metadata.get("name"):
            key = (resource, str(metadata.get("namespace", "")), str(metadata["name"]))
            if key in places:
                raise UsageError(
                    f"{document.place}: {document.title} is there already ({places[key]}); "
                    "accepted: each object once"
                )
            places[key] = document.place
        found.append(Submitted(resource, {**obj, "metadata": metadata}, document.place))
    return found


async def dry_run(client: Reader, submitted: Sequence[Submitted]) -> list[Submitted]:
    """Return the objects as the API server would store them; nothing is stored.

    Raises:
        ReprieveError: the API server would refuse one; it states why.
    """
    names = {
        each.object["metadata"].get("name")
        for each in submitted
        if each.resource.kind == "Namespace"
    }
    objects = [each.object for each in submitted]
    return [
        await _dry_run(client, each, names, objects[:number])
        for number, each in enumerate(submitted)
    ]


async def _dry_run(
    client: Reader, submitted: Submitted, namespaces: Collection[str], earlier: Sequence[Json]
) -> Submitted:
    resource, obj = submitted.resource, submitted.object
    namespace = obj["metadata"].get("namespace", "")
    if namespace in namespaces:
        return submitted
    asked = asked_without(obj, earlier)
    request = Request(
        "POST",
        resource.path(namespace),
        {"dryRun": "All", "fieldManager": "reprieve", "fieldValidation": "Strict"},
        msgspec.json.encode(asked.object),
    )
    call = Call.on("create", resource, namespace, str(obj["metadata"].get("name", "")))
    try:
        body = await client.transport.request(request, call)
    except AlreadyExists as exists:
        raise refused_as_it_stands(submitted, "AlreadyExists", exists.message) from None
    except NotFound as missing:
        raise UsageError(f"{submitted.place}: {missing.message}") from None
    except ApiError as refusal:
        raise ReprieveError(f"{submitted.place}: the API server refuses it: {refusal}") from None
    stored = asked.stored(msgspec.json.decode(body))
    return Submitted(resource, stored, submitted.place, judged=True)


def refused_as_it_stands(submitted: Submitted, reason: str, message: str) -> UsageError:
    """Return what to report of an object that is refused when it is created."""
    if reason != "AlreadyExists":
        return UsageError(f"{submitted.place}: {message}")
    name = submitted.object["metadata"].get("name")
    return UsageError(
        f"{submitted.place}: {submitted.resource.kind} {name} exists already; "
        "accepted: what is not submitted yet"
    )


def _check_json(document: Any, place: str, most: int) -> None:
    """Refuse what JSON cannot state, and what is small in its file and endless with aliases copied.

    Raises:
        UsageError: it is longer than `most` characters, nested too deeply, or holds itself.
    """
    size, levels = _extent(document, {}, _DEEPEST)
    if levels > _DEEPEST:
        raise UsageError(
            f"{place}: nested too deeply, or within itself; accepted: at most {_DEEPEST} levels"
        )
    if size > most:
        raise UsageError(f"{place}: too long with its aliases; accepted: at most {most} characters")
    try:
        msgspec.json.encode(document)
    except UnicodeEncodeError:
        raise UsageError(f"{place}: a text has half a character; accepted: Unicode") from None
    except TypeError:
        raise UsageError(f"{place}: a field's name is no text; accepted: texts") from None


def _extent(part: Any, known: dict[int, tuple[int, int]], levels: int) -> tuple[int, int]:
    """Return about how many characters a part has as JSON, and its levels.

    What occurs often is looked at once. Below `levels` nothing is: then it has one level more.
    """
    if not isinstance(part, dict | list | tuple | set):
        return len(part) if isinstance(part, str | bytes) else len(str(part)), 0
    if not levels:
        return 0, 1
    if id(part) not in known:
        known[id(part)] = 0, _DEEPEST  # of itself, if it holds itself
        inner = [*part, *part.values()] if isinstance(part, dict) else part
        found = [_extent(each, known, levels - 1) for each in inner]
        deepest = max((depth for _, depth in found), default=0)
        known[id(part)] = sum(1 + size for size, _ in found), 1 + deepest
    return known[id(part)]


def _objects(document: Any, place: str) -> Iterator[Document]:
    if document is None:
        return
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
        items = document.get("items")
        if isinstance(items, list):
            for number, item in enumerate(items):
                yield from _objects(item, f"{place}, item {number}")
            return
    yield Document(_object(document, place), place)


def _object(document: Any, place: str) -> Json:
    if not isinstance(document, dict):
        raise UsageError(f"{place}: {_short(document)} is no object; accepted: a mapping")
    for field in ("apiVersion", "kind"):
        value = document.get(field)
        if not isinstance(value, str) or not value:
            raise UsageError(f"{place}: {field} is {_short(value)}; accepted: a name")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        raise UsageError(f"{place}: metadata is {_short(metadata)}; accepted: a mapping")
    for field in ("name", "generateName", "namespace"):
        value = metadata.get(field)
        if value is not None and (not isinstance(value, str) or len(value) > _LONGEST_NAME):
            raise UsageError(f"{place}: metadata.{field} is {_short(value)}; accepted: a name")
    if not (metadata.get("name") or metadata.get("generateName")):
        raise UsageError(f"{place}: metadata has no name; accepted: name or generateName")
    return document


def _unknown(obj: Json, served: Sequence[Resource]) -> str:
    """Return which kinds come nearest to one that is not served."""
    same = sorted({each.api_version for each in served if each.kind == obj["kind"]})
    if same:
        near = [f"{obj['kind']} of {version}" for version in same]
    else:
        kinds = {each.kind.lower(): each for each in served}
        names = difflib.get_close_matches(obj["kind"].lower(), kinds, _NEAREST)
        near = [f"{kinds[name].kind} of {kinds[name].api_version}" for name in names]
    said = f"; accepted: {', '.join(near)}" if near else ""
    return f"the API server does not serve {obj['kind']} of {obj['apiVersion']}{said}"


def _short(value: Any) -> str:
    if value is None:
        return "missing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _marked(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
    return f"{place}: not YAML: {error.problem or error.context}"
