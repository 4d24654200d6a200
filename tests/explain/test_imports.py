"""What `reprieve explain` and `reprieve plan` import, and when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from reprieve.cli.sessions.deciding import deciders_of
from reprieve.whatif.snapshots.stored import stored_bytes
from tests.situations.asked import served
from tests.whatif.plan_stories import namespace, node, pod
from tests.whatif.test_kinds import snapshot

_HEAVY = (
    "reprieve.planes.quota.plane",
    "reprieve.planes.scheduling.plane",
    "reprieve.whatif.run",
    "reprieve.answers.preemptions.recorded",
)
#: Servers, certificates, the process and its elections, the embedded cluster, other packages.
_NEVER = (
    "aiohttp.web",
    "cryptography",
    "kubelocal",
    "rich",
    "uvloop",
    "reprieve.notifications.notifier",
    "reprieve.operator.process",
    "reprieve.planes.quota.webhooks.server",
    "reprieve.simulation",
    "reprieve.web",
)
_CLI = "import sys; from reprieve.cli.main import cli\n"


def test_no_plane_is_imported_before_one_has_to_decide() -> None:
    done = _loaded("import sys, reprieve.cli.explain, reprieve.cli.plan\n", *_HEAVY, *_NEVER)
    assert done == []


def test_a_question_that_three_planes_answer_imports_no_server_and_no_process(
    tmp_path: Path,
) -> None:
    planes, decided = "idle,scheduling,quota", "reprieve.planes.quota.plane"
    there = (namespace(), node("node-0", 8), pod("waiting", 16))
    file, manifest = tmp_path / "cluster.snapshot", tmp_path / "later.yaml"
    file.write_bytes(stored_bytes(served(snapshot(deciders_of(planes, (), {}), *there))))
    manifest.write_text(json.dumps(pod("later", 16)))
    for question in (
        ["explain", "pod/waiting", "-n", "team"],
        ["plan", "-f", str(manifest), "--controllers", planes],
    ):
        asking = f"cli.main([*{question!r}, '--from', {str(file)!r}], standalone_mode=False)\n"
        assert _loaded(f"{_CLI}{asking}", *_NEVER, decided) == [decided]


def _loaded(code: str, *modules: str) -> list[str]:
    """Return which of the modules a process has loaded that ran the code."""
    listing = f"print('loaded:', *[each for each in {modules!r} if each in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code + listing], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1].split()[1:]
