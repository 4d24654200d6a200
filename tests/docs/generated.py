"""Makes the tables of `docs/` from the code. `python -m tests.docs.generated` writes them.

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`; what is between is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from reprieve.engine.idle.lifecycle import TRANSITIONS, Action, Requeue, Transition
from reprieve.engine.idle.literal import SWITCHES
from reprieve.engine.idle.model import Phase
from reprieve.engine.idle.vendors import KNOWN_VENDORS

DOCS: Final = Path(__file__).parents[2] / "docs"
_ACTIONS: Final = {
    Action.DELETE_ROOT: "evict the root",
    Action.DELETE_GPU_WORKLOAD: "delete the GpuWorkload",
    Action.EVALUATE: "evaluate",
}
# The phases that most rows are tried in; the document calls them the living ones.
_LIVING: Final = (
    Phase.NEW,
    Phase.PENDING_OTHER,
    Phase.PENDING_GPU,
    Phase.ACTIVE,
    Phase.IDLE,
)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    heads = list(head)
    lines = [heads, ["---"] * len(heads), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def transitions() -> str:
    """Return the phases' table, in the order in which the rows are tried."""
    return table(
        ("#", "from", "when", "to", "besides", "event", "next look"),
        (
            (
                str(row.number),
                _phases(row.phases),
                str(row.condition),
                f"`{row.to}`" if row.to else "(same)",
                _besides(row),
                str(row.event or ""),
                "" if row.requeue is Requeue.NONE else str(row.requeue),
            )
            for row in TRANSITIONS
        ),
    )


def _phases(phases: tuple[Phase, ...]) -> str:
    if phases == _LIVING:
        return "any living phase"
    return ", ".join(f"`{phase}`" if phase else "(new)" for phase in phases)


def _besides(row: Transition) -> str:
    words = [str(effect) for effect in row.effects]
    if row.action in _ACTIONS:
        words.append(_ACTIONS[row.action])
    return "; ".join(words)


def literal_switches() -> str:
    """Return the switches with their hazards' numbers."""
    return table(
        ("`gpuPreemption.literal.`", "of the specification", "off (default)", "on"),
        ((f"`{s.name}`", s.hazard, s.default, s.literal) for s in SWITCHES),
    )


def vendors() -> str:
    """Return the known vendors."""
    return table(
        ("vendor", "resources", "metrics", "pod labels", "GPU labels"),
        (
            (
                f"`{v.name}`",
                _code(v.resources) + (f", not {_code(v.not_devices)}" if v.not_devices else ""),
                ", ".join(
                    f"`{m.name}`" + ("" if m.scale == 1 else f" (times {m.scale:g})")
                    for m in v.metrics
                ),
                _code(v.pod_labels),
                _code((*v.gpu_labels, *v.partition_labels)),
            )
            for v in KNOWN_VENDORS.values()
        ),
    )


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "transitions": transitions,
    "literal": literal_switches,
    "vendors": vendors,
}


def filled(text: str) -> str:
    """Return a document with all its tables made anew."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        made = make()
        text = pattern.sub(lambda match, made=made: f"{match[1]}\n{made}\n\n{match[2]}", text)
    return text


def tables_in(text: str) -> list[str]:
    """Return the names of the tables that a document has."""
    return re.findall(r"<!-- /([a-z-]+) -->", text)


if __name__ == "__main__":
    for document in sorted(DOCS.glob("*.md")):
        document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
