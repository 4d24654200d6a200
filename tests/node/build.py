"""Makes what real nodes need and this machine lacks: `python -m tests.node.build`.

With `enforcer` it builds kube-router, too, with which a NetworkPolicy is tried.

Programs are built once, with Go through its module proxy. The image is built by the project's own
Dockerfile, on a base made of Debian's Python in place of the one that the Dockerfile names: no
registry of images is asked. It is made anew when a file that goes into it has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.chart.go_tools import go
from tests.chart.helm import ROOT
from tests.node.machine import (
    BASE,
    DEVICE_PLUGIN,
    DEVICE_PLUGIN_SOURCE,
    ENFORCER,
    FOLDER,
    IMAGE,
    NAME,
    PROGRAMS,
)

__all__ = ["BuildFailed", "build_image", "image_is_current", "run_up", "write_image"]

_KUBERNETES: Final = "v1.37.1"
_CONTAINERD: Final = ("github.com/containerd/containerd/v2", "v2.2.0")
_ROUTER: Final = ("github.com/cloudnativelabs/kube-router/v2", "v2.1.0")
_SOURCES: Final = FOLDER / "reprieve.sources"
_STORAGE: Final = FOLDER / "storage"
_TIMEOUT_S: Final = 3 * 3600
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_PACKAGES: Final = "python3.11,python3-pip,python3.11-venv,ca-certificates,python-is-python3"


class BuildFailed(Exception):
    """A command failed; the text ends with what it said last."""


def build_programs() -> None:
    """Build those programs that are not there."""
    compiler = go()
    if compiler is None:
        raise BuildFailed("needs Go")
    with tempfile.TemporaryDirectory(prefix="reprieve-build-") as scratch:
        if not all((FOLDER / name).exists() for name in PROGRAMS[:2]):
            _build_kubernetes(compiler, Path(scratch) / "kubernetes")
        if not all((FOLDER / name).exists() for name in PROGRAMS[2:]):
            _build_containerd(compiler, Path(scratch) / "containerd")
        if not DEVICE_PLUGIN.exists():
            _build_device_plugin(compiler, Path(scratch) / DEVICE_PLUGIN.name)


def _build_kubernetes(compiler: str, scratch: Path) -> None:
    """Build in a module of our own: Kubernetes replaces its parts by folders of its repository."""
    module = f"k8s.io/kubernetes@{_KUBERNETES}"
    found = json.loads(_run(compiler, "mod", "download", "-json", module))
    release = _KUBERNETES.replace("v1.", "v0.")
    settings = json.loads(_run(compiler, "mod", "edit", "-json", found["GoMod"]))
    parts = [
        each["Path"]
        for each in settings["Require"]
        if each["Path"].startswith("k8s.io/") and each["Version"] == "v0.0.0"
    ]
    lines = [
        "module scratch",
        f"go {settings['Go']}",
        f"require k8s.io/kubernetes {_KUBERNETES}",
        *(f"replace {each} => {each} {release}" for each in parts),
    ]
    scratch.mkdir()
    (scratch / "go.mod").write_text("\n".join([*lines, ""]))
    version = "k8s.io/component-base/version.git"
    _, minor, _ = _KUBERNETES.split(".")
    said = {"Version": _KUBERNETES, "Major": "1", "Minor": minor}
    flags = " ".join(f"-X {version}{name}={value}" for name, value in said.items())
    commands = [f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS[:2]]
    _compile(compiler, scratch, f"-s -w {flags}", commands)


def _build_containerd(compiler: str, scratch: Path) -> None:
    module, version = _CONTAINERD
    scratch.mkdir()
    (scratch / "go.mod").write_text(f"module scratch\ngo 1.24.0\nrequire {module} {version}\n")
    commands = [f"{module}/cmd/{name}" for name in PROGRAMS[2:]]
    tags = ("-tags", "no_btrfs no_devmapper no_zfs")
    _compile(compiler, scratch, "-s -w", commands, *tags)


def _build_device_plugin(compiler: str, scratch: Path) -> None:
    """Build our own, with the API that the kubelet is built with."""
    release = _KUBERNETES.replace("v1.", "v0.")
    scratch.mkdir()
    shutil.copy(DEVICE_PLUGIN_SOURCE, scratch)
    (scratch / "go.mod").write_text(
        f"module scratch\ngo 1.26.0\nrequire k8s.io/kubelet {release}\n"
    )
    _compile(compiler, scratch, "-s -w", ["."], to=DEVICE_PLUGIN)


def build_enforcer() -> None:
    """Build kube-router, if it is not there."""
    compiler = go()
    if compiler is None:
        raise BuildFailed("needs Go")
    if not ENFORCER.exists():
        module, version = _ROUTER
        with tempfile.TemporaryDirectory(prefix="reprieve-build-") as scratch:
            (Path(scratch) / "go.mod").write_text(
                f"module scratch\ngo 1.24.0\nrequire {module} {version}\n"
            )
            command = f"{module}/cmd/{ENFORCER.name}"
            _compile(compiler, Path(scratch), "-s -w", [command])


def _compile(
    compiler: str,
    scratch: Path,
    flags: str,
    commands: Sequence[str],
    *more: str,
    to: Path | None = None,
) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    settings = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "0"}
    _run(
        *(compiler, "build", *more, "-ldflags", flags, "-o", str(to or f"{FOLDER}/"), *commands),
        cwd=scratch,
        env=settings,
    )


def build_base() -> None:
    """Make the root file system below the image, if it is not there."""
    if BASE.exists():
        return
    made = BASE.with_suffix(".new.tar")
    _run(
        *("mmdebstrap", "--variant=minbase", f"--include={_PACKAGES}", "--components=main"),
        *("bookworm", str(made)),
    )
    made.replace(BASE)


def image_is_current() -> bool:
    """Return whether the image is of the files as they are."""
    return IMAGE.exists() and _SOURCES.exists() and _SOURCES.read_text() == _fingerprint()


def build_image() -> None:
    """Build the image by the Dockerfile as it is; keep it as an archive."""
    sources = _fingerprint()
    write_image(NAME, IMAGE, ROOT)
    _SOURCES.write_text(sources)


def write_image(name: str, archive: Path, sources: Path) -> None:
    """Build the image of the Dockerfile in a folder of sources; write it as an archive."""
    _build(name, at=sources)
    made = archive.with_suffix(".new.tar")
    made.unlink(missing_ok=True)
    _buildah("push", "--quiet", name, f"docker-archive:{made}:{name}")
    made.replace(archive)


def run_up(*arguments: str) -> str:
    """Return what `reprieve` prints in its image with the embedded cluster, run as nobody."""
    name = f"{NAME.rpartition(':')[0]}:up"
    _build(name, "--target", "up")
    container = _buildah("from", "--pull-never", name)
    try:
        return _buildah("run", container, "--", "reprieve", *arguments)
    finally:
        _buildah("rm", container)


def _build(name: str, *options: str, at: Path = ROOT) -> None:
    """Build a target of the Dockerfile on the base that lies here, which has another digest."""
    (base,) = (
        line.partition("=")[2].partition("@")[0]
        for line in (at / "Dockerfile").read_text().splitlines()
        if line.startswith("ARG PYTHON=")
    )
    if not _buildah("images", "--quiet", "--filter", f"reference={base}"):
        _commit_base(f"docker.io/library/{base}")
    _buildah(
        *("bud", "--network", "host", "--pull-never", *options, "--tag", name),
        *("--build-arg", f"PYTHON={base}"),
        *("--file", str(at / "Dockerfile"), str(at)),
    )
    # What bore the name before would fill the disk, one build after the other.
    _buildah("rmi", "--prune")


def _commit_base(name: str) -> None:
    container = _buildah("from", "scratch")
    try:
        _buildah("add", "--quiet", container, str(BASE), "/")
        place = Path(_buildah("mount", container))
        for each in place.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            each.unlink()
        # Registries may be behind a proxy with an authority of its own, which this machine knows.
        shutil.copyfile(_CERTIFICATES, place / _CERTIFICATES.relative_to("/"))
        (place / "etc" / "pip.conf").write_text(f"[global]\ncert = {_CERTIFICATES}\n")
        _buildah("umount", container)
        known = [f"{each}={_CERTIFICATES}" for each in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")]
        _buildah("config", "--env", known[0], "--env", known[1], "--cmd", "python3", container)
        _buildah("commit", "--quiet", container, name)
    finally:
        _buildah("rm", container)


def _buildah(*arguments: str) -> str:
    places = ("--root", str(_STORAGE), "--runroot", f"{_STORAGE}.run")
    settings = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}
    return _run("buildah", *places, *arguments, env=settings).strip()


def _fingerprint() -> str:
    read = hashlib.sha256()
    for file in _files():
        read.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return read.hexdigest()


def _copied() -> list[str]:
    """Return what the Dockerfile copies from this repository, and the Dockerfile."""
    found = ["Dockerfile"]
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            found += words[1:-1]
    return found


def _files() -> Iterator[Path]:
    for name in _copied():
        place = ROOT / name
        for each in sorted(place.rglob("*")) if place.is_dir() else (place,):
            made = {"node_modules", "__pycache__", "static"} & set(each.parts)
            if each.is_file() and not made:
                yield each


def _run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise BuildFailed(f"{command[0]}: {(done.stderr or done.stdout)[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    try:
        build_programs()
        build_base()
        build_image()
        if sys.argv[1:] == ["enforcer"]:
            build_enforcer()
    except BuildFailed as failure:
        sys.exit(str(failure))
