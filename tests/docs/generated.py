"""Makes the tables of `docs/` from the code. `python -m tests.docs.generated` writes them.

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`; what is between is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from reprieve.engine.idle.vendors import KNOWN_VENDORS
from reprieve.telemetry.metrics import Metrics
from reprieve.telemetry.scheduling import SchedulingMetrics
from reprieve.wording.documentation import switches_markdown, transitions_markdown
from tests.kubectl.exceptions import embedded_markdown
from tests.scheduling.filters.documentation import filters_markdown

DOCS: Final = Path(__file__).parents[2] / "docs"
# What the exposition puts behind a family's name.
_SUFFIXES: Final = {"counter": "_total", "info": "_info"}


def vendors() -> str:
    """Return the known vendors."""
    return _table(
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


def metrics() -> str:
    """Return the metrics of our own, in name order, without those of every Python process."""
    return _metrics(f for f in Metrics().registry.collect() if f.name.startswith("reprieve_"))


def scheduler_metrics() -> str:
    """Return the metrics of the scheduling plane, in name order."""
    registry = CollectorRegistry()
    SchedulingMetrics(registry)
    return _metrics(registry.collect())


def _metrics(families: Iterable[Metric]) -> str:
    return _table(
        ("metric", "type", "meaning"),
        (
            (f"`{f.name}{_SUFFIXES.get(f.type, '')}`", f.type, f.documentation)
            for f in sorted(families, key=lambda family: family.name)
        ),
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(head)
    lines = [heads, ["---"] * len(heads), *(list(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "transitions": transitions_markdown,
    "literal": switches_markdown,
    "vendors": vendors,
    "metrics": metrics,
    "scheduler-metrics": scheduler_metrics,
    "exceptions": embedded_markdown,
    "filters": filters_markdown,
}


def filled(text: str) -> str:
    """Return a document with all its tables made anew."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        made = make()
        text = pattern.sub(lambda match, made=made: f"{match[1]}\n{made}\n{match[2]}", text)
    return text


def tables_in(text: str) -> list[str]:
    """Return the names of the tables that a document has."""
    return re.findall(r"<!-- /([a-z-]+) -->", text)


if __name__ == "__main__":
    for document in sorted(DOCS.glob("*.md")):
        document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
