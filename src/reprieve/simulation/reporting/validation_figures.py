"""The figures of a validation, read from the file that `python -m bench.validation --out` writes.

The report prints what the file states and nothing else: which commit and command made the figures,
what was compared, and whether it was within its bound. It knows no figures of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

import msgspec

from reprieve.units.errors import UsageError

__all__ = ["Comparison", "Validation", "read_validation", "validation_section"]


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that was compared; `figures` by name, `holds` within its bound."""

    case: str
    holds: bool
    figures: dict[str, int | float | str]


class Validation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was compared, by which command, and the commit of the sources that were compared."""

    command: str
    commit: str
    version: str
    comparisons: tuple[Comparison, ...]


def read_validation(path: Path) -> Validation:
    """Return the figures of a file.

    Raises:
        UsageError: it cannot be read, or states something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Validation)
    except (OSError, msgspec.MsgspecError) as error:
        accepted = "a file that `python -m bench.validation --out FILE` wrote"
        raise UsageError(f"--validation {path}: {error}; accepted: {accepted}") from None


def validation_section(validation: Validation | None, version: str) -> Iterator[str]:
    """Give the part of the report; `version` is that of the program that made the study."""
    yield "\n<h2>How far the replay is right</h2>"
    if validation is None:
        yield (
            '<p class="soft">No figures of a validation were given. In the sources <code>python -m '
            "bench.validation --out FILE</code> makes them, and <code>--validation FILE</code> has "
            "them printed here.</p>"
        )
        return
    yield (
        f'<p class="soft">Made by <code>{escape(validation.command)}</code> with commit '
        f"{escape(validation.commit)} of reprieve {escape(validation.version)}.</p>"
    )
    if validation.version != version:
        yield (
            f'<p class="notice">This study was made with reprieve {escape(version)}, which these '
            "figures are not of.</p>"
        )
    broken = sum(not each.holds for each in validation.comparisons)
    if broken:
        yield f'<p class="notice">{broken} of the comparisons are not within their bound.</p>'
    yield '<div class="wide"><table class=meanings><thead><tr><th>compared</th><th>figures</th>'
    yield "<th>within its bound</th></tr></thead><tbody>"
    for each in validation.comparisons:
        said = ", ".join(f"{_name(name)} {value}" for name, value in each.figures.items())
        yield f"<tr><td>{escape(each.case)}</td><td>{escape(said)}</td>"
        yield f"<td>{'yes' if each.holds else 'no'}</td></tr>"
    yield "</tbody></table></div>"


def _name(name: str) -> str:
    """Return the name of a figure as text; the unit of `_percent` and `_s` is stated as such."""
    for ending, unit in (("_percent", " (%)"), ("_s", " (s)")):
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ") + unit
    return name.replace("_", " ")
