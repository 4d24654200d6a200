"""Changes that would help are tried for a time; why something waits is told in any case."""

from __future__ import annotations

import asyncio

import pytest

from reprieve.cli.sessions.deciding import deciders_of
from reprieve.engine.diagnosis.model import Change
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.whatif.questions.planning import planned
from tests.whatif.test_kinds import cluster, manifest


@pytest.mark.parametrize(
    ("trying", "changes"), [(60.0, [Change.WITHOUT_CONSTRAINT]), (-1.0, [])], ids=["time", "none"]
)
def test_when_the_time_is_over_nothing_more_is_tried(trying: float, changes: list[Change]) -> None:
    deciders = deciders_of("scheduling", ("default-scheduler",), {})
    wanted = manifest("Pod", "wanted", "low")
    wanted.object["spec"]["nodeSelector"] = {"disk": "slow"}
    answer = asyncio.run(planned(None, cluster(deciders), deciders, [wanted], trying=trying))
    (outcome,) = answer.outcomes
    assert outcome.diagnosis is not None
    assert outcome.diagnosis.reason is Reason.NO_NODE_MATCHES
    assert [fix.change for fix in outcome.diagnosis.fixes] == changes
