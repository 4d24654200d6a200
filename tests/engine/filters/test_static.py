"""Filters that depend on nodes and the pod's spec alone (specification 21.1 to 21.3)."""

from __future__ import annotations

import pytest

from reprieve.engine.cluster.rows import NodeTerm, Operator, Requirement, Toleration
from reprieve.engine.placement.profile import FilterName, Profile
from tests.engine.builders import node, pod
from tests.engine.filters.outcomes import FITS, verdicts

AFFINITY = "X: node(s) didn't match Pod's node affinity/selector"
LEFT_OUT = "X: node(s) didn't satisfy plugin(s) [NodeAffinity]"
TAINT = "X: node(s) had untolerated taint(s)"
CORDONED = "X: node(s) were unschedulable"


def term(key: str, operator: Operator, *values: str) -> NodeTerm:
    return NodeTerm(expressions=(Requirement(key, operator, values),))


def named(*names: str, operator: Operator = Operator.IN) -> Requirement:
    return Requirement("metadata.name", operator, names)


def test_a_pod_without_wishes_fits_everywhere() -> None:
    assert verdicts(node("a"), node("b"), pod()) == {"a": FITS, "b": FITS}


def test_a_named_node_leaves_out_the_others() -> None:
    rows = (node("a"), node("b", unschedulable=True), pod(node_name="a"))
    assert verdicts(*rows) == {"a": FITS, "b": "X: node(s) didn't satisfy plugin(s) [NodeName]"}


def test_a_named_node_that_is_missing_leaves_out_all() -> None:
    left_out = "X: node(s) didn't satisfy plugin(s) [NodeName]"
    assert verdicts(node("a"), pod(node_name="z")) == {"a": left_out}


def test_a_disabled_plugin_says_nothing() -> None:
    without = tuple(
        name
        for name in FilterName
        if name not in (FilterName.NODE_NAME, FilterName.NODE_AFFINITY, FilterName.TAINT_TOLERATION)
    )
    rows = (node("a", taints=["k=v:NoSchedule"]), pod(node_name="b", node_selector={"x": "y"}))
    assert verdicts(*rows, profile=Profile(filters=without)) == {"a": FITS}


def test_cordoned_nodes_take_only_pods_that_tolerate_it() -> None:
    nodes = (node("a"), node("b", unschedulable=True))
    assert verdicts(*nodes, pod()) == {"a": FITS, "b": CORDONED}
    key = "node.kubernetes.io/unschedulable"
    for toleration, passes in (
        (Toleration(key, "Exists"), True),
        (Toleration(key, "", "", "NoSchedule"), True),
        (Toleration("", "Exists"), True),
        (Toleration(key, "Equal", "true"), False),
        (Toleration(key, "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists"), False),
    ):
        expected = {"a": FITS, "b": FITS if passes else CORDONED}
        assert verdicts(*nodes, pod(tolerations=(toleration,))) == expected, toleration


def test_a_cordoned_node_with_its_taint_says_that_it_is_cordoned() -> None:
    tainted = node("a", unschedulable=True, taints=["node.kubernetes.io/unschedulable:NoSchedule"])
    assert verdicts(tainted, pod()) == {"a": CORDONED}


@pytest.mark.parametrize(
    ("toleration", "passes"),
    [
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "", "v"), True),
        (Toleration("", "Equal", "v"), True),
        (Toleration("k", "Exists"), True),
        (Toleration("k", "Exists", "w"), True),
        (Toleration("", "Exists"), True),
        (Toleration("k", "Equal", "w"), False),
        (Toleration("k", "Equal"), False),
        (Toleration("l", "Exists"), False),
        (Toleration("k", "Exists", "", "NoExecute"), False),
        (Toleration("k", "Gt", "1"), False),
        (Toleration("k", "Lt", "9"), False),
    ],
)
def test_what_a_toleration_covers(toleration: Toleration, passes: bool) -> None:
    rows = (node("a", taints=["k=v:NoSchedule"]), pod(tolerations=(toleration,)))
    assert verdicts(*rows) == {"a": FITS if passes else TAINT}


def test_every_taint_that_keeps_away_must_be_covered() -> None:
    rows = (
        node("a", taints=["k=v:NoSchedule", "l:NoExecute"]),
        node("b", taints=["k=v:NoSchedule", "l:PreferNoSchedule"]),
        node("c", taints=["l:NoExecute"]),
        pod(tolerations=(Toleration("k", "Exists"),)),
    )
    assert verdicts(*rows) == {"a": TAINT, "b": FITS, "c": TAINT}


