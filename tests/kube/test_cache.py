"""What the cache holds after events in any order, and what its subscriber hears."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.kube.cache import Cache
from tests.kube.fakes import pod


@dataclass(frozen=True, slots=True)
class Row:
    uid: str
    namespace: str
    name: str
    resource_version: int
    node: str


def _convert(obj: dict[str, Any]) -> Row:
    metadata, node = obj["metadata"], obj["spec"].get("node", "")
    if node == "nonsense":
        raise ValueError("nonsense is no node")
    version = int(metadata["resourceVersion"])
    return Row(metadata["uid"], metadata["namespace"], metadata["name"], version, node)


class Heard:
    def __init__(self, cache: Cache[Any, Row]) -> None:
        self.changes: list[tuple[str | None, str | None]] = []
        self.batches = 0
        cache.subscribe(self._changed, self._settled)

    def _changed(self, old: Row | None, new: Row | None) -> None:
        def text(row: Row | None) -> str | None:
            return None if row is None else f"{row.uid}@{row.resource_version}"

        self.changes.append((text(old), text(new)))

    def _settled(self) -> None:
        self.batches += 1


def _cache(**rest: Any) -> Cache[Any, Row]:
    indexes = {"node": lambda row: [row.node] if row.node else [], "all": lambda row: ["x"]}
    return Cache(_convert, indexes, **rest)


def test_events_change_the_record_and_are_heard_as_old_and_new() -> None:
    cache = _cache()
    heard = Heard(cache)
    cache.applied(pod("a", uid="u", version=1))
    cache.applied(pod("a", uid="u", version=2, node="n"))
    cache.deleted(pod("a", uid="u", version=3))
    assert heard.changes == [(None, "u@1"), ("u@1", "u@2"), ("u@2", None)]
    assert heard.batches == 3
    assert (len(cache), cache.get("u"), cache.named("work", "a")) == (0, None, None)


def test_an_event_older_than_what_is_held_is_dropped() -> None:
    cache = _cache()
    cache.applied(pod("a", uid="u", version=10))
    heard = Heard(cache)
    heard.changes.clear()
    cache.applied(pod("a", uid="u", version=9))
    cache.applied(pod("a", uid="u", version=10))
    held = cache.get("u")
    assert held is not None
    assert held.resource_version == 10
    assert heard.changes == []


def test_a_late_event_does_not_bring_a_deleted_object_back() -> None:
    cache = _cache()
    cache.applied(pod("a", uid="u", version=1))
    cache.deleted(pod("a", uid="u", version=5))
    cache.applied(pod("a", uid="u", version=4))
    assert len(cache) == 0


def test_a_new_uid_under_an_old_name_ends_the_old_one_first() -> None:
    cache = _cache()
    cache.applied(pod("a", uid="old", version=1, node="n"))
    heard = Heard(cache)
    heard.changes.clear()
    cache.applied(pod("a", uid="new", version=5, node="n"))
    assert heard.changes == [("old@1", None), (None, "new@5")]
    assert [row.uid for row in cache.by("node", "n")] == ["new"]
    named = cache.named("work", "a")
    assert named is not None
    assert named.uid == "new"
    cache.deleted(pod("a", uid="old", version=4))
    assert [row.uid for row in cache] == ["new"]


def test_a_list_replaces_everything_as_one_batch() -> None:
    cache = _cache()
    for name in "abc":
        cache.applied(pod(name, uid=name, version=1))
    heard = Heard(cache)
    heard.changes.clear()
    heard.batches = 0
    cache.replaced([pod("b", uid="b", version=1), pod("c", uid="c", version=7), pod("d")], "9")
    assert sorted(heard.changes, key=str) == sorted(
        [("c@1", "c@7"), (None, "uid-d@1"), ("a@1", None)], key=str
    )
    assert heard.batches == 1
    assert sorted(row.name for row in cache) == ["b", "c", "d"]


def test_a_list_from_a_restored_backup_is_believed() -> None:
    cache = _cache()
    cache.replaced([pod("a", uid="a", version=100), pod("b", uid="b", version=90)], "100")
    cache.deleted(pod("b", uid="b", version=110))
    cache.replaced([pod("a", uid="a", version=40), pod("b", uid="b", version=41)], "50")
    assert {row.uid: row.resource_version for row in cache} == {"a": 40, "b": 41}


def test_an_object_that_cannot_be_converted_is_reported_and_changes_nothing() -> None:
    refused: list[tuple[str, str]] = []
    cache = _cache(refused=lambda obj, error: refused.append((obj["metadata"]["name"], str(error))))
    cache.applied(pod("a", version=1, node="n"))
    cache.applied(pod("a", version=2, node="nonsense"))
    cache.replaced([pod("a", version=3, node="nonsense"), pod("b", version=3)], "4")
    assert refused == [("a", "nonsense is no node")] * 2
    assert {row.name: row.resource_version for row in cache} == {"a": 1, "b": 3}


def test_a_subscriber_hears_of_what_is_held_already() -> None:
    cache = _cache()
    cache.replaced([pod("a", uid="u")], "4")
    heard = Heard(cache)
    assert (heard.changes, heard.batches) == ([(None, "u@1")], 1)


def test_an_undeclared_index_is_an_error() -> None:
    with pytest.raises(KeyError):
        _cache().by("colour", "red")


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["apply", "delete"]),
        st.sampled_from("abc"),
        st.sampled_from(["1", "2"]),
        st.integers(1, 12),
        st.sampled_from(["", "n", "m"]),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(EVENTS)
def test_names_indexes_and_changes_always_agree_with_the_records(
    events: list[tuple[str, str, str, int, str]],
) -> None:
    cache = _cache()
    mirror: dict[str, Row] = {}

    def changed(old: Row | None, new: Row | None) -> None:
        if old is not None:
            assert mirror.pop(old.uid) == old
        if new is not None:
            mirror[new.uid] = new

    cache.subscribe(changed)
    for verb, name, generation, version, node in events:
        obj = pod(name, uid=name + generation, version=version, node=node)
        if verb == "apply":
            cache.applied(obj)
        else:
            cache.deleted(obj)
        rows = {row.uid: row for row in cache}
        assert mirror == rows
        assert len({(row.namespace, row.name) for row in cache}) == len(rows)
        assert all(cache.named(row.namespace, row.name) is row for row in cache)
        for key in ("n", "m"):
            assert {r.uid for r in cache.by("node", key)} == {
                r.uid for r in rows.values() if r.node == key
            }
        assert set(cache.keys("node")) == {r.node for r in rows.values() if r.node}


def test_a_list_taken_in_page_by_page_is_the_same_as_at_once() -> None:
    refused: list[str] = []
    objects = [
        pod("a", uid="a", version=2, node="n"),
        pod("bad", uid="bad", version=3, node="nonsense"),
        pod("b", uid="b", version=4),
        pod("late", uid="late", version=1),
    ]
    whole, paged = (
        _cache(refused=lambda obj, _: refused.append(obj["metadata"]["name"])) for _ in range(2)
    )
    for cache in (whole, paged):
        for earlier in (pod("bad", uid="bad", version=1), pod("late", uid="late", version=5)):
            cache.applied(earlier)
    heard = Heard(paged)
    heard.batches = 0
    whole.replaced(objects, "9")
    pages = [*paged.received(objects[:2]), *paged.received(objects[2:])]
    assert heard.batches == 0
    paged.replaced(pages, "9")
    assert list(paged) == list(whole)
    assert {row.uid: row.resource_version for row in paged} == {"a": 2, "bad": 1, "b": 4, "late": 5}
    assert (heard.batches, refused) == (1, ["bad", "bad"])


def test_a_fault_about_one_object_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def convert(obj: dict[str, Any]) -> Row:
        if obj["metadata"]["name"] == "unreadable":
            raise ZeroDivisionError("the test says so")
        return _convert(obj)

    def by_length(record: Row) -> list[int]:
        if record.name == "keyless":
            raise TypeError("the test says so")
        return [len(record.name)]

    cache: Cache[dict[str, Any], Row] = Cache(convert, {"length": by_length})
    told: list[str] = []

    def changed(old: Row | None, new: Row | None) -> None:
        if new is not None and new.name == "poisoned":
            raise KeyError("the test says so")
        told.append((new or old).name)  # type: ignore[union-attr]

    late: list[str] = []
    cache.subscribe(changed)
    cache.subscribe(lambda old, new: late.append((new or old).name))  # type: ignore[union-attr]
    names = ("first", "unreadable", "keyless", "poisoned", "last")
    objects = [pod(name, uid=name, version=number) for number, name in enumerate(names, 1)]
    cache.replaced(cache.received(objects), "9")
    assert [record.name for record in cache] == ["first", "poisoned", "last"]
    assert told == ["first", "last"]
    assert late == ["first", "poisoned", "last"], "one subscriber's fault is not another's"
    cache.applied(pod("unreadable", uid="unreadable", version=10))
    cache.applied(pod("more", uid="more", version=11))
    assert told == ["first", "last", "more"]
    assert "ZeroDivisionError" in caplog.text and "KeyError" in caplog.text


def test_a_record_that_is_made_anew_is_indexed_and_told_like_a_change() -> None:
    cache = _cache()
    cache.applied(pod("a", uid="u", version=2, node="n"))
    heard = Heard(cache)
    heard.changes.clear()
    cache.remake("u", lambda row: replace(row, node="m"))
    cache.remake("u", lambda row: row)
    cache.remake("nobody", lambda row: replace(row, node="m"))
    assert (cache.by("node", "n"), [row.uid for row in cache.by("node", "m")]) == ([], ["u"])
    assert heard.changes == [("u@2", "u@2")]
    cache.applied(pod("a", uid="u", version=1, node="n"))
    assert [row.uid for row in cache.by("node", "m")] == ["u"]
