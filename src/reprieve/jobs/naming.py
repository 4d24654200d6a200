"""Names of Workloads, by the reference's rule.

`lower(kind)-jobName-H`, H being the first five hexadecimal digits of SHA-1 over kind, group, name
and uid, one per line. Source: specification of the quota plane, section 10.1.
"""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["workload_name"]

_LONGEST: Final = 253
_HASH: Final = 5


def workload_name(kind: str, group: str, name: str, uid: str, longest: int = _LONGEST) -> str:
    """Return the name of the Workload of a job; `group` is empty for core."""
    text = "\n".join((kind, group, name, uid))
    digits = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:_HASH]
    return f"{f'{kind.lower()}-{name}'[: longest - _HASH - 1]}-{digits}"
