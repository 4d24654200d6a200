"""Random small clusters on which three planes decide about one demand, and what became of it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from reprieve.api.reprieve import Preemption, VictimState
from reprieve.kube.resource import PREEMPTIONS
from tests.oracle.one_demand import Cluster, Demand, Unit
from tests.together.site import GPU, deployment, gang, job, node, site

__all__ = ["Case", "Found", "drawn", "played"]

_HOST: Final = "kubernetes.io/hostname"
_PRIORITIES: Final = {0: "", 100: "low", 1000: "high"}
_TEAMS: Final = ("a", "b")
_MIXES: Final = (
    ("queued", "queued", "job", "deployment", "all", "single"),
    ("all", "all", "job", "single"),
    ("queued", "queued", "queued", "job"),
)
_UNIT: Final = re.compile(r"\b(u\d+|wanted)\b")


@dataclass(frozen=True)
class Case:
    """A cluster, the kinds of its units by name, and a demand of a kind."""

    cluster: Cluster
    kinds: dict[str, str]
    demand: Demand
    kind: str


@dataclass(frozen=True)
class Found:
    """GPUs evicted by unit: `evicted` as the API server stored it, `by_record` for whom.

    `by_record`: preemptor's unit -> victim's unit -> GPUs. `placed`: pods of the demand with nodes.
    """

    evicted: dict[str, int]
    by_record: dict[str, dict[str, int]]
    placed: int


def drawn(random: Random) -> Case:
    """Return a cluster that is nearly full, with its units pinned to their nodes."""
    nodes = {f"n{n}": random.choice((4, 8)) for n in range(random.randint(1, 3))}
    even = sum(nodes.values()) // random.choice((2, 2, 3))
    quotas = {"a": even + random.choice((-2, 0, 2)), "b": even}
    mix = random.choice(_MIXES)
    units: list[Unit] = []
    kinds: dict[str, str] = {}
    for name, gpus in nodes.items():
        left = gpus - random.choice((0, 0, 1, 2))
        while left > 0 and len(units) < 6:
            size = random.choice([each for each in (1, 2, 4) if each <= left])
            kind = random.choice(mix)
            pods = random.choice((1, 2) if kind != "all" else (2,)) if 2 * size <= left else 1
            held = sum(each.devices for each in units if each.queued)
            if kind == "queued" and held + pods * size > sum(quotas.values()):
                kind = "job"
            unit = Unit(
                f"u{len(units)}",
                random.choice(_TEAMS),
                name,
                pods,
                size,
                random.choice((0, 100, 1000)),
                queued=kind == "queued",
                idle=random.random() < 0.6,
                whole=kind == "all",
                apart=kind == "single",
            )
            units.append(unit)
            kinds[unit.name] = kind
            left -= unit.devices
    kind = random.choice(("queued", "queued", "queued", "job", "all", "deployment"))
    demand = Demand(
        random.choice(_TEAMS),
        random.choice((1, 1, 2)),
        random.choice((1, 2, 4, 4, 8)),
        random.choice((0, 100, 1000)),
        queued=kind == "queued",
        opted=random.random() < 0.75,
    )
    return Case(Cluster(nodes, quotas, tuple(units)), kinds, demand, kind)


async def played(case: Case, folder: Path) -> Found:
    """Play a case with an operator of three planes, until all is at rest."""
    cluster, demand = case.cluster, case.demand
    nodes = [node(name, gpus) for name, gpus in cluster.nodes.items()]
    async with site(folder, nodes, cluster.quotas) as place:
        units = {}
        for unit in cluster.units:
            # Who is busy has opted in as well: it stays for its use.
            made = _made(unit.name, case.kinds[unit.name], unit, opted=True)
            for each in made:
                _pin(each, unit.node)
            units[unit.name] = made
            await place.runs(made)
            assert place.placed(unit.name) == unit.pods
        await place.idle(*(units[each.name] for each in cluster.units if each.idle))
        assert not place.evicted
        await place.demand(_made("wanted", case.kind, demand, opted=demand.opted))
        records = (await place.client.list(PREEMPTIONS, Preemption)).items
        return Found(dict(place.evicted), _by_record(records), place.placed("wanted"))


def _made(name: str, kind: str, unit: Unit | Demand, *, opted: bool) -> list[dict[str, Any]]:
    given: dict[str, Any] = {
        "pods": unit.pods,
        "gpus": unit.gpus,
        "priority": _PRIORITIES[unit.priority],
        "opted": opted,
    }
    if kind in ("all", "single"):
        return gang(name, unit.team, mode=kind, **given)
    if kind == "deployment":
        return deployment(name, unit.team, **given)
    return job(name, unit.team, queued=kind == "queued", **given)


def _pin(made: dict[str, Any], host: str) -> None:
    if made["kind"] == "Pod":
        made["spec"]["nodeSelector"] = {_HOST: host}
    elif made["kind"] != "PodGroup":
        made["spec"]["template"]["spec"]["nodeSelector"] = {_HOST: host}


def _by_record(records: list[Preemption]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for record in records:
        spec = record.spec
        assert spec.preemptor is not None and not record.status.phase.open
        whom = _unit(spec.preemptor.name)
        over = {each.uid for each in record.status.victims if each.state is VictimState.EVICTED}
        for victim in spec.victims:
            if victim.root.uid in over:
                gone = found.setdefault(whom, Counter())
                gone[_unit(victim.root.name)] += victim.amounts.get(GPU, 0)
    return {whom: dict(gone) for whom, gone in found.items()}


def _unit(name: str) -> str:
    match = _UNIT.search(name)
    assert match is not None, name
    return match.group(1)
