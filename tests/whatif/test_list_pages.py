"""Lists of a what-if's cluster, page by page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import Nanos
from kubeworld.writes.refusals import Refused
from reprieve.kube.resource import PODS
from reprieve.whatif.copy.list_pages import ListPages
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot

KIND = ("", "pods")


def overlay(count: int) -> Overlay:
    objects = {
        ("team", f"p-{i}"): json.dumps(
            {"metadata": {"name": f"p-{i}", "namespace": "team"}}
        ).encode()
        for i in range(count)
    }
    snapshot = Snapshot(Nanos(0), {KIND: Listed(PODS, objects, 7)})
    return Overlay(snapshot, SystemClock())


def names(page: Any) -> list[str]:
    return [each["metadata"]["name"] for each in page["items"]]


def test_a_list_is_of_the_moment_of_its_first_page() -> None:
    cluster = overlay(5)
    lists = ListPages(cluster)
    page = json.loads(lists.first(KIND, limit=2))
    assert (names(page), page["metadata"]["remainingItemCount"]) == (["p-0", "p-1"], 3)
    cluster.create(PODS, {"metadata": {"name": "late", "namespace": "team"}})
    cluster.delete(KIND, ("team", "p-3"), {"gracePeriodSeconds": 0})
    seen = []
    while token := page["metadata"].get("continue"):
        page = json.loads(lists.next(token, 2))
        assert page["metadata"]["resourceVersion"] == "7"
        seen += names(page)
    assert seen == ["p-2", "p-3", "p-4"]
    # What a watch from that version on is told of, a new list has.
    assert names(json.loads(lists.first(KIND))) == ["p-0", "p-1", "p-2", "p-4", "late"]


def test_a_token_goes_on_once() -> None:
    lists = ListPages(overlay(3))
    token = json.loads(lists.first(KIND, limit=2))["metadata"]["continue"]
    assert names(json.loads(lists.next(token, 2))) == ["p-2"]
    with pytest.raises(Refused) as refusal:
        lists.next(token, 2)
    assert refusal.value.code == 410


def test_a_list_without_a_limit_is_one_page_of_what_is_asked_for() -> None:
    lists = ListPages(overlay(600))
    page = json.loads(lists.first(KIND, "team"))
    assert len(page["items"]) == 600 and "continue" not in page["metadata"]
    assert names(json.loads(lists.first(KIND, "team", "p-4"))) == ["p-4"]
    assert names(json.loads(lists.first(KIND, "other"))) == []
