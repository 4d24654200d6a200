"""Random lives of objects, and the events that tell of them in many possible orders.

A life is what happens under one name: rows with rising versions, deletions, a successor with
another uid. Lives are interleaved at random; rows come again, and old ones come late.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from reprieve.engine.cluster.rows import Change, Entry, Gone, GroupRow, Kind, NodeRow, PodRow
from reprieve.units.ids import Uid
from tests.engine.builders import (
    GIB,
    budget,
    composite,
    group,
    labels_of,
    namespace,
    node,
    pod,
    pod_class,
    priority_class,
)

NODES = ("n1", "n2", "n3", "n4")
GROUPS = ("", "", "g1", "g2", "g3")
CLASSES = (
    pod_class(cpu=500, memory=GIB),
    pod_class(cpu=1500, gpus=2),
    pod_class(extended={"example.com/fpga": 1}),
    pod_class(),
    pod_class(memory=2**61, scored_memory=2**62),  # saturates
)


@dataclass
class Lives:
    """Per name, its events in order, and the row that is left at the end.

    `entries`: of kinds that are kept whole, what is left at the end.
    """

    seed: int
    events: list[list[Change]] = field(default_factory=list)
    final: dict[Kind, dict[tuple[str, str], object]] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


def lives(seed: int) -> Lives:
    """Return the lives of a few nodes, groups, pods and others."""
    chance = random.Random(seed)
    made = Lives(seed, final={kind: {} for kind in Kind})
    for name in NODES:
        _node(chance, made, name)
    for name in ("g1", "g2", "g3"):
        _group(chance, made, name)
    for name in ("g1", "c2"):
        _composite(chance, made, name)
    for number in range(chance.randint(4, 12)):
        _pod(chance, made, f"p{number}")
    limit = budget("b", {"a": "1"}, allowed=1)
    made.events += [[limit]]
    made.final[Kind.BUDGET]["default", "b"] = limit
    for build in (_space, _class):
        _entry(chance, made, build)
    return made


def told(made: Lives, order: int) -> list[Change]:
    """Return all events, each life's in order, with duplicates and late old rows between them."""
    chance = random.Random(order)
    waiting = [list(life) for life in made.events]
    past: list[list[Change]] = [[] for _ in waiting]
    events: list[Change] = []
    while any(waiting):
        index = chance.choice([i for i, life in enumerate(waiting) if life])
        change = waiting[index].pop(0)
        events.append(change)
        past[index].append(change)
        if chance.random() < 0.25 and not isinstance(change, Gone):
            late = chance.choice(past[index])
            made.seen["late or again"] += 1
            made.seen["deleted again"] += isinstance(late, Gone)
            made.seen["of a predecessor"] += late.uid != change.uid
            events.append(late)
    return events


def _node(chance: random.Random, made: Lives, name: str) -> None:
    life: list[Change] = []
    row: NodeRow | None = None
    for _ in range(chance.randint(1, 6)):
        if row is None:
            row = node(name, cpu=chance.choice([0, 4000, 2**63]), gpus=chance.choice([0, 8]))
            row = replace(row, uid=Uid(f"{name}-{len(life)}"))
            made.seen["node returned"] += len(life) > 0
        elif chance.random() < 0.3:
            life.append(Gone(Kind.NODE, row.uid, "", name))
            made.seen["node removed"] += 1
            row = None
            continue
        else:
            row = replace(node(name, cpu=8000, labels={"zone": "z"}), uid=row.uid)
        life.append(row)
    made.events.append(life)
    if row is not None:
        made.final[Kind.NODE]["", name] = row


def _group(chance: random.Random, made: Lives, name: str) -> None:
    if chance.random() < 0.2:
        return
    life: list[Change] = []
    row: GroupRow | None = None
    for _ in range(chance.randint(1, 4)):
        if row is not None and chance.random() < 0.3:
            life.append(Gone(Kind.GROUP, row.uid, "default", name))
            row = None
        else:
            row = group(
                name,
                priority=chance.randint(0, 9),
                uid=Uid(f"{name}-{len(life)}"),
                parent=chance.choice(("", "g1", "c2", "nobody")),
                floor=chance.randint(-1, 2),
                min_runtime=chance.choice((None, -1, 60)),
            )
            life.append(row)
    made.events.append(life)
    if row is not None:
        made.final[Kind.GROUP]["default", name] = row


