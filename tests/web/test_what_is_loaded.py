"""The page's process loads nothing that evicts or writes, by way of others neither."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

#: Reads parts of records, by a `Reader`.
READS: Final = {"reprieve.execution", "reprieve.execution.records"} | {
    "reprieve.execution.records.read_parts"
}
_CODE: Final = """
import importlib, pkgutil, sys, reprieve.web
for module in pkgutil.walk_packages(reprieve.web.__path__, "reprieve.web."):
    importlib.import_module(module.name)
print("\\n".join(sys.modules))
"""


def test_the_page_loads_nothing_that_evicts_or_writes() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert len([name for name in loaded if name.startswith("reprieve.web.")]) > 40
    writing = ("reprieve.execution", "reprieve.operator", "reprieve.kube.client", "kubelocal")
    found = {name for name in loaded if name.startswith((*writing, "reprieve.kube.writes"))}
    assert found == READS
