"""An image of busybox alone, made without a container tool."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path

__all__ = ["parts", "small_image"]

_LINKS = ("sh", "sleep", "cat", "echo", "date", "true", "test")


def parts(command: list[str]) -> tuple[bytes, bytes]:
    """Return the layer with busybox and its shell, and the configuration of the image."""
    program = shutil.which("busybox")
    assert program is not None
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        files.add(program, "bin/busybox")
        for each in _LINKS:
            link = tarfile.TarInfo(f"bin/{each}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            files.addfile(link)
    content = layer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    return content, json.dumps(settings).encode()


def small_image(target: Path, name: str, command: list[str]) -> None:
    """Write an image archive with busybox and its shell."""
    content, settings = parts(command)
    key = f"{hashlib.sha256(settings).hexdigest()}.json"
    layers = [f"{hashlib.sha256(content).hexdigest()}/layer.tar"]
    manifest = json.dumps([{"Config": key, "RepoTags": [name], "Layers": layers}]).encode()
    with tarfile.open(target, "w") as image:
        for path, data in ((key, settings), (layers[0], content), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            image.addfile(entry, io.BytesIO(data))
