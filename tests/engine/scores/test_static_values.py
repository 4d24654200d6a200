"""TaintToleration, NodeAffinity and ImageLocality, by hand (specification 17.2)."""

from __future__ import annotations

import pytest

from reprieve.engine.cluster.rows import (
    Image,
    NodeRow,
    NodeTerm,
    Operator,
    Requirement,
    Toleration,
    Weighted,
)
from reprieve.engine.placement.profile import ScoreName
from tests.engine.builders import node, pod
from tests.engine.scores.scoring import MIB, score_of, scored

TAINTS, AFFINITY, IMAGES = (
    ScoreName.TAINT_TOLERATION,
    ScoreName.NODE_AFFINITY,
    ScoreName.IMAGE_LOCALITY,
)

# TaintToleration: s PreferNoSchedule taints that nothing covers, 100 - 100 * s / max.


def tainted(name: str, *keys: str) -> NodeRow:
    return node(name, taints=[f"{key}=v:PreferNoSchedule" for key in keys])


FOUR = (tainted("n0"), tainted("n1", "a"), tainted("n2", "a", "b"), tainted("n3", "a", "b", "c"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("n0", 100), ("n1", 67), ("n2", 34), ("n3", 0)],
    ids=["s 0", "100 - 100 / 3", "100 - 200 / 3 = 100 - 66", "s 3 of 3"],
)
def test_taints_of_a_pod_that_tolerates_nothing(name: str, expected: int) -> None:
    assert scored(TAINTS, FOUR, pod("new"))[name] == expected


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        # s = 0, 0, 1, 2: 100 - 50
        (Toleration("a", "Equal", "v", "PreferNoSchedule"), (100, 100, 50, 0)),
        # an empty effect covers all of them: the same
        (Toleration("a", "Exists"), (100, 100, 50, 0)),
        # the effect is another one: s = 0, 1, 2, 3
        (Toleration("a", "Exists", effect="NoSchedule"), (100, 67, 34, 0)),
        # another value: s = 0, 1, 2, 3
        (Toleration("a", "Equal", "w"), (100, 67, 34, 0)),
        # s = 0, 1, 1, 2
        (Toleration("b", "Exists"), (100, 50, 50, 0)),
    ],
    ids=["equal", "empty effect", "other effect", "other value", "b"],
)
def test_taints_that_are_tolerated_do_not_count(
    toleration: Toleration, expected: tuple[int, ...]
) -> None:
    found = scored(TAINTS, FOUR, pod("new", tolerations=(toleration,)))
    assert tuple(found.values()) == expected


def test_taints_are_normalised_over_the_nodes_that_passed() -> None:
    # Among n1 and n2 the most is 2: 100 - 100 / 2 and 0.
    assert scored(TAINTS, FOUR, pod("new"), nodes=("n1", "n2")) == {"n1": 50, "n2": 0}
    # Where the most is 0 all have 100.
    assert scored(TAINTS, FOUR, pod("new"), nodes=("n0",)) == {"n0": 100}


def test_taints_that_keep_pods_away_are_no_matter_of_the_score() -> None:
    kept = node("n1", taints=["a=v:NoSchedule", "b=v:NoExecute"])
    assert score_of(TAINTS, kept, pod("new")) is None


# NodeAffinity: weights of matching preferred terms, 100 * s / max.


def term(key: str, operator: Operator, *values: str) -> NodeTerm:
    return NodeTerm((Requirement(key, operator, values),))


WISHES = (
    Weighted(10, term("disk", Operator.IN, "ssd", "nvme")),
    Weighted(30, term("zone", Operator.IN, "a")),
    Weighted(50, term("cores", Operator.GT, "16")),
)
WISHED = (
    node("n0", labels={"disk": "hdd", "zone": "b", "cores": "16"}),
    node("n1", labels={"disk": "ssd"}),
    node("n2", labels={"zone": "a", "cores": "8"}),
    node("n3", labels={"disk": "nvme", "zone": "a"}),
    node("n4", labels={"disk": "ssd", "zone": "a", "cores": "64"}),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("n0", 0), ("n1", 11), ("n2", 33), ("n3", 44), ("n4", 100)],
    ids=["16 is not above 16", "10 of 90", "30 of 90", "40 of 90", "90 of 90"],
)
def test_preferred_terms_of_the_pod(name: str, expected: int) -> None:
    assert scored(AFFINITY, WISHED, pod("new", preferred_node_affinity=WISHES))[name] == expected


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (term("disk", Operator.NOT_IN, "hdd"), (0, 100, 100, 100, 100)),
        (term("disk", Operator.DOES_NOT_EXIST), (0, 0, 100, 0, 0)),
        (term("cores", Operator.LT, "16"), (0, 0, 100, 0, 0)),
        (term("zone", Operator.IN, "c"), (0, 0, 0, 0, 0)),
        (NodeTerm(), (0, 0, 0, 0, 0)),
        (
            NodeTerm(fields=(Requirement("metadata.name", Operator.IN, ("n3",)),)),
            (0, 0, 0, 100, 0),
        ),
    ],
    ids=["absent is not in", "absent", "less", "nobody", "an empty term matches nothing", "field"],
)
def test_operators_of_preferred_terms(wish: NodeTerm, expected: tuple[int, ...]) -> None:
    row = pod("new", preferred_node_affinity=(Weighted(7, wish),))
    assert tuple(scored(AFFINITY, WISHED, row).values()) == expected


