"""What is reported of runs that failed: each reason once, with the runs that it ended.

A trace that cannot be read fails under every policy, seed and load that it was to be replayed with,
for one reason. Where the runs of a reason are all combinations of some seeds, loads and policies of
one trace, these are named; else each run has its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from reprieve.simulation.runs import Failed, Run
from reprieve.simulation.study import Study

__all__ = ["failure_lines"]


def failure_lines(study: Study, failed: Sequence[Failed]) -> Iterator[str]:
    """Yield a line for each reason, in the order of the runs."""
    reasons: dict[tuple[str, str], list[Run]] = {}
    for each in failed:
        reasons.setdefault((each.run.trace, each.why), []).append(each.run)
    for (trace, why), runs in reasons.items():
        groups = [runs] if _are_all(runs) else [[run] for run in runs]
        for group in groups:
            yield f"trace {trace}, {_stated(study, group)}: {why}"


def _are_all(runs: Sequence[Run]) -> bool:
    """Return whether these are all combinations of what they state."""
    said = {(run.seed, run.load, run.policy.name) for run in runs}
    return len(said) == len(list(product(*({each[n] for each in said} for n in range(3)))))


def _stated(study: Study, runs: Sequence[Run]) -> str:
    seeds = list(dict.fromkeys(run.seed for run in runs))
    loads = list(dict.fromkeys(run.load for run in runs))
    policies = list(dict.fromkeys(run.policy.name for run in runs))
    parts = [
        _listed("seed", [str(seed) for seed in seeds], len(study.workload.files)),
        _listed(
            "load",
            ["as it is" if load is None else f"{load:g}" for load in loads],
            len(study.workload.loads),
        ),
        _listed("policy", policies, len(study.policies)),
    ]
    return ", ".join(parts)


def _listed(what: str, values: Sequence[str], of: int) -> str:
    if len(values) == 1:
        return f"{what} {values[0]}"
    several = "policies" if what == "policy" else f"{what}s"
    return f"all {several}" if len(values) == of else f"{several} {', '.join(values)}"
