"""Layouts of the built-in messages: one declarative table read from `layouts/*.txt`.

Everything the server knows about the shape of a built-in kind comes from here: protobuf decoding,
strict field checks, OpenAPI documents, merge keys of patches and list keys of server-side apply.
The notation stands in `layouts/NOTATION.md`; the facts are those of the public API definitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files

__all__ = [
    "GROUPS",
    "Field",
    "Message",
    "Shape",
    "descriptions",
    "kind_lines",
    "layout_text",
    "message",
    "messages",
    "versions",
]

GROUPS: Mapping[str, str] = {
    "admissionregistration": "admissionregistration.k8s.io",
    "apiextensions": "apiextensions.k8s.io",
    "apps": "apps",
    "authentication": "authentication.k8s.io",
    "authorization": "authorization.k8s.io",
    "autoscaling": "autoscaling",
    "batch": "batch",
    "coordination": "coordination.k8s.io",
    "core": "",
    "discovery": "discovery.k8s.io",
    "events": "events.k8s.io",
    "lifecycle": "lifecycle.k8s.io",
    "policy": "policy",
    "rbac": "rbac.authorization.k8s.io",
    "resource": "resource.k8s.io",
    "scheduling": "scheduling.k8s.io",
    "storage": "storage.k8s.io",
}
"""API group of each package; `meta` belongs to no group."""


class Shape(Enum):
    """How often a field's type occurs in it."""

    ONE = "one"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    `type` is a scalar's name or the qualified name of a message (`core/v1.Container`);
    `inline`: its message's fields stand in JSON among those of the message that holds it.
    `merge_key`: key of strategic merge, empty for lists of scalars that merge as sets, None for
    lists that are replaced. `list_keys`: keys of a list map under server-side apply.
    `replaced`: patches replace the whole value. `optional`: absent and zero differ.
    `shown`: written even where it was absent, as its zero.
    """

    name: str
    number: int
    type: str
    shape: Shape
    required: bool
    inline: bool
    merge_key: str | None
    retain_keys: bool
    list_keys: tuple[str, ...]
    list_type: str
    enum: tuple[str, ...]
    default: str | None
    go_type: str
    optional: bool
    shown: bool
    replaced: bool

    @property
    def is_message(self) -> bool:
        return "." in self.type


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its own fields by number, and all fields that its JSON object may have."""

    package: str
    name: str
    atomic: bool
    numbered: Mapping[int, Field]
    json: Mapping[str, Field]

    @property
    def qualified(self) -> str:
        return f"{self.package}.{self.name}"


def message(qualified: str) -> Message:
    """Return the layout of, for example, `batch/v1.JobSpec`.

    Raises:
        KeyError: there is no such message.
    """
    package, _, name = qualified.partition(".")
    return _package(package)[name]


def kind_lines() -> Iterator[list[str]]:
    """Yield the columns of each line of `layouts/kinds.txt`."""
    for line in layout_text("kinds.txt").splitlines():
        if line and not line.startswith("#"):
            yield line.split()


@cache
def descriptions() -> Mapping[str, str]:
    """Return the text about messages and fields, by `package.Message[.field]`."""
    lines = layout_text("descriptions.txt").splitlines()
    pairs = (line.split(": ", 1) for line in lines if line and not line.startswith("#"))
    return {each: text for name, text in pairs for each in _in_each_version(name)}


def _in_each_version(name: str) -> Iterator[str]:
    """Yield a name in the versions of its package that have it, if it leaves the version open."""
    package, _, words = name.partition(".")
    group, _, version = package.partition("/")
    if version != "*":
        yield name
        return
    known, _, field = words.partition(".")
    found = False
    for one in versions(group):
        layout = _package(f"{group}/{one}").get(known)
        if layout is not None and (not field or field in layout.json):
            found = True
            yield f"{group}/{one}.{words}"
    if not found:
        raise ValueError(f"descriptions.txt: {name} is in no version of {group}")


