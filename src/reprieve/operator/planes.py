"""The table of planes, which processes and queries load by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reprieve.planes.common.process_settings import IDLE, QUOTA, SCHEDULING

__all__ = ["PLANES"]

#: The planes in the order in which they are made, with the module whose `assemble` makes each. The
#: quota plane reads the scheduling plane's view of the cluster, so it is made after it.
PLANES: Final[Mapping[str, str]] = {
    IDLE: "reprieve.planes.idle.assembly",
    SCHEDULING: "reprieve.planes.scheduling.assembly",
    QUOTA: "reprieve.planes.quota.assembly",
}