def test_a_node_selector_asks_for_all_of_its_labels() -> None:
    rows = (
        node("a", labels={"zone": "z", "disk": "ssd"}),
        node("b", labels={"zone": "z"}),
        node("c", labels={"zone": "z", "disk": "hdd"}),
        node("d"),
        pod(node_selector={"zone": "z", "disk": "ssd"}),
    )
    assert verdicts(*rows) == {"a": FITS, "b": AFFINITY, "c": AFFINITY, "d": AFFINITY}


def test_node_selector_and_affinity_must_both_hold() -> None:
    rows = (
        node("a", labels={"zone": "z", "disk": "ssd"}),
        node("b", labels={"zone": "z"}),
        node("c", labels={"disk": "ssd"}),
        pod(
            node_selector={"zone": "z"},
            node_affinity=(term("disk", Operator.EXISTS),),
        ),
    )
    assert verdicts(*rows) == {"a": FITS, "b": AFFINITY, "c": AFFINITY}


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        (Operator.IN, ("5", "7"), "b"),
        (Operator.NOT_IN, ("5",), "acd"),
        (Operator.EXISTS, (), "bcd"),
        (Operator.DOES_NOT_EXIST, (), "a"),
        (Operator.GT, ("4",), "bd"),
        (Operator.GT, ("5",), "d"),
        (Operator.LT, ("6",), "b"),
        (Operator.LT, ("five",), ""),
        (Operator.LT, (), ""),
        (Operator.GT, ("1", "2"), ""),
        (Operator.IN, (), ""),
        (Operator.NOT_IN, (), ""),
    ],
)
def test_operators_over_an_absent_a_numeric_and_a_textual_label(
    operator: Operator, values: tuple[str, ...], fits: str
) -> None:
    rows = (
        node("a"),
        node("b", labels={"size": "5"}),
        node("c", labels={"size": "large"}),
        node("d", labels={"size": "12"}),
        pod(node_affinity=(term("size", operator, *values),)),
    )
    assert verdicts(*rows) == {name: FITS if name in fits else AFFINITY for name in "abcd"}


def test_a_number_is_a_decimal_integer_of_64_bits() -> None:
    sizes = {"a": "+7", "b": "-1", "c": "1_0", "d": " 7", "e": "7.5", "f": str(2**63)}
    rows = [node(name, labels={"size": size}) for name, size in sizes.items()]
    larger = verdicts(*rows, pod(node_affinity=(term("size", Operator.GT, "0"),)))
    assert [name for name, verdict in larger.items() if verdict == FITS] == ["a"]
    smaller = verdicts(*rows, pod(node_affinity=(term("size", Operator.LT, "0"),)))
    assert [name for name, verdict in smaller.items() if verdict == FITS] == ["b"]


def test_terms_are_alternatives_and_their_parts_are_not() -> None:
    both = NodeTerm(
        expressions=(
            Requirement("zone", Operator.IN, ("z",)),
            Requirement("disk", Operator.IN, ("ssd",)),
        )
    )
    rows = (
        node("a", labels={"zone": "z", "disk": "ssd"}),
        node("b", labels={"zone": "z"}),
        node("c", labels={"gpu": "yes"}),
        pod(node_affinity=(both, term("gpu", Operator.EXISTS))),
    )
    assert verdicts(*rows) == {"a": FITS, "b": AFFINITY, "c": FITS}


@pytest.mark.parametrize(
    "terms",
    [
        (),
        (NodeTerm(),),
        (NodeTerm(expressions=(Requirement("x", Operator.EXISTS),), unreadable=True),),
        (NodeTerm(fields=(Requirement("metadata.uid", Operator.NOT_IN, ("1",)),)),),
        (NodeTerm(fields=(named("a", "b", operator=Operator.NOT_IN),)),),
        (NodeTerm(fields=(Requirement("metadata.name", Operator.EXISTS),)),),
    ],
)
def test_terms_that_say_nothing_or_cannot_be_read_match_nothing(
    terms: tuple[NodeTerm, ...],
) -> None:
    assert verdicts(node("a", labels={"x": ""}), pod(node_affinity=terms)) == {"a": AFFINITY}


def test_match_fields_in_every_term_narrow_the_nodes() -> None:
    rows = (
        node("a"),
        node("b", unschedulable=True),
        node("c", unschedulable=True),
        pod(node_affinity=(NodeTerm(fields=(named("a"),)), NodeTerm(fields=(named("b"),)))),
    )
    assert verdicts(*rows) == {"a": FITS, "b": CORDONED, "c": LEFT_OUT}


