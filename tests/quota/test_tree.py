"""The tree against the oracle: what nodes use, have left, may draw and share."""

from __future__ import annotations

from random import Random

from reprieve.engine.quota.holdings.amounts import UNLIMITED, WIDE, capacity_text, minus, plus, text
from reprieve.engine.quota.holdings.shares import fair_weight, share
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.holdings.tree import Tree, available, borrowing_level
from reprieve.engine.quota.model import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    FlavorResource,
    Quota,
    ResourceGroup,
)
from tests.oracle import quota as oracle
from tests.quota.cases import plain, scene

CPU = FlavorResource("default", "cpu")


def queue(name: str, nominal: int, cohort: str = "", **limits: int) -> ClusterQueue:
    quota = Quota(nominal, limits.get("borrowing"), limits.get("lending"))
    group = ResourceGroup(("cpu",), (FlavorQuotas("default", {"cpu": quota}),))
    return ClusterQueue(name, cohort, (group,))


def test_every_figure_of_every_node_is_that_of_the_oracle() -> None:
    random = Random(21)
    borrowing = limited = negative = infinite = 0
    for number in range(600):
        case = scene(random)
        holdings = Holdings(case.configuration)
        for workload in case.admitted:
            holdings.hold(workload)
        tree, usage = holdings.tree, holdings.usage
        world = oracle.World(plain(case))
        nodes = [(("queue", name), node) for name, node in tree.queues.items()]
        nodes += [(("cohort", name), node) for name, node in tree.cohorts.items()]
        for name, node in nodes:
            for column, pair in enumerate(tree.flavor_resources):
                assert usage[column][node] == world.used(name, pair), (number, name)
                assert tree.subtree[column][node] == world.subtree(name, pair)
                assert tree.potential[column][node] == world.potential(name, pair)
                left = available(tree, column, usage[column], tree.path[node])
                assert left == world.available(name, pair), (number, name, pair)
                negative += left < 0
                limited += world.quota(name, pair)[2] is not None
            found = share(tree, usage, node)
            borrows, ratio, weighted = world.share(name)
            assert (found.borrowing, found.ratio, found.weighted) == (borrows, ratio, weighted)
            borrowing += borrows
            infinite += weighted == float("inf")
    assert min(borrowing, limited, negative) >= 200
    assert infinite >= 20


def test_an_unlimited_quota_stays_unlimited_however_it_is_combined() -> None:
    assert plus(UNLIMITED, 5) == plus(UNLIMITED, UNLIMITED) == minus(UNLIMITED, 5) == UNLIMITED
    assert minus(UNLIMITED, UNLIMITED) == 0
    assert minus(5, UNLIMITED) == -(2**63)
    assert plus(2**62, 2**62) == UNLIMITED
    queues = {each.name: each for each in (queue("a", UNLIMITED, "all"), queue("b", 3, "all"))}
    tree = Tree(queues, {})
    column = tree.column(CPU)
    assert tree.potential[column][tree.queues["b"]] == WIDE
    usage = [0] * len(tree.names)
    assert available(tree, column, usage, tree.path[tree.queues["b"]]) > UNLIMITED // 2
    assert borrowing_level(tree, column, usage, tree.queues["a"], 10**15) == (0, True)


def test_borrowing_levels_are_heights_of_the_lowest_subtree_that_fits() -> None:
    queues = {
        each.name: each
        for each in (queue("a", 2, "leaf"), queue("b", 2, "leaf"), queue("c", 4, "root"))
    }
    tree = Tree(queues, {"leaf": Cohort("leaf", "root")})
    column, usage = tree.column(CPU), [0] * len(tree.names)
    node = tree.queues["a"]
    levels = {amount: borrowing_level(tree, column, usage, node, amount) for amount in (2, 4, 8, 9)}
    assert levels == {2: (0, True), 4: (1, True), 8: (2, False), 9: (2, False)}


def test_a_cycle_of_cohorts_disables_its_members_and_nobody_else() -> None:
    queues = {each.name: each for each in (queue("a", 2, "x"), queue("b", 2, "z"))}
    cohorts = {"x": Cohort("x", "y"), "y": Cohort("y", "x")}
    tree = Tree(queues, cohorts)
    assert tree.inactive == {"a": "its cohort is in a cycle"}
    column = tree.column(CPU)
    assert available(tree, column, [0] * len(tree.names), tree.path[tree.queues["b"]]) == 2


def test_quantities_are_written_in_their_canonical_form() -> None:
    written = [
        text("cpu", 3_200_000),
        text("cpu", 500),
        text("memory", 25 * 2**40),
        text("memory", 1_000),
        text("nvidia.com/gpu", 8_000),
        text("pods", 0),
        capacity_text("cpu", UNLIMITED),
        text("cpu", UNLIMITED),
    ]
    assert written == [
        "3200", "500m", "25Ti", "1000", "8k", "0", "<unlimited>", "9223372036854775807m"
    ]  # fmt: skip


def test_a_weight_is_multiplied_as_the_reference_does() -> None:
    assert fair_weight("0.3") == 3 * 0.1 != 0.3
    assert [fair_weight(each) for each in ("300m", "2", "1k", "0")] == [0.3, 2.0, 1000.0, 0.0]
    # Equal by exact arithmetic, not in float64, and so not in any decision.
    assert 1 * 1000.0 / 3 / fair_weight("100m") < 1 * 1000.0 / 1 / fair_weight("300m")
