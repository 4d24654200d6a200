"""A study with saves on a real API server: what the replay says of it, and what it takes time for.

The bounds are wide: two minutes have 30 jobs, and one event that changes its place moves the rest.
`python -m bench.validation --steps 5` plays the hour.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.api_server_study import DEVICES, TENANTS, played_in_real_time, timed_study
from bench.cluster_study import reproduced
from bench.delayed_replay import Step, beside_replays
from tests.integration.control_plane import Binaries


@pytest.mark.slow
async def test_a_study_in_real_time_comes_to_what_the_replay_says(
    controllers: Binaries, with_pod_groups: Binaries, tmp_path: Path
) -> None:
    jobs, model = timed_study(30, 2.0)
    real = await played_in_real_time(controllers, tmp_path, jobs, model, 600)
    _, figures = beside_replays(jobs, model, real, TENANTS, DEVICES, draws=40)
    assert set(real.took_s) == set(Step)
    assert len(real.took_s[Step.QUEUE]) == len(real.took_s[Step.RELEASE]) == len(jobs)
    assert len(real.played.admitted) == len(jobs) + len(real.played.victims)
    assert real.played.victims and real.lost_device_s > 0
    assert reproduced(real.played.records) == (len(real.played.records),) * 2
    assert abs(figures["delayed_makespan_off_percent"]) < 10
    assert abs(figures["delayed_lost_off_percent"]) < 50
