"""One meaning of label requirements and tolerations, in every plane."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from reprieve.api.core import Node, Pod
from reprieve.engine.cluster.cluster import Cluster
from reprieve.engine.cluster.rows import NodeTerm, Operator, PodClass, Requirement, Taint
from reprieve.engine.cluster.rows import Toleration as RowToleration
from reprieve.engine.placement.filters.selection import Selection
from reprieve.engine.quota.model import NodeExpression, Toleration
from reprieve.engine.scheduling.queueing.matching import node_passes, tolerated
from reprieve.engine.selectors import covers, requirement_holds
from reprieve.intake.pods import admitted_nodes
from tests.engine.builders import node
from tests.engine.builders import pod as pod_row
from tests.engine.filters.outcomes import FITS, verdicts

Asked = Callable[[str, tuple[str, ...], str], bool]


def by_the_filter(operator: str, values: tuple[str, ...], value: str) -> bool:
    cluster = Cluster()
    cluster.apply([node("n", labels={"k": value})])
    term = NodeTerm((Requirement("k", Operator(operator), values),))
    mask = Selection(cluster.snapshot()).nodes_of_term(term)
    return bool(np.asarray(mask).any())


def by_the_queue(operator: str, values: tuple[str, ...], value: str) -> bool:
    term = NodeTerm((Requirement("k", Operator(operator), values),))
    return node_passes(PodClass(node_affinity=(term,)), node("n", labels={"k": value}))


def by_the_flavor(operator: str, values: tuple[str, ...], value: str) -> bool:
    return NodeExpression("k", operator, values).matches({"k": value})


def by_the_idle_proof(operator: str, values: tuple[str, ...], value: str) -> bool:
    expression = {"key": "k", "operator": operator, "values": list(values)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    pod = msgspec.convert({"spec": {"affinity": affinity}}, Pod)
    nodes = [msgspec.convert({"metadata": {"name": "n", "labels": {"k": value}}}, Node)]
    return bool(admitted_nodes(pod, nodes))


@pytest.mark.parametrize(
    "asked",
    [by_the_filter, by_the_queue, by_the_flavor, by_the_idle_proof],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize(
    ("operator", "values", "value", "holds"),
    [
        ("Gt", ("999",), "1000", True),
        ("Gt", ("999",), "+1000", True),
        ("Gt", ("999",), "1_000", False),
        ("Gt", ("999",), " 1000", False),
        ("Gt", ("999",), "１０００", False),
        ("Gt", ("999",), "9" * 30, False),
        ("Lt", ("1_0",), "1", False),
        ("Lt", ("999",), "-5", True),
        ("In", ("1000",), "1_000", False),
        ("NotIn", ("1000",), "1_000", True),
    ],
)
def test_every_plane_reads_a_label_as_kube_scheduler_does(
    asked: Asked, operator: str, values: tuple[str, ...], value: str, holds: bool
) -> None:
    assert asked(operator, values, value) is holds


def test_a_text_of_thousands_of_digits_is_no_number_and_no_error() -> None:
    assert not requirement_holds("Gt", ("1",), "9" * 10_000)


@pytest.mark.parametrize(
    ("operator", "value", "taint", "holds"),
    [
        ("Gt", "999", "1000", True),
        ("Gt", "999", "999", False),
        ("Gt", "999", "1_000", False),
        ("Gt", "999", "high", False),
        ("Gt", "low", "1000", False),
        ("Lt", "5", "-4", True),
        ("Lt", "5", "5", False),
        ("Lt", "5", "", False),
        ("Lt", "999", "1_0", False),
        ("Equal", "1000", "1_000", False),
        ("", "a", "a", True),
        ("Exists", "", "x", True),
        ("Unknown", "a", "a", False),
    ],
)
def test_every_plane_reads_a_toleration_in_the_same_way(
    operator: str, value: str, taint: str, holds: bool
) -> None:
    marked = Taint("k", taint, "NoSchedule")
    row = RowToleration("k", operator, value, "NoSchedule")
    assert covers(row, marked) is holds
    there = node("n", taints=[f"k={taint}:NoSchedule"])
    assert (verdicts(there, pod_row(tolerations=(row,))) == {"n": FITS}) is holds
    assert tolerated([marked], [row]) is holds
    assert Toleration("k", operator, value, "NoSchedule").tolerates(marked) is holds  # type: ignore[arg-type]
    toleration = {"key": "k", "operator": operator, "value": value, "effect": "NoSchedule"}
    pod = msgspec.convert({"spec": {"tolerations": [toleration]}}, Pod)
    kept = {"taints": [{"key": "k", "value": taint, "effect": "NoSchedule"}]}
    nodes = [msgspec.convert({"metadata": {"name": "n"}, "spec": kept}, Node)]
    assert bool(admitted_nodes(pod, nodes)) is holds
