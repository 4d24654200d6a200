"""Where each form of trace comes from: traces are not shipped, users fetch them.

No sums of published files are held here, since none of these files was fetched to make one. What
two people compare is the sum of the file that each of them has: `sum_of` makes it, `read_sums`
reads what `sha256sum` writes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reprieve.units.errors import UsageError

__all__ = ["SOURCES", "Source", "read_sums", "sum_of"]

_LINE: Final = re.compile(r"([0-9a-fA-F]{64}+) [ *](.{1,4096}+)", re.ASCII)
_AT_ONCE: Final = 2**20
_ALIBABA: Final = "https://github.com/alibaba/clusterdata"


@dataclass(frozen=True, slots=True)
class Source:
    """A form of trace by the name that a study gives it, where to get one, and which file of it."""

    form: str
    what: str
    where: str
    file: str


SOURCES: Final = (
    Source(
        "acme",
        "Acme of Shanghai AI Laboratory, 2023",
        "https://github.com/InternLM/AcmeTrace",
        "data/job_trace/trace_seren.csv, trace_kalos.csv",
    ),
    Source("csv", "our own form", "any program", "arrival_s,gpus,duration_s,model"),
    Source(
        "gavel",
        "Gavel of Stanford, Philly's jobs with models",
        "https://github.com/stanford-futuredata/gavel",
        "scheduler/traces/**/*.trace, with scheduler/simulation_throughputs.json",
    ),
    Source(
        "helios",
        "Helios of SenseTime, 2020",
        "https://github.com/S-Lab-System-Group/HeliosData",
        "data/*/cluster_log.csv",
    ),
    Source(
        "kueue",
        "your own cluster with Kueue or the quota plane",
        "kubectl get workloads.kueue.x-k8s.io -A -o json",
        "what that prints",
    ),
    Source(
        "kwok",
        "any cluster, recorded while it runs",
        "kwokctl snapshot record --path FILE",
        "FILE",
    ),
    Source(
        "openb",
        "Alibaba, 2023",
        f"{_ALIBABA} (cluster-trace-gpu-v2023)",
        "csv/openb_pod_list_*.csv; csv/openb_node_list_*.csv for cluster.from",
    ),
    Source(
        "openb-2025",
        "Alibaba, recommendation models, 2025",
        f"{_ALIBABA} (cluster-trace-gpu-v2025)",
        "disaggregated_DLRM_trace.csv",
    ),
    Source(
        "pai",
        "Alibaba PAI, 2020",
        f"{_ALIBABA} (cluster-trace-gpu-v2020)",
        "pai_task_table.csv",
    ),
    Source(
        "philly",
        "Philly of Microsoft, 2017",
        "https://github.com/msr-fiddle/philly-traces",
        "cluster_job_log in trace-data.tar.gz",
    ),
    Source(
        "sacct",
        "your own Slurm cluster",
        "sacct -a -P -o JobID,Submit,ElapsedRaw,AllocTRES",
        "what that prints",
    ),
    Source(
        "snapshot",
        "your own cluster with Kueue or the quota plane",
        "reprieve snapshot -o FILE",
        "FILE; for cluster.from, too",
    ),
    Source(
        "swf",
        "Parallel Workloads Archive",
        "https://www.cs.huji.ac.il/labs/parallel/workload/",
        "*.swf.gz",
    ),
)


def sum_of(path: Path) -> str:
    """Return the sha256 of a file.

    Raises:
        UsageError: it cannot be read.
    """
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while part := file.read(_AT_ONCE):
                found.update(part)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; accepted: a file") from None
    return found.hexdigest()


def read_sums(path: Path) -> dict[Path, str]:
    """Return the sums of a file of sha256sum, by file; relative ones are beside it.

    Raises:
        UsageError: it cannot be read, or states none, or something else.
    """
    accepted = "what sha256sum writes: a sum, two spaces and a file in each line"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--check {path}: {error}; accepted: {accepted}") from None
    found: dict[Path, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        said = _LINE.fullmatch(line)
        if said is None:
            raise UsageError(f"{path}:{number}: no sum of a file; accepted: {accepted}")
        found[path.parent / said[2]] = said[1].lower()
    if not found:
        raise UsageError(f"--check {path}: it is empty; accepted: {accepted}")
    return found
