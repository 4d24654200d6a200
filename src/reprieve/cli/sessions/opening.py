"""Opens the page in a browser, where there is a screen to show it on."""

from __future__ import annotations

import os
import sys
import webbrowser
from html import escape
from pathlib import Path

__all__ = ["has_display", "open_page"]


def has_display() -> bool:
    """Return whether a browser has a screen to be shown on."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_page(address: str, folder: Path) -> None:
    """Open the address in a browser, by way of a file that only this user can read.

    What stands in the arguments of a browser can be read by every user of the machine.
    """
    file = folder / "open.html"
    file.touch(mode=0o600)
    file.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(address)}">',
        encoding="utf-8",
    )
    webbrowser.open(file.as_uri())
