"""Tests that are killed leave nothing of a cluster on the machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import with_parent
from tests.chart.helm import ROOT
from tests.node import network
from tests.node.groups import node_group
from tests.node.machine import NODES, missing
from tests.node.sweeper import Sweeper

pytestmark = [pytest.mark.slow, pytest.mark.node]

PROGRAM = """
import sys, time
from pathlib import Path
from tests.node import network
from tests.node.groups import make_groups
from tests.node.machine import NODES
from tests.node.sweeper import Sweeper
folder = Path(sys.argv[1])
folder.mkdir()
sweeper = Sweeper(folder)
network.up()
for node in NODES:
    make_groups(node)
print("up", flush=True)
time.sleep(3600)
"""


def found(folder: Path) -> set[str]:
    """Return what there is of a cluster."""
    names = [network.CONTROL, *(network.node_namespace(number) for number in (1, 2))]
    places = [folder, *(Path("/run/netns", name) for name in names)]
    places += [node_group(node) for node in NODES]
    return {str(place) for place in places if place.exists()}


def test_whoever_is_killed_leaves_nothing(tmp_path: Path) -> None:
    if lacking := missing():
        pytest.skip(lacking)
    folder = tmp_path / "cluster"
    command = with_parent.program(sys.executable, "-c", PROGRAM, str(folder))
    player = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert player.stdout is not None
    assert player.stdout.readline() == b"up\n"
    assert len(found(folder)) == 6
    player.send_signal(signal.SIGKILL)
    player.communicate()
    # Who comes next waits until the sweeper has ended.
    after = Sweeper(tmp_path / "next")
    assert found(folder) == set()
    after.finish()
