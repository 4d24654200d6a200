"""Device selectors, read as Python: enough of CEL for the selectors of section 21.9.

The text is turned into a Python expression by replacing words, which suits expressions as people
write them and nothing else. An unknown name in a known domain is an error of the whole attempt.
"""

from __future__ import annotations

import re
from typing import Any

from tests.oracle.scheduling import objects
from tests.oracle.scheduling.objects import Object, name_of


class SelectorFailed(Exception):
    """A selector could not be evaluated on a device; the whole attempt is an error."""


class Named(dict[str, Any]):
    """A map whose entries can also be written as attributes."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise SelectorFailed(f"CEL runtime error: no such key: {name}")
        return self[name]


class Quantity:
    def __init__(self, text: str) -> None:
        self.value = objects.number(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def compareTo(self, other: Quantity) -> int:  # noqa: N802
        return (self.value > other.value) - (self.value < other.value)

    def isGreaterThan(self, other: Quantity) -> bool:  # noqa: N802
        return self.value > other.value

    def isLessThan(self, other: Quantity) -> bool:  # noqa: N802
        return self.value < other.value


class Text(str):
    def startsWith(self, other: str) -> bool:  # noqa: N802
        return self.startswith(other)

    def endsWith(self, other: str) -> bool:  # noqa: N802
        return self.endswith(other)

    def contains(self, other: str) -> bool:
        return other in self

    def matches(self, pattern: str) -> bool:
        return re.search(pattern, self) is not None

    def lowerAscii(self) -> Text:  # noqa: N802
        return Text(self.lower())


class Domains(dict[str, Named]):
    def __missing__(self, name: str) -> Named:
        return Named()


def attribute(value: Object) -> Any:
    ((kind, found),) = value.items()
    if kind == "string":
        return Text(found)
    if kind == "version":
        return tuple(int(part) for part in str(found).split("-")[0].split("."))
    return found


def qualified(device: Object, driver: str, part: str) -> dict[tuple[str, str], Any]:
    """(domain, name) to value; a name without a domain belongs to the driver's."""
    result = {}
    for name, value in (device.get(part) or {}).items():
        domain, _, short = name.rpartition("/")
        result[domain or driver, short] = value
    return result


def holds(expression: str, device: Object, driver: str) -> bool:
    attributes, capacity = Domains(), Domains()
    for (domain, name), value in qualified(device, driver, "attributes").items():
        attributes.setdefault(domain, Named())[name] = attribute(value)
    for (domain, name), value in qualified(device, driver, "capacity").items():
        capacity.setdefault(domain, Named())[name] = Quantity(value["value"])
    known = Named(
        driver=Text(driver),
        attributes=attributes,
        capacity=capacity,
        allowMultipleAllocations=bool(device.get("allowMultipleAllocations")),
    )
    python = expression.replace("&&", " and ").replace("||", " or ")
    python = re.sub(r"!(?!=)", " not ", python)
    python = re.sub(r"\btrue\b", "True", re.sub(r"\bfalse\b", "False", python))
    names = {
        "device": known,
        "quantity": Quantity,
        "semver": lambda text: tuple(int(part) for part in text.split(".")),
    }
    return bool(eval(python.strip(), {"__builtins__": {}}, names))


def class_and_request_hold(
    device: Object, driver: str, device_class: Object, request: Object, claim: str
) -> bool:
    """All selectors of the class, then all of the request."""
    sides = (
        (f"class {name_of(device_class)}", (device_class.get("spec") or {}).get("selectors") or ()),
        (f"claim {claim}", request.get("selectors") or ()),
    )
    for title, selectors in sides:
        for number, selector in enumerate(selectors):
            try:
                if not holds(selector["cel"]["expression"], device, driver):
                    return False
            except SelectorFailed as failed:
                where = f"selector #{number} on device {device['name']}"
                raise SelectorFailed(f"{title}: {where}: {failed}") from failed
    return True
