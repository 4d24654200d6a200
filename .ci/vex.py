"""Write what a release says of known weaknesses: `vex.py URL IMAGE@DIGEST...`.

The document is OpenVEX 0.2.0 (https://github.com/openvex/spec) in JSON, on standard output. Its
statements are those of `vex.toml`, about the images that are named by their digests; URL is where
the document is published. Its date is that of `SOURCE_DATE_EPOCH`, else now.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

__all__ = ["NotStated", "document"]

STATEMENTS = Path(__file__).with_name("vex.toml")
_IMAGE = re.compile(r"(?P<path>[\w.:/-]+/(?P<name>[\w.-]+))@(?P<digest>sha256:[0-9a-f]{64})")
# What OpenVEX demands beside a status, and permits: one of the fields of a row, and no other's.
_REASONS = {
    "not_affected": ("justification", "impact_statement"),
    "affected": ("action_statement",),
    "fixed": (),
    "under_investigation": (),
}
_JUSTIFICATIONS = {
    "component_not_present",
    "vulnerable_code_not_present",
    "vulnerable_code_not_in_execute_path",
    "vulnerable_code_cannot_be_controlled_by_adversary",
    "inline_mitigations_already_exist",
}


class NotStated(Exception):
    """A statement or an image that OpenVEX does not permit; the text names it."""


def document(stated: dict[str, Any], url: str, images: list[str], at: datetime) -> dict[str, Any]:
    """Return the document; `images` are `REGISTRY/NAME@sha256:DIGEST`.

    Raises:
        NotStated: see there.
    """
    products = dict(_product(image) for image in images)
    statements = [_statement(each, products) for each in stated.get("statement", [])]
    if not statements:
        raise NotStated("a document has at least one statement")
    return {
        "@context": "https://openvex.dev/ns/v0.2.0",
        "@id": url,
        "author": "Reprieve maintainers",
        "role": "Project Release System",
        "timestamp": _instant(at),
        "version": 1,
        "statements": statements,
    }


def _product(image: str) -> tuple[str, str]:
    """Return an image's name, and its package URL."""
    found = _IMAGE.fullmatch(image)
    if found is None:
        raise NotStated(f"{image}: an image is REGISTRY/NAME@sha256:DIGEST")
    digest, place = quote(found["digest"], safe=""), quote(found["path"], safe="")
    return found["name"], f"pkg:oci/{found['name']}@{digest}?repository_url={place}"


def _statement(stated: dict[str, Any], products: dict[str, str]) -> dict[str, Any]:
    name, status = stated["vulnerability"], stated["status"]
    if status not in _REASONS:
        raise NotStated(f"{name}: status {status}, not one of {', '.join(_REASONS)}")
    every = {reason for reasons in _REASONS.values() for reason in reasons}
    given = every & stated.keys()
    permitted = _REASONS[status]
    if len(given) != bool(permitted) or not given <= {*permitted}:
        wanted = f"one of {', '.join(permitted)}" if permitted else "no reason"
        raise NotStated(f"{name}: {status} has {wanted}, not {', '.join(sorted(given)) or 'none'}")
    if stated.get("justification", next(iter(_JUSTIFICATIONS))) not in _JUSTIFICATIONS:
        raise NotStated(f"{name}: {stated['justification']} is no justification of OpenVEX")
    if unknown := {*stated["images"]} - products.keys():
        raise NotStated(f"{name}: no digest of {', '.join(sorted(unknown))}")
    since: date = stated["since"]
    return {
        "vulnerability": {"name": name},
        "timestamp": _instant(datetime(since.year, since.month, since.day, tzinfo=UTC)),
        "products": [
            {"@id": products[image], "subcomponents": [{"@id": stated["part"]}]}
            for image in stated["images"]
        ],
        "status": status,
        **{field: stated[field] for field in sorted({*given, "status_notes"} & stated.keys())},
    }


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    if len(arguments) < 2:
        print("accepted: vex.py URL IMAGE@DIGEST...", file=sys.stderr)
        return 2
    at = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), UTC)
    url, *images = arguments
    try:
        written = document(tomllib.loads(STATEMENTS.read_text("utf-8")), url, images, at)
    except NotStated as fault:
        print(fault, file=sys.stderr)
        return 1
    print(json.dumps(written, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
