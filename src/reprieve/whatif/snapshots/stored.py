"""A snapshot in a file: what is read of a cluster and nothing else, for `plan`, `explain` and bugs.

The file is JSON in gzip, so that any user can read what they hand out. It states its format, its
version and which version of the program wrote it; one of a version to come is refused, and so is
one that was damaged. Objects stand as `pruning` leaves them: since version 2 as `columns`, whose
values have a form of their own since version 3, and in version 1 one after the other. All are read.
"""

from __future__ import annotations

import gzip
import io
import zlib
from itertools import chain
from typing import Any, Final

import msgspec

import reprieve
from kubeworld.units.instants import InvalidInstant, format_instant, parse_instant
from reprieve.kube.bodies import Json
from reprieve.kube.resource import Resource
from reprieve.units.errors import UsageError
from reprieve.whatif.snapshots.anonymous import Pseudonyms
from reprieve.whatif.snapshots.columns import Shape, objects_of, shapes_of
from reprieve.whatif.snapshots.forms import Forms
from reprieve.whatif.snapshots.pruning import pruned
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot, Unseen

__all__ = ["FORMAT", "VERSION", "snapshot_of_bytes", "stored_bytes"]

FORMAT: Final = "reprieve.dev/snapshot"
VERSION: Final = 3
_READ: Final = (1, 2, VERSION)
_LEVEL: Final = 6
_GZIP: Final = 16 + zlib.MAX_WBITS
_LARGEST: Final = 2**30  # bytes, twenty times those of 50,000 pods: a small file may unpack to more


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    """Common settings: camel case in JSON."""


class _Resource(_Struct, frozen=True):
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    def resource(self) -> Resource:
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced)


class _Kind(_Struct, frozen=True, omit_defaults=True):
    """Objects of a kind, by their shapes; those with escapes and all of version 1 by themselves."""

    resource: _Resource
    version: int
    objects: list[msgspec.Raw] = []
    shapes: list[Shape] = []


class _Unseen(_Struct, frozen=True):
    resource: _Resource
    namespaces: list[str]


class _Head(_Struct, frozen=True):
    """What is looked at first; `program` wrote the file."""

    format: str
    version: int
    program: str = ""


class _Stored(_Struct, frozen=True):
    format: str
    version: int
    program: str
    at: str
    at_nanoseconds: int
    anonymized: bool
    kinds: list[_Kind]
    documents: dict[str, list[_Served]]
    single: dict[str, Any]
    unseen: list[_Unseen]
    namespaces: int | None


class _Served(_Struct, frozen=True):
    """A kind in a discovery document, or a subresource of one."""

    name: str
    kind: str
    namespaced: bool


class _Document(_Struct, frozen=True):
    resources: list[_Served] = []


def stored_bytes(snapshot: Snapshot, *, pseudonyms: Pseudonyms | None = None) -> bytes:
    """Return the file; `pseudonyms` stand in it for names."""
    kinds = [_kind(listed, pseudonyms) for _, listed in sorted(snapshot.kinds.items())]
    served = {
        f"/apis/{group}/{version}" if group else f"/api/{version}"
        for group, version in (
            (each.resource.group, each.resource.version) for each in snapshot.kinds.values()
        )
    }
    stored = _Stored(
        format=FORMAT,
        version=VERSION,
        program=reprieve.__version__,
        at=format_instant(snapshot.at),
        at_nanoseconds=snapshot.at,
        anonymized=pseudonyms is not None,
        kinds=kinds,
        documents={
            path: msgspec.json.decode(document, type=_Document).resources
            for path, document in sorted(snapshot.documents.items())
            if document is not None and path in served
        },
        single={path: None for path, body in sorted(snapshot.single.items()) if body is None},
        unseen=[
            _Unseen(
                _resource(each.resource),
                [pseudonyms.of(name) for name in each.namespaces]
                if pseudonyms is not None
                else list(each.namespaces),
            )
            for each in snapshot.unseen
        ],
        namespaces=snapshot.namespaces,
    )
    # Without the time of writing: the same snapshot is the same file.
    return _packed(msgspec.json.encode(stored))


