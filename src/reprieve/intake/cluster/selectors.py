"""Label selectors and node selector terms into requirements.

A label selector that the API machinery would refuse selects nothing; a node selector term that it
would refuse is kept as unreadable. Source: specification 21.3, 21.6 and 21.7; the API's syntax of
label keys and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubeworld.units.names import DNS_SUBDOMAIN, LABEL
from kubeworld.units.untrusted import INT64, integer_or_none
from reprieve.api.core import NodeSelectorRequirement, NodeSelectorTerm
from reprieve.api.scheduling import LabelSelector, LabelSelectorRequirement
from reprieve.engine.cluster.rows import Labels, NodeTerm, Operator, Requirement, Selector

__all__ = ["equal_labels", "label_selector", "labels_of", "node_term", "node_terms"]

_OPERATORS: Final = {operator.value: operator for operator in Operator}
_LABEL_OPERATORS: Final = frozenset(
    (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
)
_NODE_NAME: Final = "metadata.name"


def labels_of(labels: Mapping[str, str] | None) -> Labels:
    """Return labels as rows have them, sorted by key."""
    return tuple(sorted(labels.items())) if labels else ()


def equal_labels(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    """Return the requirements that each of these labels stands for."""
    return tuple(Requirement(key, Operator.IN, (value,)) for key, value in sorted(labels.items()))


def label_selector(selector: LabelSelector | None, more: Iterable[Requirement] = ()) -> Selector:
    """Return the requirements, `more` among them; None when absent or not readable."""
    if selector is None:
        return None
    found = [*equal_labels(selector.match_labels or {}), *more]
    for expression in selector.match_expressions or ():
        requirement = _requirement(expression)
        if requirement is None or requirement.operator not in _LABEL_OPERATORS:
            return None
        found.append(requirement)
    if not all(_is_label(each) for each in found):
        return None
    return _sorted(found)


def node_terms(terms: Sequence[NodeSelectorTerm] | None) -> tuple[NodeTerm, ...]:
    """Return terms of which one has to match."""
    return tuple(node_term(term) for term in terms or ())


def node_term(term: NodeSelectorTerm) -> NodeTerm:
    """Return one term of a node selector."""
    expressions = [_requirement(each) for each in term.match_expressions or ()]
    fields = [_requirement(each) for each in term.match_fields or ()]
    read = [each for each in expressions if each is not None and _is_label(each)]
    named = [each for each in fields if each is not None and _is_node_name(each)]
    if len(read) < len(expressions) or len(named) < len(fields):
        return NodeTerm(unreadable=True)
    return NodeTerm(_sorted(read), _sorted(named))


def _requirement(
    expression: LabelSelectorRequirement | NodeSelectorRequirement,
) -> Requirement | None:
    operator = _OPERATORS.get(expression.operator)
    values = tuple(sorted(set(expression.values or ())))
    if operator is None:
        return None
    if operator in (Operator.IN, Operator.NOT_IN):
        good = bool(values)
    elif operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        good = not values
    else:
        good = len(values) == 1 and integer_or_none(values[0], *INT64) is not None
    return Requirement(expression.key, operator, values) if good else None


def _is_label(requirement: Requirement) -> bool:
    prefix, slash, name = requirement.key.rpartition("/")
    if slash and DNS_SUBDOMAIN.fullmatch(prefix) is None:
        return False
    return LABEL.fullmatch(name) is not None and all(
        not value or LABEL.fullmatch(value) is not None or requirement.operator in _COMPARING
        for value in requirement.values
    )


_COMPARING: Final = frozenset((Operator.GT, Operator.LT))  # whose value may have a sign


def _is_node_name(requirement: Requirement) -> bool:
    return (
        requirement.key == _NODE_NAME
        and requirement.operator in (Operator.IN, Operator.NOT_IN)
        and len(requirement.values) == 1
    )


def _sorted(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    unique = dict.fromkeys(requirements)
    return tuple(sorted(unique, key=lambda each: (each.key, each.operator, each.values)))
