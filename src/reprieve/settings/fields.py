"""Reading a configuration document field by field, so that each refusal names its path.

Every function accepts the value and the path that the user knows it by, and raises `UsageError`
with the path, the value and what is accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

import yaml

from kubeworld.units.durations import LONGEST, DurationTooLong, InvalidDuration, parse_duration
from reprieve.units.bounded_yaml import BoundedLoader
from reprieve.units.errors import UsageError

__all__ = [
    "boolean",
    "choice",
    "duration",
    "entries",
    "integer",
    "mapping",
    "read_yaml",
    "refuse",
    "section_of",
    "text",
    "texts",
]


class _Loader(BoundedLoader):
    """Safe YAML in which a key may stand once only."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping; a key given twice is refused."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(content: str, where: str) -> object:
    """Return the only document of a YAML (or JSON) text; None when it is empty."""
    try:
        return yaml.load(content, Loader=_Loader)
    except RecursionError:
        raise UsageError(f"{where}: not YAML: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # A value that is not of the type that it looks like or claims, such as the date 2026-13-45.
        raise UsageError(f"{where}: not YAML: {' '.join(str(error).split())}") from None


def section_of(content: str, where: str, name: str, keys: Collection[str]) -> Mapping[str, Any]:
    """Return a section of a `--config` file; empty where it has none.

    Raises:
        UsageError: not YAML, or the section is not a mapping of known keys.
    """
    document = read_yaml(content, where)
    section = document.get(name) if isinstance(document, Mapping) else None
    return mapping(section, f"{where}: {name}", keys)


def refuse(where: str, value: object, accepted: str) -> NoReturn:
    """Raise the refusal of a value."""
    raise UsageError(f"{where}: {value!r}; accepted: {accepted}")


def mapping(value: object, where: str, keys: Collection[str]) -> Mapping[str, Any]:
    """Return a mapping without unknown keys; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        refuse(where, value, f"a mapping with {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise UsageError(f"{where}: unknown key {key!r}; accepted: {', '.join(keys)}")
    return value


def entries(value: object, where: str) -> list[tuple[Any, str]]:
    """Return the entries of a list, each with its path; None is an empty list."""
    if value is None:
        return []
    if not isinstance(value, list):
        refuse(where, value, "a list")
    return [(entry, f"{where}[{index}]") for index, entry in enumerate(value)]


def integer(value: object, where: str, least: int, most: int) -> int:
    """Return an integer within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        refuse(where, value, f"an integer from {least} to {most}")
    return value


def boolean(value: object, where: str) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        refuse(where, value, "true or false")
    return value


def text(value: object, where: str, accepted: str = "text that is not empty") -> str:
    """Return text that is not empty."""
    if not isinstance(value, str) or not value:
        refuse(where, value, accepted)
    return value


def texts(value: object, where: str) -> tuple[str, ...]:
    """Return a list of texts that are not empty."""
    return tuple(text(entry, path) for entry, path in entries(value, where))


def choice(value: object, where: str, accepted: Collection[str]) -> str:
    """Return one of these words."""
    if not isinstance(value, str) or value not in accepted:
        refuse(where, value, ", ".join(accepted))
    return value


def duration(value: object, where: str) -> int:
    """Return the nanoseconds of a Go duration that is not negative."""
    try:
        found = parse_duration(value) if isinstance(value, str) else -1
    except DurationTooLong:
        refuse(where, value, f"a Go duration of {LONGEST} at most")
    except InvalidDuration:
        found = -1
    if found < 0:
        refuse(where, value, "a Go duration such as 30s or 5m")
    return found
