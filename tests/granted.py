"""What the operator asks of an embedded cluster is granted by some option of the chart.

The cluster counts what each user asks for, whether rights are enforced or not. When it stops, what
the operator asked for is compared with the rules of the chart's roles, conditions aside. Which
option grants what is tested with the chart itself (`tests/together/test_granted_reads.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from kubelocal.cluster import EmbeddedCluster
from reprieve.jobs.table import job_kinds
from reprieve.scenarios.embedded import OPERATOR_USER

__all__ = ["comparing_rights"]

Right = tuple[str, str, str]

_TEMPLATES: Final = Path(__file__).parents[1] / "charts" / "reprieve" / "templates"
_FILES: Final = ("rbac.yaml", "webhook.yaml")
# Kinds that only tests have: the chart's values add them.
_OF_TESTS: Final = re.compile(r"(^|\.)example(\.|$)|\.test$")
_RULE: Final = re.compile(
    r"- apiGroups: (\[.*\])\n  resources: (\[.*\])\n(?:  resourceNames:[\s\S]*?)?  verbs: (.*)"
)
_BESIDE: Final[set[Right]] = {
    # What Kubernetes gives to every user that it knows.
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
    # Where nothing was installed: the chart makes the Secret, so that the operator need not.
    ("create", "", "secrets"),
    # Asked of a kind that cannot be scaled, which is told on its root.
    ("get", "batch", "jobs/scale"),
}


def comparing_rights() -> Iterator[None]:
    """Compare at the end of each cluster until the generator goes on."""
    stop = EmbeddedCluster.stop

    async def stopped(self: EmbeddedCluster) -> None:
        asked = {
            (verb, group, resource)
            for user, verb, group, resource in self.requests
            if user == OPERATOR_USER and not _OF_TESTS.search(group)
        }
        await stop(self)
        beyond = sorted(asked - granted())
        assert beyond == [], f"the chart grants these to no operator: {beyond}"

    EmbeddedCluster.stop = stopped  # type: ignore[method-assign]
    yield
    EmbeddedCluster.stop = stop  # type: ignore[method-assign]


@cache
def granted() -> frozenset[Right]:
    """Return all that the rules of the templates name, conditions and names of objects aside."""
    found = set(_BESIDE)
    for name in _FILES:
        for rule in _rules((_TEMPLATES / name).read_text(encoding="utf-8")):
            found |= {
                (verb, group, resource)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    for kind in job_kinds():
        verbs = ("get", "list", "watch", "update", "delete", "patch")
        found |= {(verb, kind.group, kind.plural) for verb in verbs}
    return frozenset(found)


def _rules(text: str) -> Iterator[dict[str, list[str]]]:
    """Yield the rules of a template whose groups and resources are plain values."""
    for groups, resources, verbs in _RULE.findall(text):
        if "{{" not in groups + resources:
            parts = (re.findall(r'"([^"]*)"', part) for part in (groups, resources, verbs))
            yield dict(zip(("apiGroups", "resources", "verbs"), parts, strict=True))
