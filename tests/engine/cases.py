"""Random clusters for the oracle, with enough pressure that most contain a preemption."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NOW = 100_000
WINDOW = 60
SETTLING = 15
NAMES = ("amd.com/gpu", "amd.com/gpu-0")

amounts = st.one_of(
    st.builds(lambda count: {NAMES[0]: count}, st.integers(1, 8)),
    st.builds(lambda count: {NAMES[0]: count}, st.integers(1, 8)),
    st.builds(lambda count: {NAMES[0]: count}, st.integers(1, 8)),
    st.builds(lambda a, b: {NAMES[0]: a, NAMES[1]: b}, st.integers(1, 6), st.integers(1, 4)),
)
# One poll in twenty is missing, too old or in the future.
seen = st.sampled_from([*range(NOW - 17, NOW), None, NOW - WINDOW - 1, NOW + 5])


@st.composite
def clusters(draw: st.DrawFn, most_demands: int = 3) -> dict[str, Any]:
    """Return one case of the oracle."""
    nodes = [f"node-{index}" for index in range(draw(st.integers(1, 3)))]
    kinds = ["demand"] * draw(st.integers(1, most_demands))
    kinds += ["idle"] * draw(st.integers(2, 5))
    kinds += draw(st.lists(st.sampled_from(_OTHERS), max_size=3))
    workloads = [_workload(draw, kind, f"w{index}", nodes) for index, kind in enumerate(kinds)]
    claims = {}
    for row, kind in zip(workloads, kinds, strict=True):
        if kind == "idle" and draw(st.integers(0, 9)) == 0:
            claims[row["root"]] = draw(st.sampled_from([None, workloads[0]["key"]]))
    return {
        "now": NOW,
        "window": WINDOW,
        "settling": SETTLING,
        "nodes": {
            node: {"cpu": draw(st.integers(0, 6))}
            | {name: draw(st.integers(-1, 3)) for name in NAMES}
            for node in nodes
        },
        "claims": claims,
        "workloads": draw(st.permutations(workloads)),
    }


_OTHERS = ("always", "active", "preempting", "preempted", "young", "deleted")


def _workload(draw: st.DrawFn, kind: str, name: str, nodes: list[str]) -> dict[str, Any]:
    gpus = draw(amounts)
    phase = {
        "demand": "PendingGpu",
        "active": "Active",
        "preempting": "Preempting",
        "preempted": "Preempted",
        "deleted": "Deleted",
    }.get(kind, "Idle")
    idle_since = NOW - draw(st.integers(10, 5_000)) if phase == "Idle" else None
    whom = draw(st.sampled_from(["", "w0", "other"])) if "preempt" in kind else ""
    return {
        "key": f"{draw(st.sampled_from(['team-a', 'team-b']))}/{name}",
        "root": f"root-{name}",
        "phase": phase,
        "created": NOW - draw(st.integers(0, 500)),
        "idle_since": idle_since,
        "grace": 6_000 if kind == "young" else draw(st.sampled_from([0, 5, 10])),
        "policy": "Always" if kind == "always" else "OnPressure",
        "gpus": gpus,
        "preempted_for": whom,
        "preempted_at": NOW - draw(st.integers(0, 30)) if kind == "preempted" else None,
        "pods": _pods(draw, kind, name, gpus, nodes),
    }


def _pods(
    draw: st.DrawFn, kind: str, name: str, gpus: dict[str, int], nodes: list[str]
) -> list[dict[str, Any]]:
    if kind in ("preempted", "deleted") and draw(st.booleans()):
        return []
    parts = [gpus]
    if all(count > 1 for count in gpus.values()) and draw(st.booleans()):
        first = {each: draw(st.integers(1, count - 1)) for each, count in gpus.items()}
        parts = [first, {each: gpus[each] - first[each] for each in gpus}]
    waiting = kind == "demand"
    return [
        {
            "name": f"{name}-{index}",
            "phase": "Pending" if waiting else "Running",
            "node": None if waiting else draw(st.sampled_from(nodes)),
            "gpus": part,
            "nodes": (
                draw(st.one_of(st.none(), st.lists(st.sampled_from(nodes), min_size=1)))
                if waiting
                else None
            ),
            "seen": [] if waiting else [draw(seen)],
            "asks": {"cpu": draw(st.sampled_from((0, 1, 2, 8)))},
        }
        for index, part in enumerate(parts)
    ]