def test_preferred_terms_of_the_profile_are_added() -> None:
    # s = 0, 10, 30, 40, 90 and 60 more on n0: 60, 10, 30, 40, 90.
    added = (Weighted(60, term("disk", Operator.IN, "hdd")),)
    row = pod("new", preferred_node_affinity=WISHES)
    found = scored(AFFINITY, WISHED, row, added_preferred_affinity=added)
    assert found == {"n0": 66, "n1": 11, "n2": 33, "n3": 44, "n4": 100}
    # Alone they are enough.
    assert scored(AFFINITY, WISHED, pod("new"), added_preferred_affinity=added)["n0"] == 100


def test_node_affinity_skips_without_preferred_terms() -> None:
    row = pod("new", node_affinity=(WISHES[0].term,))
    assert score_of(AFFINITY, WISHED, row) is None


# ImageLocality: S over containers, 100 * (S - 23) / (c * 1000 - 23) in MiB.


def having(name: str, *images: tuple[str, int]) -> NodeRow:
    return node(name, images=tuple(Image((image,), size * MIB) for image, size in images))


IMAGE_CASES = [
    ("500 / 977", [having("n1", ("a:1", 523))], ("a:1",), 51),
    ("on 1 of 2 nodes: S 261.5, 238.5 / 977", [having("n1", ("a:1", 523)), node("n2")], ("a:1",),
     24),
    ("on 2 of 3 nodes: S 600, 577 / 977",
     [having("n1", ("a:1", 900)), having("n2", ("a:1", 900)), node("n3")], ("a:1",), 59),
    ("S below 23 counts as 23", [having("n1", ("a:1", 10))], ("a:1",), 0),
    ("S 23 is 0", [having("n1", ("a:1", 23))], ("a:1",), 0),
    ("S 33: 10 / 977 = 1.02", [having("n1", ("a:1", 33))], ("a:1",), 1),
    ("S above 1000 counts as 1000", [having("n1", ("a:1", 3000))], ("a:1",), 100),
    ("c 2: 1000 / 1977", [having("n1", ("a:1", 1023))], ("a:1", "b:1"), 50),
    ("c 2, both there: S 1123, 1100 / 1977", [having("n1", ("a:1", 1023), ("b:1", 100))],
     ("a:1", "b:1"), 55),
    ("one image for two containers counts twice: S 1046, 1023 / 1977",
     [having("n1", ("a:1", 523))], ("a:1", "a:1"), 51),
    ("c 3: S 2977 at most 3000, 2954 / 2977", [having("n1", ("a:1", 2977))],
     ("a:1", "b:1", "c:1"), 99),
    ("the other tag is another image", [having("n1", ("a:2", 523)), having("n2", ("a:1", 523))],
     ("a:1",), 0),
    ("no tag is latest", [having("n1", ("lib/a:latest", 523))], ("lib/a",), 51),
    ("the port of a registry is no tag", [having("n1", ("reg:5000/a:latest", 523))],
     ("reg:5000/a",), 51),
]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "images", "expected"),
    [case[1:] for case in IMAGE_CASES],
    ids=[case[0] for case in IMAGE_CASES],
)
def test_image_locality(nodes: list[NodeRow], images: tuple[str, ...], expected: int) -> None:
    assert scored(IMAGES, nodes, pod("new", images=images))["n1"] == expected


def test_an_image_is_known_under_each_of_its_names() -> None:
    names = ("a@sha256:0", "a:1")
    there = node("n1", images=(Image(names, 523 * MIB),))
    for name in names:
        assert scored(IMAGES, there, pod("new", images=(name,))) == {"n1": 51}


def test_image_locality_has_nothing_to_say_where_no_node_has_an_image() -> None:
    assert score_of(IMAGES, having("n1", ("b:1", 500)), pod("new", images=("a:1",))) is None
