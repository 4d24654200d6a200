"""Makes the reference pages of kinds and commands in `docs/reference/`.

`python -m tests.docs.generated` writes them: one page for each CustomResourceDefinition of
`reprieve crds`, from the schema of its storage version, and one for all commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import yaml

from reprieve.cli.main import COMMANDS, cli

__all__ = ["REFERENCE", "reference_pages", "write_reference_pages"]

ROOT: Final = Path(__file__).parents[2]
REFERENCE: Final = ROOT / "docs" / "reference"
_CRDS: Final = ROOT / "src/reprieve/api/crds"
_RULES: Final[Mapping[str, str]] = {
    "minimum": "at least",
    "maximum": "at most",
    "maxLength": "longest",
    "maxItems": "most entries",
    "pattern": "pattern",
}
# As long as a description of one cell may be; what follows stands in `kubectl explain`.
_SENTENCES: Final = 400


def reference_pages() -> dict[str, str]:
    """Return the text of each page, by its name below `docs/reference/`."""
    definitions = [yaml.safe_load(path.read_text("utf-8")) for path in sorted(_CRDS.glob("*.yaml"))]
    pages = {f"{each['metadata']['name']}.md": _kind_page(each) for each in definitions}
    pages["index.md"] = _index(definitions)
    pages["commands.md"] = _commands_page()
    return pages


def write_reference_pages() -> None:
    """Write all pages, and remove those of former kinds."""
    REFERENCE.mkdir(exist_ok=True)
    pages = reference_pages()
    for path in REFERENCE.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (REFERENCE / name).write_text(text, encoding="utf-8")


def _index(definitions: list[dict[str, Any]]) -> str:
    lines = ["# Kinds", "", "Fields of all kinds that `reprieve crds` prints.", ""]
    lines += ["| kind | group | scope | versions |", "| --- | --- | --- | --- |"]
    for each in definitions:
        spec = each["spec"]
        versions = ", ".join(f"`{version['name']}`" for version in spec["versions"])
        link = f"[{spec['names']['kind']}]({each['metadata']['name']}.md)"
        lines.append(f"| {link} | `{spec['group']}` | {spec['scope']} | {versions} |")
    return "\n".join([*lines, ""])


def _kind_page(definition: Mapping[str, Any]) -> str:
    spec = definition["spec"]
    (stored,) = (each for each in spec["versions"] if each["storage"])
    schema = stored["schema"]["openAPIV3Schema"]
    names = spec["names"]
    lines = [f"# {names['kind']} ({spec['group']})", ""]
    if "description" in schema:
        lines += [_cell(schema["description"], None), ""]
    lines.append(f"`apiVersion: {spec['group']}/{stored['name']}`, {spec['scope'].lower()}.")
    if short := names.get("shortNames"):
        lines[-1] += f" Short names: {', '.join(f'`{each}`' for each in short)}."
    columns = stored.get("additionalPrinterColumns", [])
    if columns:
        lines += ["", "## Columns", "", "| column | value |", "| --- | --- |"]
        lines += [
            f"| {each['name']} | `{each['jsonPath'].replace('|', chr(92) + '|')}` |"
            for each in columns
        ]
    for part in ("spec", "status"):
        fields = schema["properties"].get(part)
        if fields is None:
            continue
        lines += ["", f"## {part}", "", "| field | type | meaning |", "| --- | --- | --- |"]
        lines += _rows(fields, "")
    return "\n".join([*lines, ""])


def _rows(schema: Mapping[str, Any], prefix: str) -> Iterator[str]:
    required = set(schema.get("required", []))
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        must = ", required" if name in required else ""
        meaning = _cell(field.get("description", ""), _SENTENCES) + _rules(field)
        yield f"| `{path}` | {_type(field)}{must} | {meaning} |"
        yield from _rows(field, f"{path}.")
        yield from _rows(field.get("items", {}), f"{path}[].")
        inner = field.get("additionalProperties")
        if isinstance(inner, Mapping):
            yield from _rows(inner, f"{path}.*.")


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    inner = field.get("additionalProperties")
    if isinstance(inner, Mapping):
        return f"map of {_type(inner)}"
    return str(field.get("format") or field.get("type", "any"))


def _rules(field: Mapping[str, Any]) -> str:
    said = []
    if "enum" in field:
        said.append("one of " + ", ".join(f"`{each}`" for each in field["enum"]))
    if "default" in field and not isinstance(field["default"], dict | list):
        said.append(
            f"default `{str(field['default']).lower()}`"
            if isinstance(field["default"], bool)
            else f"default `{field['default']}`"
        )
    said += [
        f"{words} `{str(field[key]).replace('|', chr(92) + '|')}`"
        for key, words in _RULES.items()
        if key in field
    ]
    return f" ({'; '.join(said)})" if said else ""


def _cell(text: str, most: int | None) -> str:
    """Return a description on one line; whole sentences up to `most` characters."""
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    if most is None or len(line) <= most:
        return line
    head = line[:most]
    return head[: head.rindex(". ") + 1] if ". " in head else f"{head[: head.rindex(' ')]} ..."


def _commands_page() -> str:
    lines = [
        "# Commands",
        "",
        "Every command with its options; `reprieve COMMAND --help` prints the same.",
    ]
    context = click.Context(cli, info_name="reprieve")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        lines += [
            "",
            f"## reprieve {name}",
            "",
            "```",
            command.get_usage(inner).removeprefix("Usage: "),
            "```",
            "",
        ]
        lines += [" ".join(part.split()) + "\n" for part in (command.help or "").split("\n\n")]
        options = [
            each for each in command.params if isinstance(each, click.Option) and not each.hidden
        ]
        if options:
            lines += [
                "| option | meaning |",
                "| --- | --- |",
                *(_option_row(each) for each in options),
            ]
    return "\n".join([*lines, ""])


def _option_row(option: click.Option) -> str:
    forms = ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))
    value = (
        ""
        if option.is_flag
        else f" `{option.make_metavar(click.Context(click.Command('x')))}`".replace("|", "\\|")
    )
    return f"| {forms}{value} | {_cell(option.help or '', None)} |"
