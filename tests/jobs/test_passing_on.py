"""Which set has made a pod, as its controller and its labels say."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.jobs.passing_on import name_of_set
from reprieve.jobs.table import BUILT_IN

GROUP = "leaderworkerset.sigs.k8s.io/name"


def pod(version: str, kind: str, name: str, **labels: str) -> dict[str, Any]:
    owner = {"apiVersion": version, "kind": kind, "name": name, "controller": True}
    return {"metadata": {"labels": labels, "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("kind", "made", "name"),
    [
        ("StatefulSet", pod("apps/v1", "StatefulSet", "web"), "web"),
        ("StatefulSet", pod("example.com/v1", "StatefulSet", "web"), ""),
        ("StatefulSet", {"metadata": {}}, ""),
        (
            "Deployment",
            pod("apps/v1", "ReplicaSet", "web-5f6", **{"pod-template-hash": "5f6"}),
            "web",
        ),
        ("Deployment", pod("apps/v1", "ReplicaSet", "web-5f6"), ""),
        ("Deployment", pod("apps/v1", "ReplicaSet", "web", **{"pod-template-hash": "5f6"}), ""),
        ("LeaderWorkerSet", pod("apps/v1", "StatefulSet", "web-0", **{GROUP: "web"}), "web"),
        ("LeaderWorkerSet", {"metadata": {"labels": {GROUP: "web"}}}, ""),
    ],
)
def test_the_set_of_a_pod(kind: str, made: dict[str, Any], name: str) -> None:
    (row,) = (each for each in BUILT_IN if each.kind == kind)
    assert row.passes_on is not None
    assert name_of_set(row.group, row.kind, row.passes_on, made) == name