def _composite(chance: random.Random, made: Lives, name: str) -> None:
    """A composite group, which may have the name of a pod group."""
    row = composite(name, priority=3, parent=chance.choice(("", "c2")))
    life: list[Change] = [row]
    if chance.random() < 0.4:
        life.append(Gone(Kind.COMPOSITE, row.uid, "default", name))
        made.seen["composite removed"] += 1
    else:
        made.final[Kind.COMPOSITE]["default", name] = row
    made.events.append(life)


def _space(chance: random.Random) -> Entry:
    labels = {"team": chance.choice("xy")}
    return namespace("default", labels, min_runtime=chance.choice((None, -1, 0, 60)))


def _class(chance: random.Random) -> Entry:
    value = chance.randint(0, 2)
    return priority_class("steady", value, min_runtime=chance.choice((None, -1, 0, 60)))


def _entry(chance: random.Random, made: Lives, build: Callable[[random.Random], Entry]) -> None:
    life: list[Change] = []
    row: Entry | None = None
    for _ in range(chance.randint(1, 4)):
        if row is not None and chance.random() < 0.2:
            life.append(Gone(row.kind, row.uid, "", row.name))
            row = None
            continue
        before, row = row, build(chance)
        row = replace(row, uid=Uid(f"{row.name}-{len(life)}") if before is None else before.uid)
        made.seen["runtime changed"] += before is not None and before.row != row.row
        life.append(row)
    made.events.append(life)
    if row is not None:
        made.entries.append(row)
        made.final[row.kind]["", row.name] = row.row


def _pod(chance: random.Random, made: Lives, name: str) -> None:
    life: list[Change] = []
    left: PodRow | None = None
    for uid in [Uid(f"{name}-a"), Uid(f"{name}-b")][: chance.choice([1, 1, 2])]:
        row = pod(
            name,
            uid=uid,
            pod_class=chance.choice(CLASSES),
            labels={"a": chance.choice("12")},
            group=chance.choice(GROUPS),
            priority=chance.randint(0, 3),
        )
        made.seen["uid replaced"] += left is not None
        life.append(row)
        for _ in range(chance.randint(0, 6)):
            row = _step(chance, made, row)
            life.append(row)
        left = row
        if chance.random() < 0.3:
            life.append(Gone(Kind.POD, uid, "default", name))
            left = None
    made.events.append(life)
    if left is not None:
        made.final[Kind.POD]["default", name] = left


def _step(chance: random.Random, made: Lives, row: PodRow) -> PodRow:
    version = pod().version
    what = chance.choice(
        ["nominate", "bind", "resize", "label", "delete", "finish", "start", "annotate"]
    )
    made.seen[what] += 1
    match what:
        case "nominate":
            return replace(row, version=version, nominated=chance.choice(("", *NODES)))
        case "bind":
            return replace(row, version=version, node=row.node or chance.choice((*NODES, "n9")))
        case "resize":
            return replace(row, version=version, pod_class=chance.choice(CLASSES))
        case "label":
            return replace(row, version=version, labels=labels_of({"a": chance.choice("123")}))
        case "delete":
            preempted = chance.random() < 0.5
            return replace(row, version=version, deleting=True, preempted=preempted)
        case "finish":
            return replace(row, version=version, finished=chance.random() < 0.5 or row.finished)
        case "annotate":
            return replace(
                row,
                version=version,
                checkpoint=chance.randint(0, 2),
                protection=chance.choice(("", "steady")),
                disruption=chance.choice(("", "with-group", "alone")),
                min_runtime=chance.choice((None, -1, 0, 60)),
            )
    return replace(row, version=version, start=chance.randint(0, 99))