def _packed(body: bytes) -> bytes:
    """Return bytes in gzip's form, without an instant.

    Most of the file is chance, such as uids and the ends of names. What repeats in these is short
    and dearer to point at than to write, which is what filtered data is to zlib: a tenth less.
    """
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP, zlib.DEF_MEM_LEVEL, zlib.Z_FILTERED)
    return packer.compress(body) + packer.flush()


def snapshot_of_bytes(body: bytes, where: str) -> Snapshot:
    """Return the snapshot of a file; `where` names it.

    Raises:
        UsageError: it is no snapshot, damaged, or of another version.
    """
    try:
        with gzip.open(io.BytesIO(body)) as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise UsageError(f"{where}: too large; accepted: at most {_LARGEST} bytes unpacked")
        head = msgspec.json.decode(text, type=_Head)
    except (
        OSError,
        EOFError,
        zlib.error,
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
    ) as error:
        why = " ".join(str(error).split())
        raise UsageError(
            f"{where}: not a snapshot, or damaged ({why}); accepted: a file of reprieve snapshot"
        ) from None
    if head.format != FORMAT or head.version not in _READ:
        raise UsageError(
            f"{where}: {head.format} of version {head.version}, written by reprieve "
            f"{head.program or 'of an unknown version'}; accepted: {FORMAT} up to version "
            f"{VERSION}, as reprieve {reprieve.__version__} writes it"
        )
    try:
        stored = msgspec.json.decode(text, type=_Stored)
        return _snapshot(stored)
    except (
        msgspec.MsgspecError,
        InvalidInstant,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        why = " ".join(str(error).split())
        raise UsageError(
            f"{where}: damaged ({why}); accepted: a file of reprieve snapshot"
        ) from None


def _kind(listed: Listed, pseudonyms: Pseudonyms | None) -> _Kind:
    resource = listed.resource

    def kept(body: bytes) -> bytes:
        obj: Json = msgspec.json.decode(body)
        found = pruned({**obj, "apiVersion": resource.api_version, "kind": resource.kind})
        return msgspec.json.encode(found if pseudonyms is None else pseudonyms.object(found))

    # A pseudonym depends on the value.
    forms = Forms(kept, by_keys=pseudonyms is None)
    for _, body in sorted(listed.objects.items()):
        forms.add(body)
    rest = [msgspec.Raw(each) for each in forms.others]
    return _Kind(_resource(resource), listed.version, rest, shapes_of(forms.rows))


def _resource(resource: Resource) -> _Resource:
    return _Resource(
        resource.group, resource.version, resource.plural, resource.kind, resource.namespaced
    )


def _snapshot(stored: _Stored) -> Snapshot:
    kinds = {}
    for each in stored.kinds:
        resource = each.resource.resource()
        bodies = chain(map(bytes, each.objects), objects_of(each.shapes))
        # Lists have an order: that of the names, whatever the shapes.
        objects = dict(sorted((_key(body), body) for body in bodies))
        kinds[resource.group, resource.plural] = Listed(resource, objects, each.version)
    parse_instant(stored.at)
    return Snapshot(
        at=stored.at_nanoseconds,  # type: ignore[arg-type]
        kinds=kinds,
        documents={path: _document(served) for path, served in stored.documents.items()},
        single=dict.fromkeys(stored.single),
        unseen=tuple(
            Unseen(each.resource.resource(), tuple(each.namespaces)) for each in stored.unseen
        ),
        namespaces=stored.namespaces,
    )


def _document(served: list[_Served]) -> bytes:
    return msgspec.json.encode({"resources": served})


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _Metadata


def _key(raw: bytes) -> tuple[str, str]:
    metadata = msgspec.json.decode(raw, type=_Named).metadata
    return metadata.namespace, metadata.name
