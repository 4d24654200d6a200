"""The smoke mode of the page's benchmark in a browser: results are checked, times are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import MISSING, chromium
from tests.frontend.stand_in import STATIC

ROOT = Path(__file__).parents[3]


def test_the_quick_mode_sees_every_change_in_the_document() -> None:
    if chromium() is None:
        pytest.skip(MISSING)
    if not (STATIC / "index.html").exists():
        pytest.skip("built without the web page (REPRIEVE_WITHOUT_WEB)")
    done = subprocess.run(
        [sys.executable, "-m", "bench.web_paint", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    paint, pixel, scroll = (json.loads(line) for line in done.stdout.splitlines())
    assert (paint["case"], pixel["case"], scroll["case"]) == ("paint", "pixel", "scroll")
    assert (pixel["marks"], pixel["seen"]) == (3, 3)
    assert scroll["rows"] >= 450
