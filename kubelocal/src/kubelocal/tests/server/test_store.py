"""The store alone: versions, history, watchers, and a disk that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubelocal import store as store_module
from kubelocal import subscription
from kubelocal.disk import Disk, DiskError
from kubelocal.store import Compacted, Store, StoreFailed, TooLarge


def thing(name: str, namespace: str = "n", **values: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "uid": name}, **values}


def no_fields(resource: str, obj: dict[str, Any]) -> dict[str, str]:
    return {}


async def test_the_past_can_be_read_until_it_is_compacted() -> None:
    store = Store(no_fields)
    store.put("things", thing("a", value=1))
    store.put("things", thing("b"))
    then = store.revision
    store.put("things", thing("a", value=2))
    store.put("things", thing("c"))
    store.remove("things", thing("b"))

    past = [(one.name, one.decode().get("value")) for one in store.range_at("things", "n", then)]
    assert past == [("a", 1), ("b", None)]
    assert [one.name for one in store.range("things", "n")] == ["a", "c"]
    store.compact()
    with pytest.raises(Compacted):
        list(store.range_at("things", "n", then))


async def test_the_older_part_of_the_past_can_be_forgotten() -> None:
    store = Store(no_fields)
    store.put("things", thing("a", value=1))
    early = store.revision
    store.put("things", thing("a", value=2))
    then = store.revision
    store.put("things", thing("a", value=3))
    await store.durable()
    store.compact_to(then)

    assert [one.decode()["value"] for one in store.range_at("things", "n", then)] == [2]
    with pytest.raises(Compacted):
        list(store.range_at("things", "n", early))
    with pytest.raises(Compacted):
        store.subscribe("things", early)
    watching = store.subscribe("things", then)
    assert [each.object.decode()["value"] for each in await watching.batch()] == [3]


async def test_namespaces_do_not_run_into_each_other() -> None:
    store = Store(no_fields)
    for namespace in ("a", "ab", "a-b", "b"):
        store.put("things", thing("x", namespace))

    assert [one.namespace for one in store.range("things", "a")] == ["a"]
    assert [one.namespace for one in store.range("things", None)] == ["a", "a-b", "ab", "b"]
    assert [store.objects_in(one) for one in ("a", "b", "c")] == [1, 1, 0]


async def test_watchers_hear_of_a_write_when_it_is_durable(tmp_path: Path) -> None:
    store = Store(no_fields, tmp_path / "file")
    early = store.subscribe("things", store.revision)
    first = store.put("things", thing("a"))
    during = store.subscribe("things", first.revision - 1)
    after = store.subscribe("things", first.revision)
    await store.durable()
    store.put("things", thing("b"))
    await store.durable()
    heard = [[event.object.name for event in await one.batch()] for one in (early, during, after)]
    store.close()

    assert heard == [["a", "b"], ["a", "b"], ["b"]]


async def test_writes_of_one_turn_share_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(no_fields, tmp_path / "file")
    batches: list[int] = []
    write = Disk.write

    def counted(disk: Disk, rows: Any) -> None:
        rows = list(rows)
        batches.append(len(rows))
        write(disk, rows)

    monkeypatch.setattr(Disk, "write", counted)
    for index in range(10):
        store.put("things", thing(f"x{index}"))
    await store.durable()
    store.close()

    assert batches == [10]


async def test_a_failing_disk_acknowledges_nothing_and_stops_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(no_fields, tmp_path / "file")
    watcher = store.subscribe("things", store.revision)

    def full(disk: Disk, rows: Any) -> None:
        raise DiskError("disk is full")

    monkeypatch.setattr(Disk, "write", full)
    store.put("things", thing("a"))
    with pytest.raises(StoreFailed, match="disk is full"):
        await store.durable()
    with pytest.raises(StoreFailed, match="disk is full"):
        store.put("things", thing("b"))
    store.close()

    assert await watcher.batch() == []


def _limit(store: Store, pages: int) -> None:
    """As if the disk had so many pages of 4 KiB."""
    assert store._disk is not None
    store._disk._connection.execute(f"PRAGMA max_page_count={pages}")


async def test_a_full_disk_is_told_as_such_loses_nothing_and_is_overcome(tmp_path: Path) -> None:
    path = tmp_path / "file"
    store = Store(no_fields, path)
    store.put("things", thing("kept", value=1))
    store.put("things", thing("going"))
    await store.durable()
    watcher = store.subscribe("things", store.revision)
    then = store.published

    _limit(store, 8)
    store.put("things", thing("kept", value=2))
    store.put("things", thing("large", value="x" * 100_000))
    store.remove("things", thing("going"))
    with pytest.raises(StoreFailed, match=f"no space is left on the disk of {path}"):
        await store.durable()
    seen = [(one.name, one.decode().get("value")) for one in store.range("things", "n")]
    assert seen == [("going", None), ("kept", 1)]
    assert store.objects_in("n") == 2
    assert list(store.range_at("things", "n", then)) == list(store.range("things", "n"))

    _limit(store, 10_000)
    store.put("things", thing("kept", value=3))
    await store.durable()
    assert [event.object.name for event in await watcher.batch()] == ["kept"]
    store.close()
    again = Store(no_fields, path)
    left = [(one.name, one.decode().get("value")) for one in again.range("things", "n")]
    assert left == [("going", None), ("kept", 3)]
    again.close()


async def test_what_a_failing_disk_refused_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(no_fields, tmp_path / "file")
    store.put("things", thing("a", value=1))
    await store.durable()

    def failing(disk: Disk, rows: Any) -> None:
        raise DiskError("disk I/O error")

    monkeypatch.setattr(Disk, "write", failing)
    store.put("things", thing("a", value=2))
    store.put("things", thing("b"))
    with pytest.raises(StoreFailed, match="disk I/O error"):
        await store.durable()
    assert [(one.name, one.decode()["value"]) for one in store.range("things", "n")] == [("a", 1)]
    store.close()


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1_572_000, ""),
        (1_573_000, "etcdserver: request is too large"),
        (3_000_000, r"trying to send message larger than max \(30002\d\d vs. 2097152\)"),
    ],
)
async def test_objects_are_as_large_as_etcd_takes_them(size: int, text: str) -> None:
    store = Store(no_fields)
    before = store.revision
    if not text:
        store.put("things", thing("a", data="x" * size))
        return
    with pytest.raises(TooLarge, match=text):
        store.put("things", thing("a", data="x" * size))
    assert (store.revision, store.get("things", "n", "a")) == (before, None)
    Store(no_fields, request_limit=10_000_000).put("things", thing("a", data="x" * size))


async def test_a_watcher_that_is_too_slow_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "BACKLOG_PER_WATCHER", 3)
    store = Store(no_fields)
    watcher = store.subscribe("things", store.revision)
    for index in range(5):
        store.put("things", thing(f"x{index}"))
    await store.durable()

    assert [event.object.name for event in await watcher.batch()] == ["x0", "x1", "x2"]
    assert watcher.closed


async def test_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "HISTORY_PER_RESOURCE", 3)
    store = Store(no_fields)
    start = store.revision
    for index in range(5):
        store.put("things", thing("a", value=index))
    await store.durable()
    kept = await store.subscribe("things", start + 2).batch()

    assert [event.object.decode()["value"] for event in kept] == [2, 3, 4]
    with pytest.raises(Compacted):
        store.subscribe("things", start + 1)


async def test_a_closed_watcher_wakes_whoever_waits() -> None:
    store = Store(no_fields)
    watcher = store.subscribe("things", store.revision)
    waiting = asyncio.create_task(watcher.batch())
    await asyncio.sleep(0)
    store.close()

    assert await waiting == []
