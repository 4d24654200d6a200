"""Fields of unvalidated documents: the types that the API gives them, and the refusal.

What decides about pods is read by the structs of `api`, and some of it, in this folder, as plain
mappings; both have to be able to read what is submitted. A refusal states where the document
stands, which object it is, the path of the field, what stands there and what is accepted.

Source: the core API's types of pods, templates and metadata; numbers are int32 there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from kubeworld.units.quantities import InvalidQuantity, parse_exact
from kubeworld.units.untrusted import INT32, shown
from reprieve.api import core, scheduling
from reprieve.units.errors import UsageError
from reprieve.whatif.snapshots.partial import Partial

__all__ = ["Count", "Field", "Int32", "Metadata", "Variable", "check_pod", "part"]

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=INT32[1])]
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=INT32[0], le=INT32[1])]
_Amounts: TypeAlias = dict[str, str | int | float]
_NUMBERS: Final = {
    Count: f"a whole number from 0 to {INT32[1]}",
    Int32: f"a whole number from {INT32[0]} to {INT32[1]}",
}
#: What messages of msgspec call a type, and people.
_WORDS: Final = {
    "object": "a mapping",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


class _Owner(Partial, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class Metadata(Partial, frozen=True):
    """Metadata of an object or a template, as its creator may write it."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[_Owner] | None = None


class Variable(Partial, frozen=True):
    """A variable of a container."""

    name: str
    value: str | None = None


class _Container(Partial, frozen=True):
    name: str = ""
    env: list[Variable] | None = None
    command: list[str] | None = None
    args: list[str] | None = None


class _Toleration(Partial, frozen=True):
    toleration_seconds: int | None = None


class _PodSpec(Partial, frozen=True):
    """What is read of a pod as plain mappings, beside the structs of `api`."""

    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    tolerations: list[_Toleration] | None = None
    restart_policy: str | None = None
    runtime_class_name: str | None = None
    priority: Int32 | None = None
    active_deadline_seconds: Count | None = None
    termination_grace_period_seconds: Count | None = None
    scheduler_name: str | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """Something in a document: `document` names that and its place, `path` leads there."""

    document: str
    path: str
    value: Any

    def below(self, name: str, value: Any) -> Field:
        """Return a field of this one."""
        return Field(self.document, f"{self.path}.{name}" if self.path else name, value)

    def item(self, number: int, value: Any) -> Field:
        """Return an item of this list."""
        return Field(self.document, f"{self.path}[{number}]", value)

    def refused(self, accepted: str) -> UsageError:
        """Return that the value is not accepted, and what is."""
        return UsageError(f"{self.document}: {self.path} is {_reported(self.value)}; {accepted}")

    def check(self, type: Any) -> None:
        """Return when the value has a type.

        Raises:
            UsageError: it has not, or a field in it has not that of the type's.
        """
        try:
            msgspec.convert(self.value, type)
        except msgspec.ValidationError as error:
            if type in _NUMBERS:
                raise self.refused(f"accepted: {_NUMBERS[type]}") from None
            message, _, rest = str(error).partition(" - at `$")
            path = (self.path + rest.rstrip("`")).lstrip(".")
            raise UsageError(f"{self.document}: {path} {_stated(message)}") from None

    def check_amounts(self) -> None:
        """Return when the values of this mapping are quantities of at least nothing.

        Raises:
            UsageError: one is not.
        """
        self.check(_Amounts | None)
        for name, value in (self.value or {}).items():
            try:
                readable = parse_exact(value) >= 0
            except InvalidQuantity:
                readable = False
            if not readable:
                raise self.below(name, value).refused("accepted: a quantity, as 500m or 2Gi")


def part(field: Field, path: str) -> Iterator[Field]:
    """Yield what stands at a path of names, where `*` is each item of a list; not what is nothing.

    Raises:
        UsageError: on the way stands something else than a mapping or, for `*`, a list.
    """
    if field.value is None:
        return
    if not path:
        yield field
        return
    head, _, rest = path.partition(".")
    if head == "*":
        if not isinstance(field.value, list):
            raise field.refused("accepted: a list")
        for number, item in enumerate(field.value):
            if item is None:
                raise field.item(number, item).refused("accepted: a mapping")
            yield from part(field.item(number, item), rest)
    elif not isinstance(field.value, Mapping):
        raise field.refused("accepted: a mapping")
    else:
        yield from part(field.below(head, field.value.get(head)), rest)


def check_pod(pod: Field, spec: str = "spec") -> None:
    """Return when a pod or a pod template, or what is given of one, can be read.

    `spec` is the path of its spec in it; its metadata is read where that is not it itself.

    Raises:
        UsageError: a field of it cannot.
    """
    for metadata in part(pod, "metadata") if spec else ():
        metadata.check(Metadata)
    for found in part(pod, spec):
        for type in (scheduling.PodSpec, core.PodSpec, _PodSpec):
            found.check(type)
        for amounts in _amounts_of(found):
            amounts.check_amounts()


def _amounts_of(spec: Field) -> Iterable[Field]:
    yield from part(spec, "overhead")
    for path in ("", "containers.*.", "initContainers.*."):
        for name in ("requests", "limits"):
            yield from part(spec, f"{path}resources.{name}")


def _reported(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return shown(value) if isinstance(value, str) else shown(value).strip("'")


def _stated(message: str) -> str:
    """Return a message of msgspec's in this project's words."""
    accepted, _, got = message.removeprefix("Expected ").partition(", got ")
    if got:
        words = [_WORDS.get(each, each) for each in accepted.strip("`").split(" | ")]
        found = _WORDS.get(got.strip("`"), got.strip("`"))
        return f"is {found}; accepted: {' or '.join(words)}"
    if message.startswith("Expected "):
        return f"is out of range; accepted: {accepted.replace('`int`', 'a whole number')}"
    field = message.removeprefix("Object missing required field ").strip("`")
    return f"lacks {field}; accepted: a mapping that has it" if field != message else message
