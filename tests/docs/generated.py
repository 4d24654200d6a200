"""Makes the tables of `docs/` from the code. `python -m tests.docs.generated` writes them, the
man pages and the reference pages.

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`; what is between is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from reprieve.engine.idle.vendors import KNOWN_VENDORS
from reprieve.jobs.model import JobKind
from reprieve.jobs.table import BUILT_IN
from reprieve.telemetry.metrics import Metrics
from reprieve.telemetry.quota_series import COUNTERS, GAUGES, HISTOGRAMS
from reprieve.telemetry.scheduling import SchedulingMetrics
from reprieve.wording.diagnosis import reasons_markdown
from reprieve.wording.documentation import switches_markdown, transitions_markdown
from tests.docs.man_pages import write_man_pages
from tests.docs.option_rows import idle_options, quota_options, scheduling_options, write_chart
from tests.docs.quota_examples import fair_rows, preemption_rows
from tests.docs.reference_pages import write_reference_pages
from tests.kubectl.exceptions import embedded_markdown
from tests.scheduling.filters.documentation import filters_markdown

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
KUBELOCAL: Final = ROOT / "kubelocal"
#: Where documents stand.
FOLDERS: Final = (
    ROOT,
    DOCS,
    *sorted(each for each in DOCS.iterdir() if each.is_dir()),
    KUBELOCAL,
    KUBELOCAL / "docs",
)
# What the exposition puts behind a family's name.
_SUFFIXES: Final = {"counter": "_total", "info": "_info"}


def vendors() -> str:
    """Return the known vendors."""
    return _table(
        ("vendor", "resources", "device classes", "metrics", "pod labels", "GPU labels"),
        (
            (
                f"`{v.name}`",
                _code(v.resources) + (f", not {_code(v.not_devices)}" if v.not_devices else ""),
                _code(v.device_classes),
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


def quota_metrics() -> str:
    """Return the quota plane's metrics of Kueue's names, in name order."""
    kinds = {"_total": COUNTERS, "": GAUGES}
    rows = [
        (f"`kueue_{name}{suffix}`", "counter" if suffix else "gauge", _code(labels), text)
        for suffix, found in kinds.items()
        for name, (text, labels) in found.items()
    ]
    rows += [
        (f"`kueue_{name}`", "histogram", _code(labels), text)
        for name, (text, labels, _) in HISTOGRAMS.items()
    ]
    return _table(("metric", "type", "labels", "meaning"), sorted(rows))


def quota_kinds() -> str:
    """Return the built-in kinds of jobs, as they stand in their table."""
    return _table(
        ("kind", "API", "`integrations.frameworks`", "held back by"),
        (
            (each.kind, f"`{each.api_version}`", f"`{each.framework}`", _held(each))
            for each in BUILT_IN
        ),
    )


def _held(kind: JobKind) -> str:
    if kind.suspend:
        return f"`{kind.suspend}`"
    return f"gate `{kind.gate}`" if kind.gate else "the gates of its pods"


def quota_preemptions() -> str:
    """Return who is preempted by each value of `spec.preemption`, decided by the engine."""
    head = ("what runs", "policy of `team-a`", "requests", "with priority", "who is preempted")
    return _table(head, preemption_rows())


def quota_fair() -> str:
    """Return who is preempted by fair sharing, job by job, decided by the engine."""
    one, two = "is preempted, equal weights", "is preempted, `team-a` has weight 2"
    return _table(("job of `team-a`", one, "shares a : b", two, "shares a : b"), fair_rows())


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


def explained() -> str:
    """Return an answer of `reprieve explain`, as it stands among the told ones."""
    told = ROOT / "tests" / "explain" / "told" / "job-made-way-and-waits-again.txt"
    return f"```\n{told.read_text(encoding='utf-8')}```"


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "transitions": transitions_markdown,
    "literal": switches_markdown,
    "vendors": vendors,
    "metrics": metrics,
    "scheduler-metrics": scheduler_metrics,
    "quota-metrics": quota_metrics,
    "quota-kinds": quota_kinds,
    "quota-preemptions": quota_preemptions,
    "quota-fair": quota_fair,
    "exceptions": embedded_markdown,
    "filters": filters_markdown,
    "waiting": reasons_markdown,
    "explained": explained,
    "scheduling-options": scheduling_options,
    "quota-options": quota_options,
    "idle-options": idle_options,
}


def _between(made: str, found: re.Match[str]) -> str:
    return found[1] + made + found[2]


def filled(document: Path) -> str:
    """Return a document with all its tables made anew; links in their rows lead from `docs/`."""
    text = document.read_text(encoding="utf-8")
    up = "../" if document.parent.parent == DOCS else ""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        made = re.sub(r"\]\((?=[a-z-]+(?:/[a-z-]+)*\.md)", rf"]({up}", make())
        text = pattern.sub(partial(_between, f"\n{made}\n"), text)
    return text


def tables_in(text: str) -> list[str]:
    """Return the names of the tables that a document has."""
    return re.findall(r"<!-- /([a-z-]+) -->", text)


if __name__ == "__main__":
    for document in sorted(found for folder in FOLDERS for found in folder.glob("*.md")):
        document.write_text(filled(document), encoding="utf-8")
    write_man_pages()
    write_reference_pages()
    write_chart()
