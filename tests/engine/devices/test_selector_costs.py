"""No selector takes long: what an evaluation costs, and what is ended or refused before it does."""

from __future__ import annotations

import inspect
import random
import re
import sys
from collections import Counter
from typing import Any

import pytest

from reprieve.engine.cluster.devices import Reach
from reprieve.engine.placement.filters.dynamic.device_costs import (
    MAX_COST,
    Budget,
    CostExceeded,
    SelectorError,
)
from reprieve.engine.placement.filters.dynamic.device_inventory import Selected, SelectionFailed
from reprieve.engine.placement.filters.dynamic.device_patterns import pattern_of
from reprieve.engine.placement.filters.dynamic.device_pools import Pool, PoolDevice
from reprieve.engine.placement.filters.dynamic.device_selectors import (
    UnsupportedSelector,
    compile_selector,
)
from reprieve.engine.placement.filters.dynamic.device_values import DeviceFacts, facts_of
from tests.engine.builders import node, pod, snapshot_of
from tests.engine.devices.drivers import (
    DRIVER,
    asks,
    claims,
    device,
    device_class,
    gpus,
    published,
    resource_claim,
)
from tests.engine.volumes.storage import refusals, simulation_of

FACTS = facts_of(
    "dra.example.com", device("d", uuid="a" * 64, ok=True, count=1, fish="fish", empty="")
)
UUID = "device.attributes['dra.example.com'].uuid"


def cost_of(expression: str) -> int:
    budget = Budget()
    compile_selector(expression)(FACTS, budget)
    return MAX_COST - budget.left


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("true", 0),
        ("true && (false || true) && (true ? true : false)", 0),
        ("device.driver == ''", 2),
        ("device.driver == 'dra.example.com'", 4),
        ("'dra.example.com' in device.attributes", 3),
        ("device.attributes['dra.example.com'].ok", 4),
        ('device.attributes["dra.example.com"]["ok"]', 4),
        ("cel.bind(dra, device.attributes['dra.example.com'], dra.ok)", 15),
        ("device.attributes['dra.example.com'].count > 0", 5),
        ("device.attributes['dra.example.com'].fish == 'fish'", 5),
        (f"{UUID}.startsWith('a')", 4 + 7),
        (f"{UUID}.contains('{'a' * 20}')", 4 + 7 * 2),
        (f"{UUID}.matches('^a+$')", 4 + 7 * 1),
        (f"{UUID}.matches('{'a' * 40}')", 4 + 7 * 10),
        (f"{UUID}.lowerAscii() == ''", 4 + 7),
        ("1 in [2, 3, 1]", 10 + 3),
        ("quantity('1Gi') == quantity('1Gi')", 1 + 1 + 1),
    ],
)
def test_an_expression_costs_what_the_api_server_counts(expression: str, cost: int) -> None:
    assert cost_of(expression) == cost


@pytest.mark.parametrize(
    "pattern",
    [
        "(.|.)" * 36 + "!",
        "(.|.|.)" * 80 + "!",
        "(a+)+!",
        "((a*)*)*!",
        "(a|a)*!",
        "(a|aa)+!",
        "(a?){60}a{60}!",
        "(x+x+)+y",
        "a*" * 60 + "!",
        "(.*)*(.*)*!",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
    ],
)
def test_no_pattern_that_makes_others_backtrack_costs_more_than_its_length(pattern: str) -> None:
    # Backtracking takes from 2^30 steps on for each of these.
    assert cost_of(f"{UUID}.matches('{pattern}')") <= 4 + 7 * len(pattern)


def test_a_pattern_that_says_more_than_its_length_costs_what_it_says() -> None:
    text = "a" * 1000
    assert cost_of(f"'{text}'.matches('{'x' * 40}')") == 101 * 10
    assert cost_of(f"'{text}'.matches('.{{1000}}x')") > 101 * 400
    matches = " || ".join(f"t.matches('.{{1000}}.{{900}}{letter}')" for letter in "bcdefghijklm")
    with pytest.raises(CostExceeded, match="operation cancelled: actual cost limit exceeded"):
        cost_of(f"cel.bind(t, '{text}', {matches})")


@pytest.mark.parametrize("joined", ["{} == {}", "{} != {}", "{} in [{}]", "true || {} == {} || x"])
def test_lists_that_double_are_not_compared_to_the_end(joined: str) -> None:
    expression = joined.format("a21", "b21").replace("x", "false")
    if joined.startswith("true"):
        assert compile_selector(_doubled(expression))(FACTS)
        return
    with pytest.raises(CostExceeded):
        compile_selector(_doubled(expression))(FACTS)


