"""A YAML document whose values know their line, so that each refusal names file, line and path.

What values may be is checked by `settings.fields`, to which the place is handed as a text such as
`study.yaml:12: policies.fair.quota`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from reprieve.settings.fields import mapping, read_yaml, refuse
from reprieve.units.bounded_yaml import BoundedLoader
from reprieve.units.errors import UsageError

__all__ = ["Document", "Part", "read_document"]

Path_ = tuple[str | int, ...]


class Document:
    """The lines of the values of one file."""

    def __init__(self, name: str, lines: Mapping[Path_, int], what: str) -> None:
        self.name = name
        self.what = what
        self._lines = lines

    def line(self, path: Path_) -> int:
        """Return the line of a key, of what it stands in where it is not there."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)


class Part:
    """A mapping of the document, whose keys were checked; `take` returns values with their place.

    Raises:
        UsageError: it is no mapping, or has a key that is not accepted.
    """

    def __init__(
        self, document: Document, path: Path_, value: object, keys: Collection[str] | None
    ) -> None:
        self._document = document
        self.path = path
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            accepted = ", ".join(keys) if keys else "names and what they stand for"
            refuse(self.where(), value, f"a mapping with {accepted}")
        self.value: Mapping[Any, Any] = value
        for key in value:
            if keys is not None and key not in keys:
                place = self.where(str(key)).rsplit(": ", 1)[0]
                mapping({key: None}, f"{place}: {_dotted(path) or document.what}", keys)

    def where(self, *keys: str | int) -> str:
        """Return the place of a key, or of the mapping."""
        path = (*self.path, *keys)
        said = _dotted(path)
        return f"{self._document.name}:{self._document.line(path)}" + (f": {said}" if said else "")

    def get(self, key: str, otherwise: Any = None) -> Any:
        """Return a value, or what stands for one that is not given."""
        found = self.value.get(key)
        return otherwise if found is None else found

    def given(self, key: str) -> Any:
        """Return a value that has to be there.

        Raises:
            UsageError: it is not.
        """
        found = self.value.get(key)
        if found is None:
            raise UsageError(f"{self.where()}: without {key}")
        return found

    def part(self, key: str | int, keys: Collection[str] | None = None) -> Part:
        """Return the mapping under a key."""
        return Part(self._document, (*self.path, key), self.value.get(key), keys)


def read_document(path: Path, keys: Collection[str], what: str = "study") -> Part:
    """Return what a YAML file states, a mapping with some of these keys; `what` it is called.

    Raises:
        UsageError: it cannot be read, is not YAML, or states something else.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "bytes that are no UTF-8"
        raise UsageError(f"{path}: {why}; accepted: a {what} file in YAML") from None
    lines: dict[Path_, int] = {}
    try:
        root = yaml.compose(content, Loader=BoundedLoader)
        if root is not None:
            _note(root, (), lines, str(path))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        said = error.problem or error.context
        raise UsageError(f"{place}: not YAML: {said}; accepted: a {what} file in YAML") from None
    except RecursionError:
        said = f"it is nested too deeply, or in itself; accepted: a {what} file in YAML"
        raise UsageError(f"{path}: not YAML: {said}") from None
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise UsageError(f"{path}: not YAML: {said}; accepted: a {what} file in YAML") from None
    value = read_yaml(content, str(path))
    return Part(Document(str(path), lines, what), (), value, keys)


def _note(node: yaml.Node, path: Path_, lines: dict[Path_, int], file: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, _key(key))
            mark = key.start_mark
            if below in lines and _key(key) != "<<":
                place = f"{file}:{mark.line + 1}:{mark.column + 1}"
                raise UsageError(
                    f"{place}: not YAML: key {_key(key)!r} is given twice; accepted: each key once"
                )
            lines[below] = mark.line + 1
            _note(value, below, lines, file)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _note(value, (*path, index), lines, file)


def _key(node: yaml.Node) -> str:
    return str(node.value)


def _dotted(path: Path_) -> str:
    said = ""
    for key in path:
        said += f"[{key}]" if isinstance(key, int) else f".{key}"
    return said.removeprefix(".")
