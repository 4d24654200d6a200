"""Tables of a snapshot are made of the former one and what changed, and nobody can tell."""

from __future__ import annotations

import random
from typing import Any

from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import Gone, Kind
from tests.engine.devices.drivers import resource_claim

NAMES = tuple(f"claim-{number:02}" for number in range(40))


def test_tables_follow_what_comes_changes_and_goes_in_the_same_order() -> None:
    chance = random.Random(7)
    for _ in range(30):
        cluster, there = Cluster(), dict[str, Any]()
        for _ in range(40):
            for name in chance.sample(NAMES, chance.choice([1, 2, 3, 30])):
                row = there.get(name)
                if row is not None and chance.random() < 0.4:
                    cluster.apply([Gone(row.kind, row.uid, row.namespace, row.name)])
                    del there[name]
                else:
                    new = resource_claim(name)
                    there[name] = new
                    cluster.apply([new])
            before = cluster.snapshot().tables[Kind.RESOURCE_CLAIM]
            known = list(before.items())

            expected = [(("default", name), row.row) for name, row in there.items()]
            assert list(before.items()) == expected
            if there and chance.random() < 0.5:
                name = chance.choice(list(there))
                there[name] = resource_claim(name)
                cluster.apply([there[name]])
                cluster.snapshot()
                assert list(before.items()) == known
