"""The index of images follows nodes: it equals one made anew; unchanged names keep their part."""

from __future__ import annotations

from collections import Counter
from random import Random

from reprieve.engine.cluster.images import ImageIndex, index_images, tagged
from reprieve.engine.cluster.rows import Gone, Image, Kind, NodeRow
from reprieve.units.ids import Uid
from tests.engine.builders import cluster_of, later, node

NAMES = ("a:1", "b:1", "lib/c", "d@sha256:0")


def contents(index: ImageIndex) -> dict[str, dict[int, int]]:
    return {
        name: dict(zip(each.nodes.tolist(), each.sizes.tolist(), strict=True))
        for name, each in index.having.items()
    }


def random_images(random: Random) -> tuple[Image, ...]:
    names = random.sample(NAMES, random.randint(0, 3))
    return tuple(Image((name,), random.randint(1, 3)) for name in names)


def test_an_index_that_follows_nodes_equals_one_made_anew() -> None:
    random = Random(1)
    situations: Counter[str] = Counter()
    for _ in range(60):
        rows: dict[str, NodeRow] = {f"n{i}": node(f"n{i}") for i in range(random.randint(1, 5))}
        cluster = cluster_of(*rows.values())
        for _ in range(8):
            before = cluster.snapshot().node_facts.images
            name = f"n{random.randint(0, 5)}"
            if name not in rows:
                rows[name] = node(name, images=random_images(random))
                cluster.apply([rows[name]])
                situations["node added"] += 1
            elif random.random() < 0.2 and len(rows) > 1:
                del rows[name]
                cluster.apply([Gone(Kind.NODE, Uid(f"node-{name}"), "", name)])
                situations["node deleted"] += 1
            elif random.random() < 0.3:
                rows[name] = later(rows[name], unschedulable=not rows[name].unschedulable)
                cluster.apply([rows[name]])
                situations["something else changed"] += 1
            else:
                rows[name] = later(rows[name], images=random_images(random))
                cluster.apply([rows[name]])
                situations["images changed"] += 1
            after = cluster.snapshot().node_facts.images
            assert contents(after) == contents(index_images(cluster.snapshot().nodes))
            if len(after.rows) == len(before.rows):
                for image, each in after.having.items():
                    known = contents(before).get(image)
                    if known == contents(after)[image] and known is not None:
                        situations["kept"] += each is before.having[image]
    assert all(
        situations[each] >= 20
        for each in ("node added", "node deleted", "something else changed", "images changed")
    )
    assert situations["kept"] >= 100


def test_a_name_without_a_tag_is_latest() -> None:
    assert [tagged(name) for name in (*NAMES, "reg:5000/a", "reg:5000/a:2")] == [
        "a:1",
        "b:1",
        "lib/c:latest",
        "d@sha256:0",
        "reg:5000/a:latest",
        "reg:5000/a:2",
    ]
