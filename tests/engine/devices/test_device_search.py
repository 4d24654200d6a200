"""The search against brute force: every choice in order, the first that keeps all rules."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

from reprieve.engine.cluster.devices import Request
from tests.engine.builders import node, pod, snapshot_of
from tests.engine.devices.drivers import (
    DRIVER,
    alternative,
    asks,
    claims,
    device,
    device_class,
    distinct,
    first_of,
    published,
    resource_claim,
    same,
    taken,
)
from tests.engine.volumes.storage import refusals, simulation_of

CASES = 1_200
KINDS = 3

Choice = list[tuple[int, str, str]]  # claim, request, device


def _brute(
    wanted: list[dict[str, Any]], devices: dict[str, dict[str, int]], room: int, busy: set[str]
) -> Choice | None:
    """Return the first choice in order that keeps all rules; nothing is cut off early."""

    def later(claim: int, request: int, chosen: Choice) -> Choice | None:
        if claim == len(wanted):
            return chosen if _valid(wanted, devices, room, busy, chosen) else None
        requests = wanted[claim]["requests"]
        if request == len(requests):
            return later(claim + 1, 0, chosen)
        name, forms = requests[request]
        for form, kind, count in forms:
            fitting = [d for d, facts in devices.items() if kind in (None, facts["kind"])]
            for group in combinations(fitting, count):
                full = f"{name}/{form}" if form else name
                more = [*chosen, *((claim, full, d) for d in group)]
                found = later(claim, request + 1, more)
                if found is not None:
                    return found
        return None

    return later(0, 0, [])


def _valid(
    wanted: list[dict[str, Any]],
    devices: dict[str, dict[str, int]],
    room: int,
    busy: set[str],
    chosen: Choice,
) -> bool:
    names = [d for _, _, d in chosen]
    if len(set(names)) < len(names) or busy & set(names):
        return False
    if sum(devices[d]["size"] for d in {*names, *busy}) > room:
        return False
    for number, claim in enumerate(wanted):
        for attribute, apart, requests in claim["constraints"]:
            values = [
                devices[d][attribute]
                for c, r, d in chosen
                if c == number and (not requests or r in requests or r.split("/")[0] in requests)
            ]
            if len(set(values)) != (len(values) if apart else min(1, len(values))):
                return False
    return True


def _request(name: str, forms: list[tuple[str, int | None, int]]) -> Request:
    def selectors(kind: int | None) -> tuple[str, ...]:
        return () if kind is None else (f"device.attributes['{DRIVER}'].kind == {kind}",)

    if forms[0][0]:
        return first_of(name, *(alternative(f, count, *selectors(k)) for f, k, count in forms))
    return asks(name, forms[0][2], *selectors(forms[0][1]))


def test_the_search_finds_the_first_of_all_solutions_or_none() -> None:
    numbers = random.Random(7)
    found = {"solved": 0, "refused": 0, "went back": 0}
    for _ in range(CASES):
        devices = {
            f"d{n}": {
                "kind": numbers.randrange(KINDS),
                "numa": numbers.randrange(2),
                "size": numbers.choice((0, 0, 1, 2)),
            }
            for n in range(numbers.randint(2, 5))
        }
        busy = {d for d in devices if numbers.random() < 0.15}
        room = numbers.randint(1, 5) + sum(devices[d]["size"] for d in busy)
        wanted = [_wanted(numbers) for _ in range(numbers.randint(1, 2))]
        expected = _brute(wanted, devices, room, busy)
        rows = [
            resource_claim(
                f"c{number}",
                *(_request(name, forms) for name, forms in claim["requests"]),
                constraints=[
                    (distinct if apart else same)(attribute, *requests)
                    for attribute, apart, requests in claim["constraints"]
                ],
            )
            for number, claim in enumerate(wanted)
        ]
        published_devices = [
            device(
                name,
                kind=facts["kind"],
                numa=facts["numa"],
                consumes=(("set", (("size", facts["size"]),)),) if facts["size"] else (),
            )
            for name, facts in devices.items()
        ]
        simulation = simulation_of(
            snapshot_of(
                node("n1"),
                device_class(),
                published("n1", published_devices, counters=(("set", (("size", room),)),)),
                [resource_claim(f"busy-{d}", asks(), got=[("n1", d)]) for d in sorted(busy)],
                rows,
                pod(claims=claims(*(f"c{n}" for n in range(len(wanted))))),
            )
        )
        passes = refusals(simulation) == [""]
        assert passes == (expected is not None), (wanted, devices, room, busy)
        if expected is None:
            found["refused"] += 1
            continue
        got = taken(simulation)
        assert [
            (number, *entry.replace("n1/", "").split("="))
            for number in range(len(wanted))
            for entry in got[f"c{number}"]
        ] == expected, (wanted, devices, room, busy)
        found["solved"] += 1
        first = next(iter(devices))
        found["went back"] += all(name != first for _, _, name in expected) and first not in busy
    assert found["solved"] > 300 and found["refused"] > 300 and found["went back"] > 50, found


def _wanted(numbers: random.Random) -> dict[str, Any]:
    requests = []
    for number in range(numbers.randint(1, 2)):
        several = numbers.random() < 0.3
        forms = [
            (
                f"s{form}" if several else "",
                numbers.choice((None, *range(KINDS))),
                numbers.randint(1, 2),
            )
            for form in range(2 if several else 1)
        ]
        requests.append((f"r{number}", forms))
    constraints = []
    if numbers.random() < 0.5:
        names = numbers.choice(((), ("r0",), ("r0/s1",), ("r0", "r1")))
        constraints.append((numbers.choice(("numa", "kind")), numbers.random() < 0.5, names))
    return {"requests": requests, "constraints": constraints}
