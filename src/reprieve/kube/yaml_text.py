"""YAML as the API means it: instants stay the text that they are there.

YAML 1.1 makes dates of texts like `2026-11-20T03:00:00Z`; in the API they are strings.
"""

from __future__ import annotations

import yaml

from reprieve.units.bounded_yaml import BoundedLoader

__all__ = ["ManifestLoader"]


class ManifestLoader(BoundedLoader):
    """Reads plain values only, and no timestamps."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own form)
        first: [(tag, form) for tag, form in forms if not tag.endswith(":timestamp")]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
