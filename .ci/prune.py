"""Remove from an installation what the image never imports: `python .ci/prune.py FOLDER`.

Of the `kubernetes` package the configuration part alone is used, which loads neither the
asynchronous client nor the classes of API groups and objects. Packages go without their own tests.
A test starts the operator with what is left.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

#: Below `site-packages`; a star is any name.
REMOVED = (
    "kubernetes/aio",
    "kubernetes/client/api",
    "kubernetes/client/models/v*",
    "kubernetes/client/models/[a-u]*",
    "numpy/**/tests",
    "numpy/_core/include",
    "numpy/_core/lib",
    "numpy/f2py",
    "**/*.pyi",
    "**/*.pyx",
    "**/*.pxd",
    "uvloop/*.c",
    "aiohttp/**/*.c",
)
#: What a package imports although nothing of it is used.
KEPT = ("kubernetes/client/api/__init__.py", "kubernetes/client/models/__init__.py")


def removed(folder: Path) -> Iterator[Path]:
    """Yield what is to go below a folder with `site-packages`."""
    (packages,) = folder.glob("lib/python*/site-packages")
    kept = {packages / name for name in KEPT}
    for pattern in REMOVED:
        for found in sorted(packages.glob(pattern)):
            if found.is_dir() and any(each.is_relative_to(found) for each in kept):
                yield from (each for each in sorted(found.iterdir()) if each not in kept)
            elif found not in kept:
                yield found


def main(folder: Path) -> None:
    """Remove it, and what was compiled of it."""
    for found in list(removed(folder)):
        if found.is_dir():
            shutil.rmtree(found)
        elif found.exists():
            found.unlink()
    for compiled in folder.rglob("__pycache__/*.pyc"):
        source = compiled.parent.parent / f"{compiled.name.partition('.')[0]}.py"
        if not source.exists():
            compiled.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