def _doubled(body: str) -> str:
    for name in "ba":
        for place in range(21, 0, -1):
            body = f"cel.bind({name}{place},[{name}{place - 1},{name}{place - 1}],{body})"
        body = f"cel.bind({name}0,[1],{body})"
    return body


@pytest.mark.parametrize("expression", ["{} || true", "false && {}", "{} ? true : true", "!({})"])
def test_nothing_around_it_makes_a_value_of_what_was_too_costly(expression: str) -> None:
    costly = f"cel.bind(t, '{'a' * 4000}', t.contains(t) && " + " && ".join(["t.contains(t)"] * 10)
    text = expression.format(f"{costly})")
    if expression.startswith("false"):
        assert not compile_selector(text)(FACTS)
        return
    with pytest.raises(CostExceeded):
        compile_selector(text)(FACTS)


@pytest.mark.parametrize(
    "expression",
    [
        "[" * 5000,
        "(" * 5000,
        "!" * 10_000,
        "'''" * 3000,
        "'" * 10_239,
        '"""' * 3001 + "'" * 4,
        "r'''" + "\\" * 10_000,
        "'" + "\\a" * 5000,
        "a." * 5000,
        "device.attributes['a']" * 400,
        "has(" * 2000,
        "cel.bind(a," * 900,
        "cel.bind(a,1," * 700 + "true" + ")" * 700,
        "1" * 10_240,
        "0x" + "f" * 10_000,
        "1 ? " * 2000,
        "true ? " * 1400 + "true",
        "-" * 10_000,
        "//" * 5000,
        "\u00a0" * 3000,
        "has(device[has(device[" * 400,
        "has(" * 300 + "x" + ".a)" * 300,
        "has(" * 1400 + "x" + ".a)" * 1400,
        "x[0].a" * 1000,
        "device.attributes[" + "[0" + ".a" * 58 + "]" * 0,
        "device.attributes['a']" + ".a" * 59 + " == 1 || " + "true || " * 1000 + "true",
        "".join("device.attributes" + ".a" * 55 + "[" for _ in range(55)) + "'a'" + "]" * 55,
        "[" * 59 + "1" + "]" * 59 + " == 1",
    ],
)
def test_hostile_text_is_answered_or_refused_and_nothing_else(expression: str) -> None:
    assert len(expression) <= 10_240
    # Room for the rest of the program above what the recursion may take.
    limit = sys.getrecursionlimit()
    depth = len(inspect.stack())
    sys.setrecursionlimit(depth + 700)
    try:
        compile_selector(expression)(FACTS)
    except (UnsupportedSelector, ValueError) as error:
        assert not isinstance(error, RecursionError)
        assert type(error).__module__.startswith("reprieve.")
        assert len(str(error)) < 200
    finally:
        sys.setrecursionlimit(limit)


def _pattern(numbers: random.Random, depth: int) -> str:
    """A pattern whose meaning is the same in Python, and short enough for its backtracking."""
    match numbers.randrange(8 if depth else 4):
        case 0 | 1:
            return numbers.choice("abc")
        case 2:
            return numbers.choice((".", "[ab]", "[^a]", "[a-c]", r"\.", r"\d", r"\w", r"\b"))
        case 3:
            return numbers.choice(("^a", "b$", r"\Ac", ""))
        case 4:
            return f"(?:{_pattern(numbers, depth - 1)}){numbers.choice(('*', '+', '?', '{1,2}'))}"
        case 5:
            return f"({_pattern(numbers, depth - 1)}|{_pattern(numbers, depth - 1)})"
    return _pattern(numbers, depth - 1) + _pattern(numbers, depth - 1)


def test_small_patterns_mean_what_they_mean_in_python() -> None:
    numbers = random.Random(7)
    seen: Counter[bool] = Counter()
    for _ in range(3000):
        pattern = _pattern(numbers, 3)
        text = "".join(numbers.choices("abc.1", k=numbers.randrange(6)))
        expected = re.search(pattern, text, re.ASCII) is not None
        assert pattern_of(pattern).found_in(text, Budget()) == expected, (pattern, text)
        seen[expected] += 1
    assert min(seen[True], seen[False]) > 500, seen


