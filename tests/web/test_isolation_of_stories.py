"""No page about preemptions names anything of a namespace that its viewer does not see."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from random import Random

import msgspec

from reprieve.api.disruption import Disruption
from reprieve.api.reprieve import ObjectRef, Preemption
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages.table import PAGES
from reprieve.web.tables import NotFound, Page, Parameters, Viewer
from tests.web.stories import (
    NOW,
    disruption,
    idle_record,
    mirror_of,
    quota_record,
    scheduling_record,
)

_WORDS = ("alpha", "bravo", "delta", "gamma", "kappa", "omega", "sigma", "theta")


def test_no_identifier_of_a_foreign_namespace_stands_on_any_page() -> None:
    random, told, masked = Random(11), 0, 0
    for _ in range(12):
        records, spaces = renamed(random)
        stories = list(disruptions_of(records))
        mirror = mirror_of(records, stories, key=random.choice((b"", b"key")))
        for _ in range(12):
            chosen = frozenset(random.sample(sorted(spaces), random.randint(0, 2)))
            viewer = Viewer(False, chosen)
            foreign = identifiers(records, stories, viewer) - identifiers_seen(records, viewer)
            for name, parameters in asked(records):
                page = made(mirror, viewer, name, parameters)
                if page is None:
                    continue
                text = text_of(page)
                for each in foreign:
                    assert each not in text, (name, parameters, sorted(chosen), each)
                told += any(space in text for space in chosen)
                masked += "another tenant's work" in text
    assert told > 100 and masked > 100


def renamed(random: Random) -> tuple[list[Preemption], set[str]]:
    """The three records with names, uids and namespaces that occur nowhere else."""
    found, spaces = [], set[str]()
    for number, record in enumerate((quota_record(), idle_record(), scheduling_record())):
        spec = msgspec.structs.replace(record.spec, input=None)
        refs = {ref.uid: ref for ref in refs_of(record)}
        known: dict[str, ObjectRef] = {}
        for uid, ref in refs.items():
            space = f"space-{random.choice(_WORDS)}"
            spaces.add(space)
            token = f"{random.getrandbits(40):x}"
            known[uid] = msgspec.structs.replace(
                ref, name=f"n{token}", uid=f"uid-{token}", namespace=space
            )
        lines = {each.lineage: f"owner/line-{random.getrandbits(40):x}" for each in spec.victims}
        victims = [
            msgspec.structs.replace(
                each,
                subject=known[each.subject.uid],
                root=known[each.root.uid],
                lineage=lines[each.lineage],
                reason=f"for {known[each.root.uid].name}",
                unit="",
            )
            for each in spec.victims
        ]
        assert spec.preemptor is not None
        preemptor = known[spec.preemptor.uid]
        places = [
            msgspec.structs.replace(each, node=f"node-{random.getrandbits(40):x}")
            for each in spec.placement
        ]
        spec = msgspec.structs.replace(
            spec,
            victims=victims,
            preemptor=preemptor,
            placement=places,
            plan_id=f"plan{number}{random.random()}",
        )
        status = msgspec.structs.replace(record.status, reason=f"{preemptor.name} has its place")
        name = f"{spec.plane}-{preemptor.uid}-1"
        metadata = msgspec.structs.replace(record.metadata, name=name, uid=f"own-{number}")
        found.append(Preemption(metadata, spec, status))
    return found, spaces


def disruptions_of(records: Iterable[Preemption]) -> Iterator[Disruption]:
    for record in records:
        for each in record.spec.victims[:1]:
            yield disruption(each.root.namespace, each.root.name, record.spec.plan_id, each.lineage)


def refs_of(record: Preemption) -> Iterator[ObjectRef]:
    if record.spec.preemptor is not None:
        yield record.spec.preemptor
    for each in record.spec.victims:
        yield from (each.subject, each.root)


def identifiers(
    records: Iterable[Preemption], stories: Iterable[Disruption], viewer: Viewer
) -> set[str]:
    """All that names work of namespaces that the viewer does not see, and where it ran."""
    found = set()
    for record in records:
        for ref in refs_of(record):
            if not viewer.sees(ref.namespace):
                found |= {ref.name, ref.uid, ref.namespace}
        for each in record.spec.victims:
            if not viewer.sees(each.root.namespace):
                found |= {each.lineage, each.lineage.removeprefix("owner/")}
        preemptor = record.spec.preemptor
        if preemptor is not None and not viewer.sees(preemptor.namespace):
            found |= {each.node for each in record.spec.placement} | {record.metadata.name}
            found |= {record.status.owner}
    return found


def identifiers_seen(records: Iterable[Preemption], viewer: Viewer) -> set[str]:
    return {
        text
        for record in records
        for ref in refs_of(record)
        if viewer.sees(ref.namespace)
        for text in (ref.name, ref.uid, ref.namespace)
    }


def asked(records: Iterable[Preemption]) -> Iterator[tuple[str, Parameters]]:
    yield "preemptions", {}
    yield "health", {}
    for record in records:
        for name in (record.metadata.name, record.spec.plan_id):
            yield "preemption", {"name": (name,)}
        for ref in refs_of(record):
            unit = {"kind": (ref.kind,), "namespace": (ref.namespace,), "name": (ref.name,)}
            yield "workload", unit


def made(mirror: Mirror, viewer: Viewer, name: str, parameters: Parameters) -> Page | None:
    try:
        return PAGES[name](mirror, viewer, parameters, NOW)
    except NotFound:
        return None


def text_of(page: Page) -> str:
    return json.dumps(
        {
            "values": page.values,
            "tables": {
                name: [list(map(str, (key, *row))) for key, row in table.rows.items()]
                for name, table in page.tables.items()
            },
        }
    )
