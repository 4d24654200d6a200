"""A cluster in memory: read from manifests, or from the file of `reprieve snapshot`.

It holds objects as the API server would show them, and never changes: what follows from a decision
is another cluster. Kinds that the planes decide about are served whether or not there are objects
of them; other kinds are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos, format_instant
from reprieve.kube.resource import Resource
from reprieve.lab.planes import all_kinds
from reprieve.units.errors import UsageError
from reprieve.whatif.copy.lists import discovered
from reprieve.whatif.snapshots.snapshot import KindKey, Listed, Snapshot
from reprieve.whatif.snapshots.stored import snapshot_of_bytes, stored_bytes
from reprieve.whatif.submitting.submission import Submitted, matched, read_documents

__all__ = ["Cluster"]

_VERSION: Final = 5
_GZIP: Final = b"\x1f\x8b"
_SECOND: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PRESENT: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """What a cluster holds at one instant. `snapshot` is inner: no part of the public face."""

    snapshot: Snapshot

    @classmethod
    def from_yaml(
        cls, text: str, *, at: datetime = _PRESENT, namespace: str = "default"
    ) -> Cluster:
        """Return a cluster that holds these objects, in YAML or JSON, one after the other.

        `at`: the present, with a time zone. `namespace`: of objects that name none. An object that
        states none gets a uid, and is an hour old; statuses are used as they stand.

        Raises:
            UsageError: the text is no manifest, or has a kind that no plane decides about.
        """
        objects = matched(read_documents(text, "text"), all_kinds(), namespace)
        return cls(_snapshot(objects, _instant(at)))

    @classmethod
    def from_file(
        cls, path: str | Path, *, at: datetime = _PRESENT, namespace: str = "default"
    ) -> Cluster:
        """Return the cluster of a file: of `reprieve snapshot`, or manifests as in `from_yaml`.

        Raises:
            UsageError: it cannot be read, or is neither.
        """
        try:
            content = Path(path).read_bytes()
            if content.startswith(_GZIP):
                return cls(snapshot_of_bytes(content, str(path)))
            return cls.from_yaml(content.decode("utf-8"), at=at, namespace=namespace)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None

    @property
    def now(self) -> datetime:
        """The present of this cluster, to the second."""
        return datetime.fromtimestamp(self.snapshot.at // _SECOND, UTC)

    def objects(self, kind: str, namespace: str | None = None) -> list[Mapping[str, Any]]:
        """Return the objects of a kind such as `Pod`, by namespace and name."""
        return [
            msgspec.json.decode(body)
            for listed in self.snapshot.kinds.values()
            if listed.resource.kind == kind
            for (place, _), body in sorted(listed.objects.items())
            if namespace is None or place == namespace
        ]

    def save(self, path: str | Path) -> None:
        """Write the file that `reprieve plan --from` and `reprieve explain --from` read."""
        Path(path).write_bytes(stored_bytes(self.snapshot))

    def read(self, manifests: str, namespace: str) -> list[Submitted]:
        """Return what is to be submitted to this cluster. Inner.

        Raises:
            UsageError: it is no manifest, or of a kind that is not served.
        """
        served = discovered(self.snapshot.documents) or all_kinds()
        return matched(read_documents(manifests, "manifests"), served, namespace)


def _instant(at: datetime) -> Nanos:
    if at.tzinfo is None:
        raise UsageError(f"at: {at} has no time zone; accepted: datetime(..., tzinfo=UTC)")
    past = at - _EPOCH
    return Nanos((past.days * 86_400 + past.seconds) * _SECOND)


def _snapshot(objects: Sequence[Submitted], now: Nanos) -> Snapshot:
    found: dict[KindKey, dict[tuple[str, str], bytes]] = {}
    kinds: dict[KindKey, Resource] = {}
    for resource in all_kinds():
        kinds.setdefault((resource.group, resource.plural), resource)
    for number, each in enumerate(objects):
        key = each.resource.group, each.resource.plural
        kinds.setdefault(key, each.resource)
        given = each.object["metadata"]
        metadata = {
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "creationTimestamp": format_instant(Nanos(now - HOUR)),
            **given,
            "resourceVersion": "1",
        }
        place = metadata.get("namespace", ""), metadata["name"]
        body = msgspec.json.encode({**each.object, "metadata": metadata})
        found.setdefault(key, {})[place] = body
    listed = {key: Listed(kinds[key], found.get(key, {}), _VERSION) for key in kinds}
    return Snapshot(now, listed)
