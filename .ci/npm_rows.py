"""Add the npm packages of the web page to a bill of materials: `npm_rows.py FILE`.

FILE is CycloneDX in JSON, as `uv export` writes it. The packages are those of the page's lock file,
without what only its developers need. esbuild makes the page and is not a part of it: its scope is
`excluded`.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["npm_rows"]

LOCK = Path(__file__).parents[1] / "web/frontend/package-lock.json"


def npm_rows(lock: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a component for each package that every installation of the lock has."""
    rows = []
    for path, package in sorted(lock["packages"].items()):
        if not path or package.get("dev") or package.get("optional"):
            continue
        name = path.rpartition("node_modules/")[2]
        purl = f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"
        digest = base64.b64decode(package["integrity"].removeprefix("sha512-")).hex()
        rows.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": package["version"],
                "purl": purl,
                "licenses": [{"license": {"id": package["license"]}}],
                "hashes": [{"alg": "SHA-512", "content": digest}],
                "scope": "excluded" if name == "esbuild" else "required",
            }
        )
    return rows


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    if len(arguments) != 1:
        print("accepted: npm_rows.py FILE", file=sys.stderr)
        return 2
    bill = Path(arguments[0])
    said = json.loads(bill.read_text(encoding="utf-8"))
    said["components"] += npm_rows(json.loads(LOCK.read_text(encoding="utf-8")))
    bill.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