def test_a_selector_that_is_too_costly_is_said_as_the_scheduler_says_it() -> None:
    expression = f"cel.bind(t, '{'a' * 4000}', " + " && ".join(["t.contains(t)"] * 10) + ")"
    simulation = simulation_of(
        snapshot_of(
            node("n1"),
            node("n2"),
            pod(claims=claims("c")),
            device_class(),
            resource_claim("c", asks("r", 1, expression)),
            published("n1", gpus(2)),
            published("n2", gpus(2)),
        )
    )
    text = (
        "claim default/c: selector #0 on device gpu.example.com/n1/gpu-0:"
        " CEL runtime error: operation cancelled: actual cost limit exceeded"
    )
    assert refusals(simulation) == [f"DEVICES {text}"] * 2


def test_what_devices_cost_is_bounded_where_selectors_have_no_value_for_them() -> None:
    asked: list[int] = []

    def evaluate(device: DeviceFacts, budget: Budget | None = None) -> bool:
        assert budget is not None
        asked.append(budget.left)
        budget.spend(900_000)
        raise SelectorError("no such key: nope")

    selected = Selected([(0, evaluate, None)])
    pool = Pool("gpu.example.com", "n1")
    devices = [
        PoolDevice(("gpu.example.com", "n1", f"gpu-{n}"), device(f"gpu-{n}"), pool, Reach())
        for n in range(40)
    ]
    said = []
    for each in [*devices, *devices]:
        with pytest.raises(SelectionFailed) as failed:
            selected.holds(each)
        said.append(str(failed.value))
    # Ten million units for all; the twelfth found too little left, and ended it for all others.
    assert len(asked) == 12
    assert asked[-2:] == [1_000_000, 102_400]
    assert said[:2] == [
        f"selector #0 on device gpu.example.com/n1/gpu-{n}: CEL runtime error: no such key: nope"
        for n in (0, 1)
    ]
    assert said[11].endswith("actual cost limit exceeded")
    assert said[40:51] == said[:11]


def test_a_selector_without_a_value_for_a_device_is_not_asked_about_it_again() -> None:
    asked: list[str] = []

    def evaluate(device: DeviceFacts, budget: Budget | None = None) -> bool:
        asked.append(device.driver)
        raise SelectorError("no such key: nope")

    selected = Selected([(0, evaluate, "gpus")])
    pool = Pool("gpu.example.com", "n1")
    one = PoolDevice(("gpu.example.com", "n1", "gpu-0"), device("gpu-0"), pool, Reach())
    for _ in range(2):
        with pytest.raises(SelectionFailed, match="class gpus: selector #0") as failed:
            selected.holds(one)
        assert not failed.value.of_claim
    assert asked == ["gpu.example.com"]


@pytest.mark.parametrize(
    ("cost", "asked_about"), [(200, ["a", "b"]), (201, ["a", "a", "a", "b"])], ids=str
)
def test_what_reads_the_driver_alone_is_asked_about_one_device_of_it_unless_it_is_costly(
    cost: int, asked_about: list[str]
) -> None:
    asked: list[str] = []

    def evaluate(device: DeviceFacts, budget: Budget | None = None) -> bool:
        assert budget is not None
        budget.spend(cost)
        asked.append(device.driver)
        return device.driver == "a"

    selected = Selected([(0, evaluate, None)], by_driver=True)
    devices = [
        PoolDevice((driver, f"n{n}", "gpu-0"), device("gpu-0"), Pool(driver, f"n{n}"), Reach())
        for n, driver in enumerate("aaab")
    ]
    assert [selected.holds(each) for each in [*devices, *devices]] == [True, True, True, False] * 2
    assert asked == asked_about
    assert [selected.known[each.id] for each in devices] == [True, True, True, False]


@pytest.mark.parametrize(
    ("selector", "asked"),
    [
        (f"device.driver == '{DRIVER}'", 1),
        (f"!has(device.attributes['{DRIVER}'].kind)", 3),
        ("!device.allowMultipleAllocations", 3),
        (f"!('memory' in device.capacity['{DRIVER}'])", 3),
    ],
)
def test_what_reads_more_than_the_driver_is_asked_about_each_device(
    selector: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    ask = Selected._ask

    def counted(self: Selected, one: PoolDevice) -> bool:
        nonlocal count
        count += 1
        return ask(self, one)

    monkeypatch.setattr(Selected, "_ask", counted)
    rows: list[Any] = [
        device_class("gpu", selector),
        resource_claim("c", asks()),
        pod(claims=claims("c")),
    ]
    rows += [row for n in range(3) for row in (node(f"n{n}"), published(f"n{n}", gpus(1)))]
    assert refusals(simulation_of(snapshot_of(*rows))) == [""] * 3
    assert count == asked
