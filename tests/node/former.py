"""The version before this one: the chart and the image of an earlier commit.

It is that of the last tag before this commit. `$REPRIEVE_NODE_FORMER` names another commit, or one
where there is no tag yet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.chart.helm import ROOT
from tests.node.build import write_image
from tests.node.machine import FOLDER
from tests.node.release import Version

__all__ = ["NO_FORMER", "build_former", "former_commit"]

_VARIABLE: Final = "REPRIEVE_NODE_FORMER"
NO_FORMER: Final = f"there is no version before this one: set ${_VARIABLE} to a commit"
_IMAGE: Final = "docker.io/library/reprieve:former"


def former_commit() -> str:
    """Return the commit of the version before this one, empty where there is none."""
    named = os.environ.get(_VARIABLE) or _git("describe", "--tags", "--abbrev=0", "HEAD^")
    return named and _git("rev-parse", "--verify", f"{named}^{{commit}}")


def build_former(commit: str) -> tuple[Version, Path]:
    """Return that version, and the archive of its image; each is built once."""
    place = FOLDER / f"former-{commit[:12]}"
    archive = place / "reprieve.tar"
    if not archive.exists():
        with tempfile.TemporaryDirectory(prefix="reprieve-former-") as scratch:
            sources = Path(scratch)
            _unpack(commit, sources)
            chart = place / "chart"
            shutil.rmtree(chart, ignore_errors=True)
            shutil.copytree(sources / "charts" / "reprieve", chart)
            write_image(_IMAGE, archive, sources)
    return Version(place / "chart", _IMAGE), archive


def _unpack(commit: str, folder: Path) -> None:
    with tempfile.TemporaryFile() as file:
        subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=file, check=True)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            archive.extractall(folder, filter="data")


def _git(*arguments: str) -> str:
    """Return what git prints, empty where it fails."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return "" if done.returncode else done.stdout.strip()
