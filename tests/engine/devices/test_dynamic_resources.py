"""The numbered rules of 21.9, each on a hand-made cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprieve.engine.cluster.devices import (
    CapacityPolicy,
    Consumer,
    DeviceCapacity,
    DeviceConfiguration,
    Reach,
)
from reprieve.engine.cluster.rows import (
    ExtendedRequest,
    NodeTerm,
    Operator,
    Requirement,
    Taint,
    Toleration,
)
from reprieve.engine.placement.filters.dynamic import device_allocation
from reprieve.engine.placement.reasons import Code, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.claims import deallocate_claims, deallocations
from reprieve.engine.scheduling.nodes.reservations import reservations_of
from reprieve.engine.scheduling.outcome import Deallocation, Sentence
from reprieve.units.ids import Uid
from tests.engine.builders import gang, group, node, pending_of, pod, slot_of, snapshot_of
from tests.engine.devices.drivers import (
    DRIVER,
    alternative,
    asks,
    claims,
    device,
    device_class,
    distinct,
    first_of,
    gpus,
    published,
    resource_claim,
    same,
    taken,
)
from tests.engine.volumes.storage import refusals, simulation_of

ALL = "DEVICES cannot allocate all claims"


def simulated(*rows: Any, **policy: Any) -> Simulation:
    return simulation_of(snapshot_of(*rows), **policy)


def here(*rows: Any, **policy: Any) -> list[str]:
    """What the node n1 says to the pod p with the claim c."""
    return refusals(simulated(node("n1"), pod(claims=claims("c")), device_class(), rows, **policy))


def got(*rows: Any) -> list[str]:
    """The devices that the claim c gets on n1."""
    simulation = simulated(node("n1"), pod(claims=claims("c")), device_class(), rows)
    assert refusals(simulation) == [""]
    return taken(simulation)["c"]


# 1. Allocated claims.


def test_an_allocated_claim_is_available_where_its_node_selector_says() -> None:
    has = resource_claim("c", asks(), got=[("n2", "gpu-0")], only="n2")
    rows = [node("n1"), node("n2"), pod(claims=claims("c")), has]
    assert refusals(simulated(rows)) == ["DEVICES_NOT_HERE", ""]


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ([f"u{n}" for n in range(255)], ""),
        ([f"u{n}" for n in range(256)], "DEVICES_IN_USE"),
        ([*(f"u{n}" for n in range(255)), "p"], ""),
    ],
)
def test_a_claim_has_room_for_256_users(users: list[str], expected: str) -> None:
    assert here(resource_claim("c", asks(), got=[("n1", "gpu-0")], users=users)) == [expected]


def test_a_claim_that_is_reserved_for_the_group_serves_its_members() -> None:
    full = [*(Consumer("pods", f"u{n}", Uid(f"u{n}")) for n in range(255))]
    full.append(Consumer("podgroups", "g", Uid("group-default-g")))
    owner = group("g", claims=claims("c"), min_count=1)
    row = resource_claim("c", asks(), got=[("n1", "gpu-0")])
    row = replace(row, row=replace(row.row, reserved_for=tuple(full)))
    rows: list[Any] = [node("n1"), owner, row, pod("q", claims=claims("c"))]
    rows.append(pod(claims=claims("c"), group="g"))
    simulation = simulated(rows)
    assert refusals(simulation, "p") == [""]
    assert refusals(simulation, "q") == ["DEVICES_IN_USE"]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], 'resourceclaim "c" not found'),
        ([resource_claim("c", asks(), deleting=True)], 'resourceclaim "c" is being deleted'),
        (
            [resource_claim("c", asks(), got=[("n1", "gpu-0")], in_flight=True)],
            "resource claim default/c is in the process of being allocated",
        ),
        (
            [resource_claim("c", asks("r", device_class="none"))],
            "request r: device class none does not exist",
        ),
        (
            [resource_claim("c", first_of("r", alternative("s", device_class="none")))],
            "request r/s: device class none does not exist",
        ),
        (
            [resource_claim("c", asks("r", unsupported="allocationMode Some"))],
            "claim default/c: request r: allocationMode Some is not supported",
        ),
        (
            [resource_claim("c", asks("r", 1, "true", "size(device.driver) > 0"))],
            "claim default/c: selector #1: 'size' is not supported",
        ),
        (
            [resource_claim("c", asks("r", device_class="odd")), device_class("odd", "1 + 1 == 2")],
            "class odd: selector #0: '+ 1 == 2' is not understood",
        ),
    ],
)
def test_what_is_wrong_with_a_claim_refuses_every_node(rows: list[Any], text: str) -> None:
    everything = [node("n1"), node("n2"), device_class(), published("n1", gpus(1))]
    simulation = simulated(*everything, *rows, pod(claims=claims("c")))
    refusal = simulation.refusal(pending_of(simulation.snapshot, "p"))
    assert refusal is not None and not refusal.error
    assert refusals(simulation) == [f"DEVICES {text}"] * 2


def test_a_claim_that_another_unit_is_allocating_is_waited_for_and_members_share_it() -> None:
    rows = [
        node("n1"),
        node("n2"),
        device_class(),
        published("n1", gpus(1)),
        published("n2", gpus(1)),
        resource_claim("c", asks()),
        pod("p", claims=claims("c")),
        gang(2, "g", claims=claims("c")),
    ]
    simulation = simulated(rows)
    first = pending_of(simulation.snapshot, "g-0")
    assert refusals(simulation, "g-1") == ["", ""]
    placed = simulation.place(first, 1)
    assert refusals(simulation, "g-1") == ["DEVICES_NOT_HERE", ""]
    waits = "DEVICES resource claim default/c is in the process of being allocated"
    assert refusals(simulation, "p") == [waits, waits]
    second = simulation.place(pending_of(simulation.snapshot, "g-1"), 1)
    made = [reservations_of(simulation, Uid(f"pod-g-{n}")).claims for n in range(2)]
    assert [[c.allocation is not None for c in each] for each in made] == [[True], [False]]
    assert [[c.consumer.name for c in each] for each in made] == [["g-0"], ["g-1"]]
    simulation.unplace(second)
    simulation.unplace(placed)
    assert refusals(simulation, "p") == ["", ""]


# 2. Slices, pools, nodes.


def test_only_the_highest_generation_of_a_pool_counts() -> None:
    old = published("n1", gpus(4), name="old", generation=1)
    new = published("n1", [device("new-0")], name="new", generation=2)
    assert got(old, new, resource_claim("c", asks())) == ["r=n1/new-0"]


def test_a_pool_that_lacks_a_slice_is_not_used_and_fails_all() -> None:
    partial = published("n1", gpus(2), pool="a", slices=2)
    whole = published("n1", [device("x")], pool="b")
    assert got(partial, whole, resource_claim("c", asks())) == ["r=b/x"]
    assert here(partial, whole, resource_claim("c", asks("r", 0))) == [ALL]
    assert got(whole, resource_claim("c", asks("r", 0))) == ["r=b/x"]


def test_a_pool_that_names_a_device_twice_is_not_used() -> None:
    twice = published("n1", [device("x"), device("x")])
    assert here(twice, resource_claim("c", asks())) == [ALL]


def test_devices_are_available_by_node_selector_everywhere_or_one_by_one() -> None:
    zone = NodeTerm((Requirement("zone", Operator.IN, ("a",)),))
    nodes = [node("n1", labels={"zone": "a"}), node("n2"), node("n3", labels={"zone": "a"})]
    rows = [*nodes, device_class(), pod(claims=claims("c")), resource_claim("c", asks())]
    assert refusals(simulated(rows, published("", gpus(1), reach=Reach(terms=(zone,))))) == [
        "",
        ALL,
        "",
    ]
    everywhere = simulated(rows, published("", gpus(1), reach=Reach(everywhere=True)))
    assert refusals(everywhere) == ["", "", ""]
    each = published(
        "",
        [
            device("d1", reach=Reach(node="n2")),
            device("d2", reach=Reach(terms=(zone,))),
            device("d3", reach=Reach(everywhere=True), taints=(Taint("k", "", "NoSchedule"),)),
        ],
        pool="mixed",
        reach=None,
    )
    simulation = simulated(rows, each)
    assert refusals(simulation) == ["", "", ""]
    assert [taken(simulation, node=n)["c"] for n in range(3)] == [
        ["r=mixed/d2"],
        ["r=mixed/d1"],
        ["r=mixed/d2"],
    ]


def test_an_allocation_is_bound_to_the_node_or_to_the_terms_of_its_devices() -> None:
    zone = NodeTerm((Requirement("zone", Operator.IN, ("a",)),))
    name = NodeTerm(fields=(Requirement("metadata.name", Operator.IN, ("n1",)),))
    for reach, facts, expected in (
        (Reach(node="n1"), {}, (name,)),
        (Reach(terms=(zone,)), {}, (zone,)),
        (Reach(everywhere=True), {}, None),
        (Reach(everywhere=True), {"binds_to_node": True}, (name,)),
    ):
        simulation = simulated(
            node("n1", labels={"zone": "a"}),
            device_class(),
            pod(claims=claims("c")),
            resource_claim("c", asks()),
            published("n1", gpus(1, **facts), reach=reach),
        )
        simulation.place(pending_of(simulation.snapshot, "p"), 0)
        (made,) = reservations_of(simulation, Uid("pod-p")).claims
        assert made.allocation is not None and made.allocation.terms == expected
        assert (made.node, made.consumer) == ("n1", Consumer("pods", "p", Uid("pod-p")))


# 3. Requests.


def test_selectors_of_class_and_request_must_all_hold() -> None:
    rows = [
        node("n1"),
        device_class("big", f'device.driver == "{DRIVER}"', f"device.attributes['{DRIVER}'].n > 1"),
        published("n1", [device(f"d{n}", n=n) for n in range(4)]),
        pod(claims=claims("c")),
        resource_claim(
            "c", asks("r", 1, f"device.attributes['{DRIVER}'].n < 3", device_class="big")
        ),
    ]
    simulation = simulated(rows)
    assert refusals(simulation) == [""]
    assert taken(simulation)["c"] == ["r=n1/d2"]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            [resource_claim("c", asks("r", 1, f"device.attributes['{DRIVER}'].nope == 1"))],
            (
                "claim default/c: selector #0 on device gpu.example.com/n1/gpu-0: "
                "CEL runtime error: no such key: nope"
            ),
        ),
        (
            [
                resource_claim("c", asks("r", device_class="odd")),
                device_class("odd", f"device.attributes['{DRIVER}'].nope == 1"),
            ],
            (
                "class odd: selector #0 on device gpu.example.com/n1/gpu-0: "
                "CEL runtime error: no such key: nope"
            ),
        ),
    ],
)
def test_an_expression_without_value_ends_the_attempt_with_an_error(
    rows: list[Any], text: str
) -> None:
    simulation = simulated(
        node("n1"), device_class(), published("n1", gpus(1)), pod(claims=claims("c")), *rows
    )
    refusal = simulation.refusal(pending_of(simulation.snapshot, "p"))
    assert refusal is not None and refusal.error
    assert (refusal.reason.rejection, refusal.reason.subject) == (Rejection.DEVICES, text)


def test_an_error_on_a_node_that_the_pod_may_not_get_is_no_error() -> None:
    simulation = simulated(
        node("n1"),
        node("n2", labels={"gpu": "yes"}),
        device_class(),
        published("n1", gpus(1)),
        published("n2", gpus(1, n=1)),
        pod(claims=claims("c"), node_selector={"gpu": "yes"}),
        resource_claim("c", asks("r", 1, f"device.attributes['{DRIVER}'].n == 1")),
    )
    assert refusals(simulation) == ["NODE_AFFINITY", ""]


def test_an_error_on_a_device_that_is_not_needed_is_no_error() -> None:
    rows = [published("n1", [device("d0", n=1), device("d1")])]
    assert got(*rows, resource_claim("c", asks("r", 1, f"device.attributes['{DRIVER}'].n == 1")))


def test_a_count_takes_so_many_and_all_takes_every_match() -> None:
    rows = [published("n1", [device(f"d{n}", odd=bool(n % 2)) for n in range(5)])]
    odd = f"device.attributes['{DRIVER}'].odd"
    assert got(*rows, resource_claim("c", asks("r", 3))) == [f"r=n1/d{n}" for n in (0, 1, 2)]
    assert got(*rows, resource_claim("c", asks("r", 0, odd))) == ["r=n1/d1", "r=n1/d3"]
    assert here(*rows, resource_claim("c", asks("r", 6))) == [ALL]
    assert here(*rows, resource_claim("c", asks("r", 0, "false"))) == [ALL]
    busy = resource_claim("other", asks(), got=[("n1", "d3")])
    assert here(*rows, busy, resource_claim("c", asks("r", 0, odd))) == [ALL]


def test_taints_of_devices_are_tolerated_by_requests() -> None:
    for effect, tolerations, passes in (
        ("NoSchedule", (), False),
        ("NoExecute", (), False),
        ("None", (), True),
        ("NoSchedule", (Toleration("k", "Exists"),), True),
        ("NoSchedule", (Toleration("k", "Equal", "v"),), True),
        ("NoSchedule", (Toleration("k", "Equal", "w"),), False),
        ("NoExecute", (Toleration("", "Exists", "", "NoSchedule"),), False),
    ):
        rows = [
            published("n1", gpus(1, taints=(Taint("k", "v", effect),))),
            resource_claim("c", asks("r", tolerations=tolerations)),
        ]
        assert here(*rows) == ["" if passes else ALL], (effect, tolerations)


def test_admin_access_uses_devices_that_are_taken_and_takes_none() -> None:
    rows = [
        node("n1"),
        device_class(),
        published("n1", gpus(2)),
        resource_claim("busy", asks(), got=[("n1", "gpu-0")]),
        resource_claim("admin", asks("r", 0, admin=True)),
        resource_claim("twice", asks("a", admin=True), asks("b", 2, admin=True)),
        resource_claim("c", asks()),
        pod("p", claims=claims("admin", "c")),
        pod("q", claims=claims("twice")),
    ]
    simulation = simulated(rows)
    assert refusals(simulation, "p") == [""]
    assert taken(simulation, "p") == {
        "admin": ["r=n1/gpu-0", "r=n1/gpu-1"],
        "c": ["r=n1/gpu-1"],
    }
    assert refusals(simulation, "q") == [ALL]  # no device twice in one claim


def _card(total: int, policy: CapacityPolicy | None = None) -> list[Any]:
    memory = DeviceCapacity(1000 * total, policy)
    return [published("n1", [device("card", shareable=True, capacity={"memory": memory})])]


def _asked(memory: int | None) -> Any:
    wanted = () if memory is None else (("memory", 1000 * memory),)
    return resource_claim("c", asks("r", capacity=wanted))


@pytest.mark.parametrize(
    ("policy", "memory", "consumed"),
    [
        (None, 10, 10),
        (None, None, 40),
        (None, 41, None),
        (CapacityPolicy(8_000), None, 8),
        (CapacityPolicy(8_000, values=(8_000, 16_000)), 9, 16),
        (CapacityPolicy(8_000, values=(8_000, 16_000)), 17, None),
        (CapacityPolicy(8_000, minimum=4_000, step=2_000), 1, 4),
        (CapacityPolicy(8_000, minimum=4_000, step=2_000), 7, 8),
        (CapacityPolicy(8_000, minimum=4_000, maximum=12_000, step=2_000), 13, None),
        (CapacityPolicy(8_000, minimum=4_000), 5, 5),
    ],
)
def test_a_share_consumes_what_the_policy_of_its_capacity_says(
    policy: CapacityPolicy | None, memory: int | None, consumed: int | None
) -> None:
    simulation = simulated(
        node("n1"), device_class(), _card(40, policy), pod(claims=claims("c")), _asked(memory)
    )
    assert refusals(simulation) == ["" if consumed is not None else ALL]
    if consumed is not None:
        simulation.place(pending_of(simulation.snapshot, "p"), 0)
        (made,) = reservations_of(simulation, Uid("pod-p")).claims
        assert made.allocation is not None
        (share,) = made.allocation.devices
        assert share.consumed == (("memory", 1000 * consumed),)
        assert len(share.share) == 36


def test_shares_of_a_device_fit_into_its_capacity_together() -> None:
    rows = [node("n1"), device_class(), *_card(40)]
    for name in ("a", "b", "d"):
        rows.append(resource_claim(name, asks("r", capacity=(("memory", 16_000),))))
        rows.append(pod(name, claims=claims(name)))
    simulation = simulated(rows)
    placed = [simulation.place(pending_of(simulation.snapshot, name), 0) for name in ("a", "b")]
    assert refusals(simulation, "d") == [ALL]
    shares = {
        device.share
        for name in ("a", "b")
        for made in reservations_of(simulation, Uid(f"pod-{name}")).claims
        for device in (made.allocation.devices if made.allocation else ())
    }
    assert len(shares) == 2
    simulation.unplace(placed[1])
    assert refusals(simulation, "d") == [""]


def test_a_capacity_that_is_asked_for_is_there() -> None:
    rows = [published("n1", [device("small", capacity={"memory": 8}), device("none"),
                             device("large", capacity={"memory": 80})])]  # fmt: skip
    wanted = asks("r", capacity=(("memory", 40_000),))
    assert got(*rows, resource_claim("c", wanted)) == ["r=n1/large"]


def test_the_first_alternative_that_works_is_taken() -> None:
    rows = [published("n1", [device("a", n=1), device("b", n=2), device("c", n=2)])]
    n = f"device.attributes['{DRIVER}'].n"
    request = first_of("r", alternative("two", 2, f"{n} == 1"), alternative("pair", 2, f"{n} == 2"))
    assert got(*rows, resource_claim("c", request)) == ["r/pair=n1/b", "r/pair=n1/c"]
    # The first alternative fits alone, but not with what comes after it.
    later = [first_of("r", alternative("x", 2), alternative("y", 1)), asks("s", 2)]
    assert got(*rows, resource_claim("c", *later)) == ["r/y=n1/a", "s=n1/b", "s=n1/c"]


# 4. Constraints.


def _numa() -> Any:
    places = {"d0": 0, "d1": 1, "d2": 0, "d3": 1}
    return published("n1", [device("bare"), *(device(d, numa=n) for d, n in places.items())])


def test_devices_match_or_differ_in_an_attribute() -> None:
    wanted = resource_claim("c", asks("r", 2), constraints=[same("numa")])
    assert got(_numa(), wanted) == ["r=n1/d0", "r=n1/d2"]
    wanted = resource_claim("c", asks("r", 2), constraints=[distinct("numa")])
    assert got(_numa(), wanted) == ["r=n1/d0", "r=n1/d1"]
    wanted = resource_claim("c", asks("r", 3), constraints=[distinct("numa")])
    assert here(_numa(), wanted) == [ALL]
    wanted = resource_claim("c", asks("r", 3), constraints=[same("numa")])
    assert here(_numa(), wanted) == [ALL]


def test_a_constraint_names_requests_and_alternatives() -> None:
    requests = [asks("a"), asks("b"), asks("c")]
    wanted = resource_claim("c", *requests, constraints=[same("numa", "b", "c")])
    assert got(_numa(), wanted) == ["a=n1/bare", "b=n1/d0", "c=n1/d2"]
    either = [asks("a"), first_of("b", alternative("x"), alternative("y"))]
    rows = [published("n1", [device("d0", numa=0), device("d1", numa=1)])]
    for named, expected in ((("a", "b/x"), "b/y=n1/d1"), (("a", "b/y"), "b/x=n1/d1")):
        wanted = resource_claim("c", *either, constraints=[same("numa", *named)])
        assert got(*rows, wanted) == ["a=n1/d0", expected]
    wanted = resource_claim("c", *either, constraints=[same("numa", "a", "b")])
    assert here(*rows, wanted) == [ALL]


def test_equal_values_of_different_types_do_not_match() -> None:
    rows = [published("n1", [device("a", k=1), device("b", k="1"), device("d", k=True)])]
    assert here(*rows, resource_claim("c", asks("r", 2), constraints=[same("k")])) == [ALL]


def test_a_claim_gets_at_most_32_devices() -> None:
    rows = [published("n1", gpus(40))]
    assert len(got(*rows, resource_claim("c", asks("r", 32)))) == 32
    assert here(*rows, resource_claim("c", asks("r", 33))) == [ALL]
    assert here(*rows, resource_claim("c", asks("a", 20), asks("b", 20))) == [ALL]


# 5. Partitions.


def _partitioned(**facts: Any) -> Any:
    """One card of 7 slices: a whole, two halves of 3, seven of 1."""
    parts = [("whole", 7), ("half-0", 3), ("half-1", 3), *((f"small-{n}", 1) for n in range(7))]
    return published(
        "n1",
        [
            device(name, slices=size, consumes=(("card", (("slices", size),)),))
            for name, size in parts
        ],
        counters=(("card", (("slices", 7),)),),
        **facts,
    )


def _slices(size: int) -> str:
    return f"device.attributes['{DRIVER}'].slices == {size}"


def test_partitions_share_the_counters_of_their_pool() -> None:
    both = resource_claim("c", asks("h", 2, _slices(3)), asks("s", 1, _slices(1)))
    assert got(_partitioned(), both) == ["h=n1/half-0", "h=n1/half-1", "s=n1/small-0"]
    much = resource_claim("c", asks("h", 2, _slices(3)), asks("s", 2, _slices(1)))
    assert here(_partitioned(), much) == [ALL]
    used = resource_claim("other", asks(), got=[("n1", "small-4")])
    assert here(_partitioned(), used, resource_claim("c", asks("r", 1, _slices(7)))) == [ALL]
    assert got(_partitioned(), used, resource_claim("c", asks("r", 2, _slices(3))))


def test_a_partition_of_an_unknown_counter_is_not_given() -> None:
    rows = [published("n1", [device("d", consumes=(("none", (("slices", 1),)),))])]
    assert here(*rows, resource_claim("c", asks())) == [ALL]


def test_partitions_of_different_compatibility_groups_are_not_given_together() -> None:
    def part(name: str, *groups: str) -> Any:
        together = ((("card"), frozenset(groups)),) if groups else ()
        return device(name, consumes=(("card", (("slices", 1),)),), compatibility=together)

    rows = [
        published(
            "n1",
            [part("a", "x"), part("b", "y"), part("plain"), part("d", "x", "y")],
            counters=(("card", (("slices", 7),)),),
        )
    ]
    assert got(*rows, resource_claim("c", asks("r", 2))) == ["r=n1/a", "r=n1/d"]
    assert here(*rows, resource_claim("c", asks("r", 3))) == [ALL]


# 6. The search.


def test_pools_are_searched_by_driver_and_name_slices_by_name_and_devices_as_listed() -> None:
    rows = [
        published("n1", [device("z"), device("a")], driver="b.example.com", pool="p1"),
        published("n1", [device("k")], pool="p2", driver="a.example.com", name="s2", slices=2),
        published("n1", [device("m")], pool="p2", driver="a.example.com", name="s1", slices=2),
        published("n1", [device("x")], pool="p9", driver="a.example.com"),
    ]
    assert got(*rows, resource_claim("c", asks("r", 5))) == [
        "r=p2/m",
        "r=p2/k",
        "r=p9/x",
        "r=p1/z",
        "r=p1/a",
    ]


def test_the_search_goes_back_over_requests_and_claims() -> None:
    n = f"device.attributes['{DRIVER}'].n"
    rows = [
        node("n1"),
        device_class(),
        published("n1", [device("d0", n=0), device("d1", n=1), device("d2", n=1)]),
        resource_claim("any", asks("r", 1)),
        resource_claim("zero", asks("r", 1, f"{n} == 0")),
        resource_claim("ones", asks("r", 2, f"{n} == 1")),
        pod("p", claims=claims("any", "zero")),
        pod("q", claims=claims("any", "zero", "ones")),
    ]
    simulation = simulated(rows)
    assert refusals(simulation, "p") == [""]
    assert taken(simulation, "p") == {"any": ["r=n1/d1"], "zero": ["r=n1/d0"]}
    assert refusals(simulation, "q") == [ALL]


def test_a_search_that_is_too_long_is_ended_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_allocation, "STEPS", 20)
    rows = [published("n1", [device(f"d{n}", numa=n) for n in range(12)])]
    wanted = resource_claim("c", asks("r", 6), constraints=[same("numa")])
    assert here(*rows, wanted) == [f"{ALL}: the search was ended"]


def test_members_of_a_gang_see_what_earlier_members_took() -> None:
    rows: list[Any] = [node("n1"), node("n2"), device_class()]
    rows += [published("n1", gpus(1)), published("n2", gpus(2)), group("g", min_count=4)]
    for number in range(4):
        rows.append(resource_claim(f"c{number}", asks()))
        rows.append(pod(f"m{number}", group="g", claims=claims(f"c{number}")))
    simulation = simulated(rows)
    pending = [pending_of(simulation.snapshot, f"m{number}") for number in range(4)]
    seen = [refusals(simulation, "m3")]
    placed = []
    for each, at in zip(pending[:3], (0, 1, 1), strict=True):
        placed.append(simulation.place(each, at))
        seen.append(refusals(simulation, "m3"))
    assert seen == [["", ""], [ALL, ""], [ALL, ""], [ALL, ALL]]
    for pod_placed, before in zip(reversed(placed), reversed(seen[:-1]), strict=True):
        simulation.unplace(pod_placed)
        assert refusals(simulation, "m3") == before


def test_the_configuration_of_classes_and_claim_goes_into_the_allocation() -> None:
    of_class = DeviceConfiguration(DRIVER, '{"kind":"Class"}')
    mine = DeviceConfiguration(DRIVER, '{"kind":"A"}', ("a",))
    other = DeviceConfiguration(DRIVER, '{"kind":"B"}', ("b/y",))
    simulation = simulated(
        node("n1"),
        device_class(configuration=(of_class,)),
        published("n1", gpus(2)),
        pod(claims=claims("c")),
        resource_claim(
            "c",
            asks("a"),
            first_of("b", alternative("x"), alternative("y")),
            configuration=(mine, other),
        ),
    )
    simulation.place(pending_of(simulation.snapshot, "p"), 0)
    (made,) = reservations_of(simulation, Uid("pod-p")).claims
    assert made.allocation is not None
    assert made.allocation.configuration == (("FromClass", of_class), ("FromClaim", mine))


# Extended resources.


def test_an_extended_resource_that_the_node_lacks_is_served_by_a_device_class() -> None:
    rows = [
        node("n1", extended={"example.com/gpu": 2}),
        node("n2"),
        node("n3"),
        device_class(extended_resource="example.com/gpu"),
        published("n2", gpus(2)),
        pod(extended={"example.com/gpu": 2}),
    ]
    simulation = simulated(rows)
    assert refusals(simulation) == ["", "", ALL]
    pending = pending_of(simulation.snapshot, "p")
    simulation.place(pending, 1)
    (made,) = reservations_of(simulation, pending.row.uid).claims
    assert made.allocation is not None
    assert [d.id[2] for d in made.allocation.devices] == ["gpu-0", "gpu-1"]
    assert made.extended == (ExtendedRequest("example.com/gpu", "request-0", 2),)
    assert made.name.startswith("p-extended-resources-")


def test_requests_of_containers_are_fulfilled_one_by_one() -> None:
    wanted = (
        ExtendedRequest("example.com/gpu", "container-0-request-0", 1, ("a",)),
        ExtendedRequest("example.com/gpu", "container-1-request-0", 2, ("b",)),
    )
    simulation = simulated(
        node("n1"),
        device_class(extended_resource="example.com/gpu"),
        published("n1", gpus(3)),
        _extended_pod(wanted),
    )
    assert refusals(simulation) == [""]
    (devices,) = taken(simulation).values()
    assert devices == [
        "container-0-request-0=n1/gpu-0",
        "container-1-request-0=n1/gpu-1",
        "container-1-request-0=n1/gpu-2",
    ]


def _extended_pod(wanted: tuple[ExtendedRequest, ...]) -> Any:
    row = pod(extended={"example.com/gpu": sum(each.count for each in wanted)})
    return replace(row, pod_class=replace(row.pod_class, extended=wanted))


def test_every_class_stands_for_its_implicit_resource_and_the_latest_for_an_explicit_one() -> None:
    implicit = "deviceclass.resource.kubernetes.io/gpu"
    rows = [node("n1"), device_class(), published("n1", gpus(1)), pod(extended={implicit: 1})]
    assert refusals(simulated(rows)) == [""]
    for older, newer, expected in ((1, 2, ALL), (2, 1, ""), (1, 1, "")):
        rows = [
            node("n1"),
            device_class("ab", created=older, extended_resource="e.com/x"),
            device_class("abc", "false", created=newer, extended_resource="e.com/x"),
            published("n1", gpus(1)),
            pod(extended={"e.com/x": 1}),
        ]
        assert refusals(simulated(rows)) == [expected], (older, newer)


# What removal of pods changes.


@pytest.mark.parametrize("simulate", [False, True])
def test_devices_of_removed_pods_are_free_only_when_claims_are_simulated(simulate: bool) -> None:
    rows = [
        node("n1"),
        device_class(),
        published("n1", gpus(1)),
        resource_claim("theirs", asks(), got=[("n1", "gpu-0")], users=["v"]),
        resource_claim("c", asks()),
        pod("v", node="n1", claims=claims("theirs")),
        pod("p", claims=claims("c")),
    ]
    simulation = simulated(rows, simulate_claims=simulate)
    short = "DEVICES_TAKEN cannot allocate all claims" if simulate else ALL
    assert refusals(simulation) == [short]
    status = simulation.status_at(pending_of(simulation.snapshot, "p"), 0)
    assert status.code is (Code.UNSCHEDULABLE if simulate else Code.UNRESOLVABLE)
    slot = np.array([slot_of(simulation.snapshot, "v")])
    simulation.remove(slot)
    assert refusals(simulation) == ["" if simulate else ALL]
    simulation.restore(slot)
    assert refusals(simulation) == [short]


def test_a_shared_claim_is_free_when_its_last_user_is_removed() -> None:
    rows = [
        node("n1"),
        device_class(),
        published("n1", gpus(1)),
        resource_claim("theirs", asks(), got=[("n1", "gpu-0")], users=["v", "w"]),
        resource_claim("c", asks()),
        pod("v", node="n1", claims=claims("theirs")),
        pod("w", node="n1", claims=claims("theirs")),
        pod("p", claims=claims("c")),
    ]
    simulation = simulated(rows, simulate_claims=True)
    short = "DEVICES_TAKEN cannot allocate all claims"
    simulation.remove(np.array([slot_of(simulation.snapshot, "v")]))
    assert refusals(simulation) == [short]
    simulation.remove(np.array([slot_of(simulation.snapshot, "w")]))
    assert refusals(simulation) == [""]


def test_a_shortage_that_no_removal_ends_stays_unresolvable() -> None:
    rows = [published("n1", gpus(1)), resource_claim("c", asks("r", 2))]
    assert here(*rows, simulate_claims=True) == [ALL]


# After a failure.


def test_claims_that_keep_a_pod_on_an_unusable_node_are_deallocated() -> None:
    full = node("n2", taints=["full=yes:NoSchedule"])
    has = resource_claim("c", asks(), got=[("n2", "gpu-0")], only="n2", users=["p"])
    used = resource_claim("d", asks(), got=[("n2", "gpu-1")], only="n2", users=["p", "other"])
    made = resource_claim("p-extended", asks(), owner=Uid("pod-p"), extended=True)
    rows = [node("n1"), full, has, used, made, pod(claims=claims("c", "d"))]
    simulation = simulated(rows)
    assert refusals(simulation) == ["DEVICES_NOT_HERE", "TAINT"]
    pending = pending_of(simulation.snapshot, "p")
    assert deallocations(simulation, [pending]) == (
        Deallocation("default", "p-extended", Uid("claim-p-extended"), delete=True),
        Deallocation("default", "c", Uid("claim-c")),
    )
    result = deallocate_claims(simulation, group("g"), [pending])
    assert result.code is Code.UNSCHEDULABLE
    assert result.explanation.sentence is Sentence.CLAIMS_DEALLOCATED


def test_nothing_is_deallocated_while_the_claims_nodes_are_usable() -> None:
    has = resource_claim("c", asks(), got=[("n1", "gpu-0")], only="n1", users=["p"])
    simulation = simulated(node("n1"), has, pod(claims=claims("c")))
    assert deallocations(simulation, [pending_of(simulation.snapshot, "p")]) == ()
