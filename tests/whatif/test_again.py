"""A cluster that is asked again answers as one that is decided about anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import Nanos
from reprieve.kube.resource import NODES, PODS
from reprieve.whatif.again import Again
from reprieve.whatif.copy.overlay import Change, Overlay
from reprieve.whatif.happened import Run
from reprieve.whatif.kept import Kept
from reprieve.whatif.questions.answer import Answer
from reprieve.whatif.snapshots.differences import changed, differences
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot
from tests.tiers import first_of
from tests.whatif.plan_stories import GPU, STORIES, arranged

_NODES = (NODES.group, NODES.plural)


async def unexplained(run: Run, answer: Answer, until: float) -> Answer:
    return answer


def with_fewer_gpus(snapshot: Snapshot) -> Snapshot:
    """Return a cluster of which the last node has a GPU less."""
    listed = snapshot.kinds.get(_NODES)
    if listed is None:
        return snapshot
    name = max(listed.objects)
    node = msgspec.json.decode(listed.objects[name])
    gpus = node["status"]["allocatable"].get(GPU, "1")
    node["status"]["allocatable"][GPU] = str(int(gpus) - 1)
    objects = {**listed.objects, name: msgspec.json.encode(node)}
    return replace(snapshot, kinds={**snapshot.kinds, _NODES: replace(listed, objects=objects)})


def without_pods(snapshot: Snapshot) -> Snapshot:
    """Return a cluster of which the first pod that nobody controls has ended."""
    listed = snapshot.kinds[PODS.group, PODS.plural]
    free = [name for name, raw in listed.objects.items() if b'"ownerReferences"' not in raw]
    objects = {name: raw for name, raw in listed.objects.items() if name not in sorted(free)[:1]}
    kinds = {**snapshot.kinds, (PODS.group, PODS.plural): replace(listed, objects=objects)}
    return replace(snapshot, kinds=kinds)


def answers(name: str, *, keep: bool) -> Sequence[Answer]:
    """Return what is answered to each kind of question about the cluster of a story."""
    deciders, snapshot, wanted = arranged(name)

    async def main() -> list[Answer]:
        with Again(None, deciders, unexplained, keep=keep) as again:
            run = await again.first(snapshot, wanted)
            found = [
                await again.with_others(wanted[:1]),
                await again.sparing(wanted, 0.0),
                await again.on(with_fewer_gpus(snapshot), wanted),
                await again.on(without_pods(snapshot), wanted),
            ]
            assert all(each.snapshot is run.overlay.snapshot for each in found)
            assert (again.seconds - again.of_one > 0) and (again._kept.seconds > 0) == keep
            return found

    return asyncio.run(main())


def comparable(answer: Answer) -> Answer:
    """Return an answer without its snapshot, and without what goes by the instant of the question.

    Coming to rest once more takes a quarter of a minute.
    """
    victims = tuple(replace(each, lost_device_seconds=None) for each in answer.victims)
    return replace(answer, snapshot=Snapshot(Nanos(0)), victims=victims)


@pytest.mark.parametrize("name", first_of(STORIES, 5))
def test_asked_again_or_anew_the_answers_are_the_same(name: str) -> None:
    kept, anew = answers(name, keep=True), answers(name, keep=False)
    for one, other in zip(kept, anew, strict=True):
        assert comparable(one) == comparable(other)


def test_what_nobody_can_answer_from_the_moment_is_decided_about_anew() -> None:
    deciders, snapshot, wanted = arranged("pod-that-starts")

    async def main() -> tuple[Answer, Answer]:
        with Again(None, deciders, unexplained) as again:
            await again.first(snapshot, wanted)
            kept = await again.with_others(wanted)
            again._kept.close()
            assert isinstance(again._kept, Kept)
            return kept, await again.with_others(wanted)

    kept, anew = asyncio.run(main())
    assert kept == anew


def test_only_what_differs_is_changed_and_nobody_is_told_of_what_is_gone() -> None:
    def listed(**objects: object) -> Snapshot:
        raw = {("", name): msgspec.json.encode(obj) for name, obj in objects.items()}
        return Snapshot(Nanos(0), {_NODES: Listed(NODES, raw, 1)})

    def node(name: str, gpus: str) -> dict[str, object]:
        amounts = {"cpu": "8", GPU: gpus}
        status = {"allocatable": amounts, "images": []}
        return {"metadata": {"name": name, "uid": name}, "status": status}

    before = listed(a=node("a", "8"), b=node("b", "8"), c=node("c", "8"))
    after = listed(a=node("a", "6"), b=node("b", "8"))
    changes = differences(before, after)
    assert {name for _, name in changes[_NODES]} == {"a", "c"}
    overlay = Overlay(before, SystemClock())
    written = overlay.get(NODES, "", "a")
    assert written is not None
    overlay.change(NODES, {**written, "status": {**written["status"], "images": ["written"]}})
    told: list[Change] = []
    overlay.subscribers.append(told.append)
    changed(overlay, changes)
    found = overlay.get(NODES, "", "a")
    assert found is not None
    assert found["status"] == {"allocatable": {"cpu": "8", GPU: "6"}, "images": ["written"]}
    assert overlay.get(NODES, "", "c") is None
    assert [change.object["metadata"]["name"] for change in told] == ["a"]
    changed(overlay, changes)  # what has gone before is no fault
