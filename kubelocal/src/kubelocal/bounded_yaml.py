"""Reads YAML whose aliases stand for no more than a reader can take.

Source: `kubeworld.units.aliases`, which counts.
"""

from __future__ import annotations

from typing import Any, Final

import yaml
from yaml.composer import ComposerError

from kubeworld.units.aliases import Aliased, count_aliases

__all__ = ["FastLoader"]

_C_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class FastLoader(_C_LOADER):  # type: ignore[misc]
    """Reads plain data, in C where PyYAML has it."""

    def get_single_node(self) -> yaml.Node | None:
        return _counted(super().get_single_node())

    def get_node(self) -> yaml.Node | None:
        return _counted(super().get_node())


def _counted(root: yaml.Node | None) -> yaml.Node | None:
    if root is not None:
        try:
            count_aliases(root)
        except Aliased as found:
            raise ComposerError(None, None, str(found), found.node.start_mark) from None
    return root
