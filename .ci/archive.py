"""Build an archive that needs no Python, and krew's manifest of such archives.

`archive.py build FOLDER` writes `reprieve-VERSION-OS-ARCH.tar.gz` for the machine it runs on: the
command line as a plugin of kubectl, frozen by PyInstaller with the locked versions of its packages.
`archive.py krew FOLDER ADDRESS` writes `reprieve.yaml` beside the archives of FOLDER, which are
downloaded from ADDRESS. Source: krew's guide to plugin manifests (v1alpha2).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

__all__ = ["NoArchive", "build", "manifest"]

_ROOT: Final = Path(__file__).parents[1]
_PLUGIN: Final = "kubectl-reprieve"
_COMPLETION: Final = "kubectl_complete-reprieve"
# Beside the plugin, or linked from a folder of PATH, which krew does for the plugin alone.
_COMPLETES: Final = f"""\
#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/{_PLUGIN}" __complete_plugin "$@"
"""
_ARCHIVE: Final = re.compile(
    r"reprieve-(?P<version>.+)-(?P<os>linux|darwin)-(?P<arch>amd64|arm64)\.tar\.gz"
)
_ARCHES: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
# A commit has one archive: files carry no time but this one, the first that a zip file can hold.
_EPOCH: Final = "315532800"


class NoArchive(Exception):
    """Why no archive or manifest was written."""


def build(folder: Path) -> Path:
    """Return the archive for this machine, built from the project's wheels and locked packages.

    Raises:
        NoArchive: krew has no name for this machine, or a command failed.
    """
    system, arch = platform.system().lower(), _ARCHES.get(platform.machine())
    if system not in ("linux", "darwin") or arch is None:
        raise NoArchive(
            f"{system} on {platform.machine()}: accepted are linux and darwin on amd64 and arm64"
        )
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = f"reprieve-{project['version']}-{system}-{arch}"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        tree = _frozen(scratch)
        shutil.copy(_ROOT / "LICENSE", tree / "LICENSE")
        completion = tree / _COMPLETION
        completion.write_text(_COMPLETES, encoding="utf-8")
        completion.chmod(0o755)
        return _packed(tree, folder / f"{name}.tar.gz", name)


def _frozen(scratch: Path) -> Path:
    """Return the folder with the frozen command line."""
    environment = scratch / "environment"
    _run(
        [shutil.which("uv") or str(Path(sys.executable).with_name("uv")), "sync", "--quiet"],
        ["--locked", "--no-dev", "--no-editable", "--group", "archive"],
        UV_PROJECT_ENVIRONMENT=str(environment),
    )
    _run(
        [str(environment / "bin" / "python"), "-m", "PyInstaller", "--log-level", "ERROR"],
        ["--noconfirm", "--onedir", "--name", _PLUGIN],
        ["--collect-submodules", "reprieve", "--collect-data", "reprieve"],
        ["--distpath", str(scratch / "dist"), "--workpath", str(scratch / "work")],
        ["--specpath", str(scratch), str(_ROOT / ".ci" / "archive_entry.py")],
        PYTHONHASHSEED="1",
    )
    return scratch / "dist" / _PLUGIN


def _packed(tree: Path, archive: Path, name: str) -> Path:
    """Return the archive of a folder, whose bytes depend on its files alone.

    krew unpacks files and folders and refuses links: what a link points to is stored in its place.
    """
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", _EPOCH))

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = moment
        member.mode = 0o755 if member.mode & 0o100 else 0o644
        return member

    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=moment) as zipped,
        tarfile.open(fileobj=zipped, mode="w", dereference=True) as packed,
    ):
        for path in sorted(tree.rglob("*")):
            if path.is_file():
                packed.add(path, f"{name}/{path.relative_to(tree)}", filter=plain)
    return archive


def manifest(folder: Path, address: str) -> dict[str, Any]:
    """Return krew's manifest of the archives in a folder.

    Raises:
        NoArchive: there is none, or they are of several versions.
    """
    found = {path: _ARCHIVE.fullmatch(path.name) for path in sorted(folder.iterdir())}
    archives = {path: match for path, match in found.items() if match is not None}
    versions = {match["version"] for match in archives.values()}
    if len(versions) != 1:
        raise NoArchive(f"{folder}: archives of {len(versions)} versions; accepted is one version")
    (version,) = versions
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "reprieve"},
        "spec": {
            "version": "v" + version.replace("rc", "-rc"),
            "homepage": project["urls"]["Homepage"],
            "shortDescription": "Explain and plan preemption of GPU work",
            "description": _DESCRIPTION,
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": match["os"], "arch": match["arch"]}},
                    "uri": f"{address.rstrip('/')}/{path.name}",
                    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                    "bin": f"{path.name.removesuffix('.tar.gz')}/{_PLUGIN}",
                }
                for path, match in archives.items()
            ],
        },
    }


_DESCRIPTION: Final = """\
Explains why work waits or was preempted, plans a submission before it is made
(whether it starts, and which work it would preempt), and lists holders of GPUs,
pending work, preemptions and loops. Reads the cluster with your own rights.
"""


def _run(*parts: list[str], **environment: str) -> None:
    """Run a command in the project.

    Raises:
        NoArchive: it failed; with what it printed.
    """
    command = [word for part in parts for word in part]
    done = subprocess.run(
        command,
        cwd=_ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NoArchive(
            f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        )


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    try:
        match arguments:
            case ["build", folder]:
                print(build(Path(folder)))
            case ["krew", folder, address]:
                written = Path(folder) / "reprieve.yaml"
                written.write_text(
                    yaml.safe_dump(manifest(Path(folder), address), sort_keys=False),
                    encoding="utf-8",
                )
                print(written)
            case _:
                print(
                    "accepted: archive.py build FOLDER, archive.py krew FOLDER ADDRESS",
                    file=sys.stderr,
                )
                return 2
    except NoArchive as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
