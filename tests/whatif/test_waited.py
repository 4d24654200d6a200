"""A plan waits for notices and delays, in which nothing moves for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import format_instant
from reprieve.cli.run import operator_options, run
from reprieve.cli.texts.plan_text import plan_text
from reprieve.kube.resource import PODS
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.questions.answer import Verdict
from reprieve.whatif.questions.judging import answer_of
from reprieve.whatif.run import settled
from reprieve.whatif.submitting.submission import Submitted
from tests.whatif.test_displaced import node, pod, spec
from tests.whatif.test_kinds import snapshot

ENVIRONMENT = {"GPU_PREEMPTION_OPERATOR_NAMESPACE": "reprieve-system"}
ASKING = {"reprieve.dev/notice": "10m"}


@pytest.mark.parametrize(
    "section",
    [
        "{notice: {max: 10m}}",
        "{preemptionDelay: 60s}",
        "{preemptionDelay: 60s, notice: {max: 10m}}",
    ],
    ids=["notice", "delay", "both"],
)
def test_what_has_to_wait_before_it_starts_does_start(tmp_path: Path, section: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"scheduling: {section}\n", encoding="utf-8")
    flags = run.make_context("run", ["--controllers", "scheduling"]).params
    flags |= {"scheduler_names": ("default-scheduler",), "config_file": config}
    deciders = Deciders.of(operator_options(ENVIRONMENT, **flags))
    cluster = snapshot(
        deciders,
        node("node-0"),
        pod("old", spec("low", nodeName="node-0"), annotations=ASKING),
    )

    answer = answer_of(settled(cluster, deciders, [Submitted(PODS, pod("urgent", spec("high")))]))

    assert answer.verdict is Verdict.STARTS_WITH_VICTIMS
    assert [each.name for each in answer.victims] == ["old"]
    (victim,) = answer.victims
    text = " ".join(" ".join(plan_text(answer, ["scheduling"])).split())
    if "preemptionDelay" in section:
        assert MINUTE <= victim.delay <= MINUTE + 2 * SECOND
        assert "chosen 1m0s after submission" in text
    else:
        assert victim.delay == 0 and "after submission" not in text
    if "max" in section:
        assert victim.reported is not None
        assert victim.evicted_by is not None
        # With its extension; instants of records are whole seconds.
        assert 0 <= victim.evicted_by - victim.reported - 12 * MINUTE <= 2 * SECOND
        told, by = format_instant(victim.reported), format_instant(victim.evicted_by)
        assert f"would be notified at {told}, is evicted at {by} at the latest" in text
    else:
        assert (victim.reported, victim.evicted_by) == (None, None)


def test_work_that_others_have_a_delay_for_is_chosen_at_once(tmp_path: Path) -> None:
    """The delay of a class is not one of the work in another class."""
    flags = run.make_context("run", ["--controllers", "scheduling"]).params
    config = tmp_path / "config.yaml"
    config.write_text("scheduling: {preemptionDelay: 0s}\n", encoding="utf-8")
    flags |= {"scheduler_names": ("default-scheduler",), "config_file": config}
    deciders = Deciders.of(operator_options(ENVIRONMENT, **flags))
    annotations = {"reprieve.dev/preemption-delay": "60s"}
    other = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "other", "annotations": annotations},
        "value": 5,
    }
    cluster = snapshot(deciders, other, node("node-0"), pod("old", spec("low", nodeName="node-0")))

    answer = answer_of(settled(cluster, deciders, [Submitted(PODS, pod("urgent", spec("high")))]))

    assert [(each.name, each.delay) for each in answer.victims] == [("old", 0)]