def test_a_term_without_match_fields_leaves_all_nodes() -> None:
    rows = (
        node("a"),
        node("b"),
        node("c", labels={"gpu": "yes"}),
        pod(node_affinity=(NodeTerm(fields=(named("a"),)), term("gpu", Operator.EXISTS))),
    )
    assert verdicts(*rows) == {"a": FITS, "b": AFFINITY, "c": FITS}


def test_names_excluded_do_not_narrow() -> None:
    excluded = NodeTerm(fields=(named("a", operator=Operator.NOT_IN),))
    rows = (node("a"), node("b"), pod(node_affinity=(excluded,)))
    assert verdicts(*rows) == {"a": AFFINITY, "b": FITS}


def test_a_narrowed_node_must_still_match_the_expressions() -> None:
    both = NodeTerm((Requirement("gpu", Operator.EXISTS),), (named("a"),))
    rows = (node("a"), node("b", labels={"gpu": "yes"}), pod(node_affinity=(both,)))
    assert verdicts(*rows) == {"a": AFFINITY, "b": LEFT_OUT}


def test_match_fields_that_exclude_each_other_refuse_all_nodes_at_once() -> None:
    conflict = NodeTerm(fields=(named("a"), named("b")))
    everywhere = "X: pod affinity terms conflict"
    rows = (node("a"), node("b"), pod(node_affinity=(conflict,)))
    assert verdicts(*rows) == {"a": everywhere, "b": everywhere}
    possible = NodeTerm(fields=(named("b"),))
    rows = (node("a"), node("b"), pod(node_affinity=(conflict, possible)))
    assert verdicts(*rows) == {"a": LEFT_OUT, "b": FITS}


def test_narrowing_by_both_plugins_names_both() -> None:
    affinity = (NodeTerm(fields=(named("a"),)), NodeTerm(fields=(named("b"),)))
    rows = (node("a"), node("b"), node("c"), pod(node_name="a", node_affinity=affinity))
    both = "X: node(s) didn't satisfy plugin(s) [NodeAffinity NodeName]"
    assert verdicts(*rows) == {"a": FITS, "b": both, "c": both}


def test_affinity_added_by_the_configuration_is_tested_first() -> None:
    added = Profile(added_affinity=(term("pool", Operator.IN, "gpu"),))
    enforced = "X: node(s) didn't match scheduler-enforced node affinity"
    rows = (
        node("a", labels={"pool": "gpu", "disk": "ssd"}),
        node("b", labels={"disk": "ssd"}),
        node("c", labels={"pool": "gpu"}),
        node("d"),
        pod(node_selector={"disk": "ssd"}),
    )
    expected = {"a": FITS, "b": enforced, "c": AFFINITY, "d": enforced}
    assert verdicts(*rows, profile=added) == expected


def test_nodes_must_declare_what_the_pod_needs() -> None:
    rows = (
        node("a", features=frozenset(("one", "two", "three"))),
        node("b", features=frozenset(("one",))),
        node("c"),
        pod(features=("one", "two")),
    )
    refused = "X: node(s) didn't match Pod's required features"
    assert verdicts(*rows) == {"a": FITS, "b": refused, "c": refused}


def test_the_first_filter_in_order_gives_the_reason() -> None:
    rows = (
        node("a", unschedulable=True, taints=["k:NoSchedule"], gpus=0),
        node("b", taints=["k:NoSchedule"], gpus=0),
        node("c", gpus=0),
        node("d", labels={"zone": "z"}),
        pod(node_selector={"zone": "z"}, gpus=1, features=("f",)),
    )
    assert verdicts(*rows) == {
        "a": CORDONED,
        "b": TAINT,
        "c": AFFINITY,
        "d": "X: Insufficient nvidia.com/gpu",
    }


def test_what_no_filter_knows_makes_the_pod_unschedulable_and_is_named() -> None:
    rows = (node("a"), pod(unsupported="volume type glusterfs"))
    assert verdicts(*rows) == {"a": "X: volume type glusterfs is not supported by this scheduler"}


def test_a_cluster_without_nodes_has_no_answers() -> None:
    affinity = (NodeTerm(fields=(named("a"),)),)
    assert verdicts(pod(node_selector={"x": "y"}, node_affinity=affinity, node_name="b")) == {}
