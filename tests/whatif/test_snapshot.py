"""What a command returns from its event loop is short to write out: asyncio does so when it ends.

`asyncio.Runner` asks who handles SIGINT, and the text of that handler names the task with its
result: of 50,000 pods that was seconds for a text that nobody reads.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from reprieve.cli.sessions.deciding import deciders_of
from reprieve.whatif.questions.planning import planned
from reprieve.whatif.run import settled
from tests.whatif.test_kinds import cluster, manifest


def test_neither_a_snapshot_nor_what_came_of_it_writes_out_the_objects_in_it() -> None:
    deciders = deciders_of("scheduling", ("default-scheduler",), {})
    snapshot = cluster(deciders)
    wanted = [manifest("Pod", "wanted", "low")]
    name = next(iter(snapshot.kinds["", "nodes"].objects))[1]
    run = settled(snapshot, deciders, wanted)
    answer = asyncio.run(planned(None, snapshot, deciders, wanted))
    assert run.history and answer.placement[0].node == name
    for each in (snapshot, snapshot.kinds["", "nodes"], run, replace(answer, placement=())):
        assert name not in repr(each)
