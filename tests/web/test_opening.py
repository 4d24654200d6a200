"""Records are opened on demand: read whole, decided again in a process that can be ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from reprieve.api.reprieve import Preemption
from reprieve.kube.errors import Call, NotFound
from reprieve.kube.resource import Resource
from reprieve.records.plans.parts import Sizes, split
from reprieve.web.records.judged import Again, Judgement, Whole
from reprieve.web.records.judgement import judgement_of
from reprieve.web.records.opening import MOST_KEPT, Limits, Opening, decided_apart
from tests.web.stories import quota_record

NAMESPACE = "reprieve-system"


class Store:
    """Objects of an API server, as far as they are read."""

    def __init__(self, *objects: Any) -> None:
        self.objects = {(each.kind, each.metadata.name): each for each in objects}
        self.reads: list[str] = []

    async def get(self, resource: Resource, namespace: str, name: str, form: Any, /) -> Any:
        self.reads.append(name)
        await asyncio.sleep(0)
        found = self.objects.get((resource.kind, name))
        if found is None:
            raise NotFound("", call=Call.on("get", resource, namespace, name))
        return msgspec.json.decode(msgspec.json.encode(found), type=form)


class Opener:
    """An opening at work."""

    def __init__(self, *objects: Any, judge: Any = None) -> None:
        self.store = Store(*objects)
        self.changes = 0
        self.opening = Opening(self.store, self._changed, judge or self._judged)  # type: ignore[arg-type]
        self.task = asyncio.ensure_future(self.opening.run())
        self.judged: list[str] = []

    def _changed(self) -> None:
        self.changes += 1

    async def _judged(self, record: Preemption) -> Judgement:
        self.judged.append(record.metadata.name)
        return Judgement(Again.SAME, record.metadata.name)

    async def until_open(self, name: str, uid: str) -> Whole:
        for _ in range(1_000):
            found = self.opening.whole(NAMESPACE, name, uid)
            if found is not None and found.judgement is not None:
                return found
            await asyncio.sleep(0)
        raise AssertionError("it never opens")


@pytest.fixture(autouse=True)
async def processes_end() -> AsyncIterator[None]:
    """End what a test has started."""
    yield
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_record_is_read_whole_and_decided_once_whoever_asks() -> None:
    record = quota_record()
    parted = split(record.metadata.name, NAMESPACE, record.spec, Sizes(head=64, part=512))
    head = msgspec.structs.replace(record, spec=parted.head)
    opener = Opener(head, *parted.parts, *parted.inputs)
    assert opener.opening.whole(NAMESPACE, record.metadata.name, record.metadata.uid) is None
    found = await opener.until_open(record.metadata.name, record.metadata.uid)
    assert found.spec == msgspec.structs.replace(record.spec, input=None)
    await opener.until_open(record.metadata.name, record.metadata.uid)
    assert opener.judged == [record.metadata.name]
    assert opener.store.reads.count(record.metadata.name) == 1
    assert opener.changes >= 1


async def test_what_cannot_be_read_is_not_tried_at_every_look() -> None:
    opener = Opener()
    for _ in range(50):
        assert opener.opening.whole(NAMESPACE, "gone", "uid") is None
        await asyncio.sleep(0)
    assert opener.store.reads == ["gone"]


async def test_another_record_under_the_same_name_is_not_taken_for_it() -> None:
    record = quota_record()
    opener = Opener(record)
    for _ in range(20):
        assert opener.opening.whole(NAMESPACE, record.metadata.name, "former") is None
        await asyncio.sleep(0)
    assert opener.judged == []


async def test_only_so_many_are_kept() -> None:
    record = quota_record()
    records = [
        msgspec.structs.replace(
            record, metadata=msgspec.structs.replace(record.metadata, name=f"r-{n}", uid=f"u-{n}")
        )
        for n in range(MOST_KEPT + 1)
    ]
    opener = Opener(*records)
    for number in range(MOST_KEPT + 1):
        await opener.until_open(f"r-{number}", f"u-{number}")
    assert opener.opening.whole(NAMESPACE, "r-1", "u-1") is not None
    assert opener.opening.whole(NAMESPACE, "r-0", "u-0") is None


async def test_a_process_of_its_own_says_what_this_one_would() -> None:
    record = quota_record()
    limits = Limits(seconds=600, patience=600.0)
    assert await decided_apart(record, limits) == judgement_of(record)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(size=100), "The record has more than 100 bytes"),
        (Limits(patience=0.01), "It needed longer than 0.01 s"),
    ],
)
async def test_what_is_too_large_or_takes_too_long_is_given_up(limits: Limits, why: str) -> None:
    judgement = await decided_apart(quota_record(), limits)
    assert judgement == Judgement(Again.TOO_LARGE, why)
