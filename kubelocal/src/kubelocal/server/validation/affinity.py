"""Where pods may run: affinity, tolerations and topology spread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.metadata import qualified_name_problems, subdomain_problem
from kubelocal.server.validation.selectors import label_selector

__all__ = ["check_affinity", "check_spread", "check_taint_effect", "check_tolerations"]

Object = Mapping[str, Any]

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_POLICIES: Final = ("Honor", "Ignore")
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def check_affinity(affinity: Object, field: str) -> Iterator[Cause]:
    """Check node, pod and anti-affinity."""
    nodes = affinity.get("nodeAffinity") or {}
    needed = nodes.get("requiredDuringSchedulingIgnoredDuringExecution")
    here = f"{field}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    if needed is not None:
        terms = needed.get("nodeSelectorTerms") or ()
        if not terms:
            yield causes.required(
                f"{here}.nodeSelectorTerms", "must have at least one node selector term"
            )
        for index, term in enumerate(terms):
            yield from _term(term, f"{here}.nodeSelectorTerms[{index}]")
    here = f"{field}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    for index, each in enumerate(
        nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    ):
        yield from _weight(each, f"{here}[{index}]")
        yield from _term(each.get("preference") or {}, f"{here}[{index}].preference")
    for word in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(affinity.get(word) or {}, f"{field}.{word}")


def _pod_affinity(affinity: Object, field: str) -> Iterator[Cause]:
    here = f"{field}.requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(
        affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    ):
        yield from _pod_term(term, f"{here}[{index}]")
    here = f"{field}.preferredDuringSchedulingIgnoredDuringExecution"
    for index, each in enumerate(
        affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    ):
        yield from _weight(each, f"{here}[{index}]")
        yield from _pod_term(each.get("podAffinityTerm") or {}, f"{here}[{index}].podAffinityTerm")


def _pod_term(term: Object, field: str) -> Iterator[Cause]:
    yield from label_selector(term.get("labelSelector") or {}, f"{field}.labelSelector")
    for word in ("matchLabelKeys", "mismatchLabelKeys"):
        yield from _label_keys(term, word, field)
    key = term.get("topologyKey", "")
    if not key:
        yield causes.required(f"{field}.topologyKey", "can not be empty")
    else:
        for problem in qualified_name_problems(key):
            yield causes.bad(f"{field}.topologyKey", key, problem)


def _label_keys(term: Object, word: str, field: str) -> Iterator[Cause]:
    keys, here = term.get(word) or (), f"{field}.{word}"
    if keys and term.get("labelSelector") is None:
        yield causes.forbidden(here, "must not be specified when labelSelector is not set")
        return
    for index, key in enumerate(keys):
        for problem in qualified_name_problems(key):
            yield causes.bad(f"{here}[{index}]", key, problem)


def _weight(each: Object, field: str) -> Iterator[Cause]:
    weight = each.get("weight", 0)
    if not 1 <= weight <= 100:
        yield causes.bad(f"{field}.weight", weight, "must be in the range 1-100")


def _term(term: Object, field: str) -> Iterator[Cause]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        here = f"{field}.matchExpressions[{index}]"
        operator, values = expression.get("operator"), expression.get("values") or ()
        if operator in ("In", "NotIn") and not values:
            yield causes.required(
                f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'"
            )
        elif operator in ("Exists", "DoesNotExist") and values:
            yield causes.forbidden(
                f"{here}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
        elif operator in ("Gt", "Lt") and len(values) != 1:
            yield causes.required(
                f"{here}.values",
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            )
        elif operator not in _OPERATORS:
            yield causes.bad(f"{here}.operator", operator or "", "not a valid selector operator")
        for problem in qualified_name_problems(expression.get("key", "")):
            yield causes.bad(f"{here}.key", expression.get("key", ""), problem)
    for index, expression in enumerate(term.get("matchFields") or ()):
        yield from _field_expression(expression, f"{field}.matchFields[{index}]")


def _field_expression(expression: Object, field: str) -> Iterator[Cause]:
    """Check a requirement on a node's own field, of which there is one: its name."""
    operator, values = expression.get("operator") or "", expression.get("values") or ()
    key = expression.get("key") or ""
    if operator not in ("In", "NotIn"):
        yield causes.bad(f"{field}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        yield causes.required(
            f"{field}.values",
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        )
    if key != "metadata.name":
        yield causes.bad(f"{field}.key", key, "not a valid field selector key")
        return
    for index, value in enumerate(values):
        if (problem := subdomain_problem(value)) is not None:
            yield causes.bad(f"{field}.values[{index}]", value, problem)


def check_tolerations(tolerations: Sequence[Object], field: str) -> Iterator[Cause]:
    """Check keys, operators and effects of tolerations."""
    for index, toleration in enumerate(tolerations):
        here = f"{field}[{index}]"
        key, value = toleration.get("key") or "", toleration.get("value") or ""
        operator, effect = toleration.get("operator") or "", toleration.get("effect") or ""
        if key:
            for problem in qualified_name_problems(key):
                yield causes.bad(f"{here}.key", key, problem)
        if not key and operator != "Exists":
            yield causes.bad(
                f"{here}.operator",
                operator,
                'operator must be Exists when `key` is empty, which means "match all values and '
                'all keys"',
            )
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield causes.bad(
                f"{here}.effect",
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            )
        if operator == "Exists" and value:
            yield causes.bad(
                f"{here}.operator", value, "value must be empty when `operator` is 'Exists'"
            )
        elif operator not in ("", "Equal", "Exists", "Lt", "Gt"):
            yield causes.unsupported(f"{here}.operator", operator, ("Equal", "Exists"))
        if effect:
            yield from check_taint_effect(effect, f"{here}.effect")


def check_taint_effect(effect: str, field: str) -> Iterator[Cause]:
    """Check the effect of a taint or toleration."""
    if effect not in _EFFECTS:
        yield causes.unsupported(field, effect, _EFFECTS)


def check_spread(constraints: Sequence[Object], field: str) -> Iterator[Cause]:
    """Check topology spread constraints."""
    for index, constraint in enumerate(constraints):
        here = f"{field}[{index}]"
        skew = constraint.get("maxSkew", 0)
        if skew <= 0:
            yield causes.bad(f"{here}.maxSkew", skew, "must be greater than zero")
        key = constraint.get("topologyKey", "")
        if not key:
            yield causes.required(f"{here}.topologyKey", "can not be empty")
        answer = constraint.get("whenUnsatisfiable", "")
        if answer not in ("DoNotSchedule", "ScheduleAnyway"):
            yield causes.unsupported(
                f"{here}.whenUnsatisfiable", answer, ("DoNotSchedule", "ScheduleAnyway")
            )
        least = constraint.get("minDomains")
        if least is not None and least <= 0:
            yield causes.bad(f"{here}.minDomains", least, "must be greater than zero")
        if least is not None and answer != "DoNotSchedule":
            text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {answer}"
            yield causes.bad(f"{here}.minDomains", least, text)
        for word in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = constraint.get(word)
            if policy is not None and policy not in _POLICIES:
                yield causes.unsupported(f"{here}.{word}", policy, _POLICIES)
        yield from _label_keys(constraint, "matchLabelKeys", here)
        if any(
            (c.get("topologyKey"), c.get("whenUnsatisfiable")) == (key, answer)
            for c in constraints[index + 1 :]
        ):
            shown = f"{{{key}, {answer}}}"
            yield causes.duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", shown)
        yield from label_selector(constraint.get("labelSelector") or {}, f"{here}.labelSelector")
