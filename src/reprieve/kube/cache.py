"""A typed cache of one kind: slim records by uid, by name and by declared indexes.

Wire structs come in, `convert` makes slim records of them (strings that repeat should be passed
through `sys.intern`), and subscribers hear of every change as `(old, new)`.

What is trusted: the uid is the identity. An event older than what is held is dropped, so is any
event about an object that was deleted. A new uid under a held name ends the old one, which is
reported as its deletion first. A list replaces everything in one batch. An object that `convert`
refuses is reported and leaves what is held of it as it was. A fault of ours about one object is
logged and costs the others nothing: one in `convert` or an index counts as a refusal, after one in
a subscriber the others are notified all the same. Only a reflector feeds a cache (`remake` has a
record state anew what follows from another kind): what this process wrote and has not seen yet
belongs elsewhere. A list's wire structs are freed page by page, since 50,000 of them need several
times the memory of their records.
Source: the design's section "State that can be trusted".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from reprieve.kube.objects import Identity, identity_of, version_number

__all__ = ["Cache", "Index", "Record"]

log: Final = logging.getLogger("reprieve.kube")


class Record(Protocol):
    """What every slim record has; `resource_version` is the integer, -1 where it is none."""

    @property
    def uid(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def resource_version(self) -> int: ...


W = TypeVar("W")
R = TypeVar("R", bound=Record)
Index = Callable[[R], Iterable[Hashable]]

_TOMBSTONES: Final = 4_096


class _Received(NamedTuple, Generic[R]):
    """An object of a list; `record` is None where nothing can be made of it."""

    identity: Identity
    record: R | None


class Cache(Generic[W, R]):
    """Records of one kind, fed by a reflector.

    Args:
        convert: wire struct or dict to record; a `ValueError` refuses the object.
        indexes: name to the keys of a record under that index.
        refused: notified of objects that `convert` refuses.
    """

    def __init__(
        self,
        convert: Callable[[W], R],
        indexes: Mapping[str, Index[R]] | None = None,
        *,
        refused: Callable[[W, ValueError], None] = lambda obj, error: None,
    ) -> None:
        self._convert = convert
        self._keys = dict(indexes or {})
        self._refused = refused
        self._records: dict[str, R] = {}
        # All and only held records: (namespace, name) -> uid.
        self._names: dict[tuple[str, str], str] = {}
        # All and only held records; no empty buckets.
        self._buckets: dict[str, dict[Hashable, dict[str, R]]] = {name: {} for name in self._keys}
        # Uids deleted last, oldest first: a late event must not bring them back.
        self._ended: dict[str, None] = {}
        self._changed: Callable[[R | None, R | None], None] = lambda old, new: None
        self._settled: Callable[[], None] = lambda: None
        self._seen = -1  # the newest version that came in

    def subscribe(
        self,
        changed: Callable[[R | None, R | None], None],
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `changed` for every change with (old, new) and `settled` once after each batch.

        A batch is one event, or one whole list. Subscribers are notified in the order in which they
        subscribed; what is held already is reported to a new one at once as (None, record).
        """
        reported, ended = self._changed, self._settled

        def notify(old: R | None, new: R | None) -> None:
            try:
                changed(old, new)
            except Exception:
                record = new or old
                where = "" if record is None else f"{record.namespace}/{record.name}"
                log.exception("an observer failed on a change of %s", where.lstrip("/"))

        def finish() -> None:
            try:
                settled()
            except Exception:
                log.exception("an observer failed on a batch of changes")

        def report(old: R | None, new: R | None) -> None:
            reported(old, new)
            notify(old, new)

        def end() -> None:
            ended()
            finish()

        self._changed, self._settled = report, end
        for record in list(self._records.values()):
            notify(None, record)
        if self._records:
            finish()

    # Reading

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[R]:
        return iter(self._records.values())

    def __contains__(self, uid: object) -> bool:
        return uid in self._records

    def get(self, uid: str) -> R | None:
        """Return the record with that uid."""
        return self._records.get(uid)

    def named(self, namespace: str, name: str) -> R | None:
        """Return the record with that name; `namespace` is empty for cluster-wide kinds."""
        uid = self._names.get((namespace, name))
        return None if uid is None else self._records[uid]

    def by(self, index: str, key: Hashable) -> list[R]:
        """Return the records under a key of a declared index, in order of arrival.

        Raises:
            KeyError: no such index was declared.
        """
        bucket = self._buckets[index].get(key)
        return list(bucket.values()) if bucket else []

    def keys(self, index: str) -> list[Hashable]:
        """Return the keys under which at least one record stands."""
        return list(self._buckets[index])

    def remake(self, uid: str, made: Callable[[R], R]) -> None:
        """Hold another record of the same version, since what it was made with has changed.

        Does nothing where nothing of it differs.
        """
        old = self._records.get(uid)
        new = None if old is None else made(old)
        if old is None or new is None or new == old:
            return
        keys = {name: dict.fromkeys(keys(new)) for name, keys in self._keys.items()}
        self._records[uid] = new
        self._index(old, new, keys)
        self._changed(old, new)
        self._settled()

    # The sink of a reflector

    def received(self, objects: list[W]) -> list[_Received[R]]:
        """Convert one page of a list, to be handed to `replaced` with the other pages."""
        found = []
        for obj in objects:
            try:
                identity = identity_of(obj)
            except Exception:
                log.exception("an object without an identity is skipped")
                continue
            found.append(self._receive(obj, identity))
        return found

    def replaced(self, objects: Iterable[W | _Received[R]], resource_version: str) -> None:
        """Hold exactly these objects.

        A list older than what was seen means that the server's storage was restored from a
        backup: then the list is right and what was seen is not.
        """
        number = version_number(resource_version)
        if 0 <= number < self._seen:
            self._ended.clear()
            restored = True
        else:
            restored = False
        self._seen = number
        listed: set[str] = set()
        changed = False
        for obj in objects:
            if not isinstance(obj, _Received):
                obj = self._receive(obj, identity_of(obj))
            listed.add(obj.identity.uid)
            changed |= self._store(obj.identity, obj.record, whatever_version=restored)
        for record in list(self._records.values()):
            if record.uid not in listed:
                self._drop(record)
                changed = True
        if changed:
            self._settled()

    def applied(self, obj: W) -> None:
        """Hold this object unless a newer version of it is held, or it has ended."""
        identity = identity_of(obj)
        if self._is_late(identity):
            self._seen = max(self._seen, identity.version)
        elif self._store(*self._receive(obj, identity)):
            self._settled()

    def deleted(self, obj: W) -> None:
        """Release this object."""
        uid, _, _, version = identity_of(obj)
        self._seen = max(self._seen, version)
        self._end(uid)
        record = self._records.get(uid)
        if record is not None:
            self._drop(record)
            self._settled()

    def _receive(self, obj: W, identity: Identity) -> _Received[R]:
        try:
            return _Received(identity, self._convert(obj))
        except ValueError as error:
            self._refused(obj, error)
        except Exception as fault:
            log.exception("an object of uid %s cannot be read", identity.uid)
            self._refused(obj, ValueError(f"it cannot be read: {fault!r}"))
        return _Received(identity, None)

    def _is_late(self, identity: Identity) -> bool:
        """Return whether something newer is known of the object."""
        held = self._records.get(identity.uid)
        stale = held is not None and 0 <= identity.version <= held.resource_version
        return stale or identity.uid in self._ended

    def _store(self, identity: Identity, new: R | None, whatever_version: bool = False) -> bool:
        self._seen = max(self._seen, identity.version)
        old = self._records.get(identity.uid)
        if identity.uid in self._ended:
            return False
        stale = old is not None and 0 <= identity.version <= old.resource_version
        if new is None or (stale and not whatever_version):
            return False
        try:
            keys = {name: dict.fromkeys(keys(new)) for name, keys in self._keys.items()}
        except Exception:
            log.exception("%s/%s cannot be read", new.namespace, new.name)
            return False
        namesake = self._names.get((new.namespace, new.name))
        if namesake is not None and namesake != new.uid:
            held = self._records[namesake]
            if 0 <= identity.version < held.resource_version and not whatever_version:
                return False
            self._drop(held)
        self._records[new.uid] = new
        self._names[new.namespace, new.name] = new.uid
        self._index(old, new, keys)
        self._changed(old, new)
        return True

    def _drop(self, record: R) -> None:
        self._end(record.uid)
        del self._records[record.uid]
        if self._names.get((record.namespace, record.name)) == record.uid:
            del self._names[record.namespace, record.name]
        self._index(record, None, {})
        self._changed(record, None)

    def _end(self, uid: str) -> None:
        self._ended[uid] = None
        if len(self._ended) > _TOMBSTONES:
            del self._ended[next(iter(self._ended))]

    def _index(
        self, old: R | None, new: R | None, wanted: Mapping[str, Mapping[Hashable, None]]
    ) -> None:
        for name, keys in self._keys.items():
            buckets: dict[Hashable, dict[str, Any]] = self._buckets[name]
            before = set(keys(old)) if old is not None else set()
            after = wanted.get(name, {})
            for key in before:
                if key not in after:
                    assert old is not None
                    bucket = buckets[key]
                    del bucket[old.uid]
                    if not bucket:
                        del buckets[key]
            for key in after:
                assert new is not None
                buckets.setdefault(key, {})[new.uid] = new
