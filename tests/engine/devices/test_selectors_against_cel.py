"""Random expressions of the subset against a full implementation of CEL.

Quantities and versions are Kubernetes' own additions and are not part of it; `device` is given as a
map, in which unknown domains are written out as empty.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_strings

from reprieve.engine.placement.filters.dynamic.device_selectors import compile_selector
from reprieve.engine.placement.filters.dynamic.device_values import SelectorError, facts_of
from tests.engine.devices.drivers import device

CASES = 1_500
DOMAIN = "gpu.example.com"
ATTRIBUTES: dict[str, Any] = {
    "type": "gpu",
    "model": "NVIDIA A100",
    "index": 3,
    "ready": True,
    "other": 0,
}

PATTERNS = ("a1", "g", "nv.*0", "", "(g|.)+u$", "^(?:nvidia|a100| )+$", "[^a-f]{3,}", "((a*)*)*1")

FACTS = facts_of(DOMAIN, device("d", **ATTRIBUTES))
DEVICE = {
    "driver": DOMAIN,
    "allowMultipleAllocations": False,
    "attributes": {DOMAIN: ATTRIBUTES, "none": {}},
}


def _value(numbers: random.Random) -> str:
    name = numbers.choice((*ATTRIBUTES, "missing"))
    return numbers.choice(
        (
            f"device.attributes['{DOMAIN}'].{name}",
            f"device.attributes['{DOMAIN}'][\"{name}\"]",
            "device.attributes['none'].x" if numbers.random() < 0.3 else "device.driver",
            numbers.choice(("1", "3", "-2", "0x3")),
            numbers.choice(("'gpu'", '"A1"', "''", "'NVIDIA A100'")),
            "true",
            "[1, 'gpu', true][1]",
        )
    )


def _condition(numbers: random.Random, depth: int) -> str:
    kind = numbers.randrange(11 if depth else 6)
    text = _value(numbers)
    match kind:
        case 0 | 1:
            return f"{text} {numbers.choice(('==', '!='))} {_value(numbers)}"
        case 2:
            return f"{text} {numbers.choice(('<', '<=', '>', '>='))} {_value(numbers)}"
        case 3:
            return f"has(device.attributes['{DOMAIN}'].{numbers.choice(('type', 'missing'))})"
        case 4:
            method = numbers.choice(("startsWith", "endsWith", "contains", "matches"))
            return f"{text}.lowerAscii().{method}('{numbers.choice(PATTERNS)}')"
        case 5:
            return f"{text} in [{_value(numbers)}, {_value(numbers)}]"
        case 6:
            return f"!({_condition(numbers, depth - 1)})"
        case 7:
            return "(" + " && ".join(_conditions(numbers, depth - 1)) + ")"
        case 8:
            return "(" + " || ".join(_conditions(numbers, depth - 1)) + ")"
        case 9:
            inner = _condition(numbers, depth - 1)
            return f"cel.bind(v, {text}, ({inner}) || v == {_value(numbers)})"
    parts = _conditions(numbers, depth - 1)
    return f"(({parts[0]}) ? ({parts[1]}) : ({parts[2]}))"


def _conditions(numbers: random.Random, depth: int) -> list[str]:
    return [_condition(numbers, depth) for _ in range(3)]


def _ours(expression: str) -> bool | None:
    try:
        return compile_selector(expression)(FACTS)
    except SelectorError:
        return None


def test_random_expressions_mean_what_cel_says() -> None:
    environment = cel.NewEnv(
        variables={"device": cel.Type.DYN},
        extensions=[ext_strings.ExtStrings(), ext_bindings.ExtBindings()],
    )
    numbers = random.Random(9)
    seen: Counter[object] = Counter()
    for _ in range(CASES):
        expression = _condition(numbers, 2)
        try:
            compiled = environment.compile(expression)
        except RuntimeError:
            seen["refused by its types"] += 1
            continue
        result = compiled.eval(data={"device": DEVICE})
        expected = None if result.type() == cel.Type.ERROR else result.value()
        assert _ours(expression) == expected, expression
        seen[expected] += 1
    assert min(seen[True], seen[False], seen[None]) > 150, seen