def versions(group: str) -> list[str]:
    """Return the versions of a package's layouts, such as `v1` and `v1beta1` of `scheduling`."""
    names = (each.name for each in (files(__package__) / "layouts").iterdir())
    return sorted(
        name.split(".")[1] for name in names if name.startswith(f"{group}.") and name[-4:] == ".txt"
    )


def messages(package: str) -> Mapping[str, Message]:
    """Return the layouts of a package, such as `scheduling/v1beta1`, by name."""
    return _package(package)


def layout_text(name: str) -> str:
    """Return what stands in a file of `layouts`."""
    return (files(__package__) / "layouts" / name).read_text(encoding="utf-8")


@cache
def _package(package: str) -> Mapping[str, Message]:
    blocks: dict[str, tuple[bool, list[Field]]] = {}
    fields: list[Field] = []
    for line in layout_text(f"{package.replace('/', '.')}.txt").splitlines():
        if line.startswith("  "):
            fields.append(_field(package, line.split()))
        elif line:
            name, _, flag = line.partition(" ")
            fields = []
            blocks[name] = (flag == "atomic", fields)
    built: dict[str, Message] = {}
    for name in blocks:
        _build(package, name, blocks, built)
    return built


def _build(
    package: str,
    name: str,
    blocks: Mapping[str, tuple[bool, list[Field]]],
    built: dict[str, Message],
) -> Message:
    if name in built:
        return built[name]
    atomic, fields = blocks[name]
    json: dict[str, Field] = {}
    for field in fields:
        if field.inline:
            holder, _, inlined = field.type.partition(".")
            inner = (
                _build(package, inlined, blocks, built)
                if holder == package
                else _package(holder)[inlined]
            )
            json.update(inner.json)
        else:
            json[field.name] = field
    built[name] = Message(
        package, name, atomic, {field.number: field for field in fields if field.number}, json
    )
    return built[name]


_SCALARS = frozenset(
    {"string", "int32", "int64", "bool", "double", "bytes", "Time", "MicroTime", "Quantity"}
    | {"IntOrString", "RawExtension", "JSON", "FieldsV1", "Strings"}
    | {"JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray"}
)


def _field(package: str, words: list[str]) -> Field:
    name, number, kind, *markers = words
    shape = {"[": Shape.LIST, "{": Shape.MAP}.get(kind[0], Shape.ONE)
    optional = kind.endswith("?")
    kind = kind.strip("[]{}?")
    if kind not in _SCALARS:
        holder, _, inner = kind.rpartition(".")
        kind = f"{_holder(package, holder)}.{inner}"
    options = dict(marker.partition("=")[::2] for marker in markers)
    merge_key = options.get("merge")
    list_type = next((word for word in ("set", "atomic") if word in options), "")
    keys: tuple[str, ...] = ()
    if "keys" in options:
        keys = tuple(options["keys"].split(","))
    elif "keyed" in options and merge_key:
        keys = (merge_key,)
    return Field(
        name=name.strip("~!"),
        number=int(number),
        type=kind,
        shape=shape,
        required=name.endswith("!"),
        inline=name.startswith("~"),
        merge_key=merge_key,
        retain_keys="retain" in options,
        list_keys=keys,
        list_type="map" if keys else list_type,
        enum=tuple(options["enum"].split("|")) if "enum" in options else (),
        default=options.get("default"),
        go_type=options.get("go", ""),
        optional=optional,
        replaced="replace" in options,
        shown="shown" in options
        or (
            not (optional or "hidden" in options or shape is not Shape.ONE or name.startswith("~"))
            and (kind in ("Time", "MicroTime") or "." in kind)
        ),
    )


def _holder(package: str, name: str) -> str:
    """Return the package that `name.Message` means inside `package`."""
    if not name:
        return package
    if "/" in name:
        return name
    return f"{name}/v1"
