"""However the changes come, pages are those of the cluster as it is, and nobody's but one's own.

What a mirror adds up as things change is compared with one that saw only the end; what a viewer is
told is searched for every name of a namespace that is not the viewer's.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages.table import PAGES
from reprieve.web.tables import NotFound, Page, Viewer
from tests.web.cluster import (
    START,
    Json,
    cluster_queue,
    idle,
    local_queue,
    mirror,
    node,
    pod,
    put,
    take,
    waiting_event,
    workload,
)

LISTS = ("now", "waiting", "queues")
TENANTS = ("rouge", "green", "blue", "grey")
EVERYTHING = Viewer(sees_all=True)


def random_pod(random: Random) -> Json:
    tenant = random.choice(TENANTS)
    job = f"{tenant}job{random.randrange(3)}"
    where = random.choice(("", "", f"{tenant}node", "common", "common2"))
    return pod(
        f"{job}-{random.randrange(3)}",
        tenant,
        random.choice((1, 2, 4)),
        on=where,
        kept="" if where else random.choice(("", "common")),
        job=random.choice(("", job)),
        leaving=random.random() < 0.2,
        gated=not where and random.random() < 0.2,
        phase="Succeeded" if random.random() < 0.1 else "",
        created=random.randrange(1000),
        why=f"{tenant}why",
    )


def random_object(random: Random) -> Json:
    """Return an object that says in each of its names whose it is."""
    tenant = random.choice(TENANTS)
    job = f"{tenant}job{random.randrange(3)}"
    match random.randrange(10):
        case 0:
            phase = random.choice(("Idle", "Active"))
            return idle(job, [f"{job}-{n}" for n in range(2)], tenant, phase)
        case 1:
            reason = random.choice(("Full", "HeldByOthers"))
            return waiting_event("Job", job, reason, f"{tenant}note", tenant)
        case 2 | 3:
            queue = random.choice(("", f"{tenant}queue"))
            return workload(
                job, tenant, 2, 2, admitted_to=queue, priority=random.randrange(3), why="no"
            )
        case 4:
            return node(
                random.choice(("common", "common2", f"{tenant}node")), random.choice((4, 8))
            )
        case _:
            return random_pod(random)


def fixed() -> list[Json]:
    return [
        *(local_queue(tenant, f"{tenant}queue") for tenant in TENANTS),
        *(cluster_queue(f"{tenant}queue", 2, cohort="cohort") for tenant in TENANTS),
    ]


def identity(obj: Json) -> tuple[str, str, str]:
    return (obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"])


def shown(cluster: Mirror, viewer: Viewer) -> dict[str, Page]:
    return {name: PAGES[name](cluster, viewer, {}, START) for name in LISTS}


def content(page: Page) -> Any:
    """Return what a page says, whatever the order of rows that are alike."""
    tables = {name: sorted(map(repr, table.rows.items())) for name, table in page.tables.items()}
    return (dict(page.values), tables)


@pytest.mark.parametrize("seed", range(40))
def test_a_mirror_that_saw_every_change_tells_what_one_tells_that_saw_the_end(seed: int) -> None:
    random = Random(seed)
    changing = mirror(*fixed())
    there: dict[tuple[str, str, str], Json] = {}
    happened: Counter[str] = Counter()
    for _ in range(120):
        obj = random_object(random)
        if obj["kind"] in ("Pod", "Node") and identity(obj) in there and random.random() < 0.4:
            take(changing, there.pop(identity(obj)))
            # What is deleted does not come back under the uid that it had.
            happened["deleted"] += 1
            continue
        held = there.get(identity(obj))
        if held is None:
            obj["metadata"]["uid"] = f"{obj['metadata']['uid']}-{random.randrange(10**9)}"
        else:
            obj["metadata"]["uid"] = held["metadata"]["uid"]
            happened["changed"] += 1
        there[identity(obj)] = obj
        put(changing, obj)
        if random.random() < 0.2:
            shown(changing, EVERYTHING)

    fresh = mirror(*fixed(), *there.values())

    assert {name: content(page) for name, page in shown(changing, EVERYTHING).items()} == {
        name: content(page) for name, page in shown(fresh, EVERYTHING).items()
    }
    assert happened["deleted"] >= 5
    assert happened["changed"] >= 10


@pytest.mark.parametrize("seed", range(40))
def test_no_page_names_anything_of_a_namespace_that_the_viewer_does_not_see(seed: int) -> None:
    random = Random(seed)
    cluster = mirror(*fixed(), *(random_object(random) for _ in range(150)))
    seen = frozenset(random.sample(TENANTS, random.randrange(len(TENANTS))))
    viewer = Viewer(sees_all=False, namespaces=seen)

    told = {
        name: msgspec.json.encode(
            {
                "values": page.values,
                "tables": {key: list(table.rows.items()) for key, table in page.tables.items()},
            }
        ).decode()
        for name, page in shown(cluster, viewer).items()
    }

    for name, text in told.items():
        for tenant in TENANTS:
            if tenant not in seen:
                assert tenant not in text, (name, tenant)
        assert "cohort" not in text.replace('"cohort":', ""), name
    assert not shown(cluster, viewer)["now"].tables["nodes"].rows
    for tenant in seen:
        # The control: what is the viewer's own stands there.
        assert tenant in told["now"] + told["waiting"], tenant


def test_a_queue_of_others_is_as_unknown_as_one_that_is_not_there() -> None:
    cluster = mirror(*fixed())
    viewer = Viewer(sees_all=False, namespaces=frozenset({"rouge"}))

    answers = set()
    for name in ("greenqueue", "nobody", "cohort"):
        with pytest.raises(NotFound) as refused:
            PAGES["queues"](cluster, viewer, {"name": (name,)}, START)
        answers.add(str(refused.value).replace(name, ""))

    assert len(answers) == 1
