"""`reprieve explain`: the story of one preemption, told from its record and decided again.

The record comes from the cluster, or from a file that kubectl wrote (`get -o yaml` or `-o json`).
Exit code 0: deciding the stored input again gives the recorded plan, or nothing was decided (a mark
that somebody else had set was finished). 1: it gives another one, or cannot be decided again.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import click
import msgspec
import yaml

import reprieve
from reprieve.api.reprieve import Action, Preemption, PreemptionPart, PreemptionSpec
from reprieve.engine.plan import Plan, Plane
from reprieve.execution.intents import intent_spec, stored_whole
from reprieve.execution.parts import PartsMissing, whole
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import PREEMPTIONS
from reprieve.planes.common.plugins import installed, load, load_scorers
from reprieve.settings.start_up import DEFAULT_NAMESPACE
from reprieve.telemetry.quota_record import QuotaInput
from reprieve.telemetry.quota_replay import QuotaReplay, decide_quota_again
from reprieve.telemetry.quota_story import quota_answer_text, quota_story, workloads_named
from reprieve.telemetry.replay import (
    InputOmitted,
    Replay,
    SpoiltInput,
    decide_again,
    unpacked,
)
from reprieve.telemetry.scheduling_record import SchedulingInput
from reprieve.telemetry.scheduling_replay import (
    PluginMissing,
    SchedulingReplay,
    decide_scheduling_again,
)
from reprieve.telemetry.scheduling_story import pod_answer_text, pod_story, pods_named
from reprieve.telemetry.story import answer_text, answers_named, story
from reprieve.units.clock import SystemClock
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.units.instants import Nanos

__all__ = ["explain"]

_NAMESPACE: Final = "GPU_PREEMPTION_OPERATOR_NAMESPACE"
_Replays = Replay | SchedulingReplay | QuotaReplay
_KEPT: Final = "those that are waiting for GPUs, idle or on their way out"


@click.command()
@click.argument("preemption", required=False)
@click.option(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    help=f"Where the record is; default: ${_NAMESPACE}, else {DEFAULT_NAMESPACE}.",
)
@click.option(
    "--workload",
    metavar="NAMESPACE/NAME",
    help="Answer for this one alone: a GpuWorkload, the root owner of one, a pod or a pod group, a "
    "Workload of a queue.",
)
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    help="Read the record from a file of kubectl get -o yaml; - is standard input.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Name every member and victim; else more than 50 are counted by node pool, namespace and "
    "group.",
)
@click.option("--kubeconfig", metavar="FILE", help="Else $KUBECONFIG, in-cluster, ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
def explain(
    preemption: str | None,
    namespace: str | None,
    workload: str | None,
    filename: str | None,
    everything: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Tell who made way for whom, and why everybody else stayed.

    The input that is stored with the decision is decided again. Exits 1 when that does not give
    the recorded plan.
    """
    asked = _asked(workload)
    if filename is not None:
        record = _from_file(filename, preemption)
    elif preemption:
        where = namespace or os.environ.get(_NAMESPACE, "").strip() or DEFAULT_NAMESPACE
        record = asyncio.run(_from_cluster(preemption, where, kubeconfig, context))
    else:
        raise UsageError(
            "no record is named; accepted: the name of a Preemption "
            "(kubectl get preemptions -A lists them), or -f FILE"
        )
    replay, verdict, upheld = _judged(record)
    if asked is None:
        metadata = record.metadata
        _say(f"Preemption {metadata.namespace}/{metadata.name}, plan {record.spec.plan_id}")
        _say(verdict)
        _say("")
        for line in _story(record, replay, everything=everything):
            _say(line)
    elif replay is None:
        raise ReprieveError(f"{'/'.join(asked)}: no answer. {verdict}")
    else:
        for line in _answers(replay, *asked):
            _say(line)
        if not upheld:
            raise ReprieveError(verdict)
    if not upheld:
        raise SystemExit(1)


def _asked(workload: str | None) -> tuple[str, str] | None:
    if workload is None:
        return None
    namespace, _, name = workload.partition("/")
    if not namespace or not name or "/" in name:
        raise UsageError(f"--workload: {workload!r}; accepted: NAMESPACE/NAME")
    return namespace, name


def _story(record: Preemption, replay: _Replays | None, *, everything: bool) -> list[str]:
    if isinstance(replay, SchedulingReplay):
        return pod_story(record, replay, everything=everything)
    if isinstance(replay, QuotaReplay):
        return quota_story(record, replay, everything=everything)
    if replay is None and record.spec.plane == Plane.QUOTA:
        return quota_story(record, None, everything=everything)
    if replay is None and record.spec.plane == Plane.SCHEDULING:
        return pod_story(record, None, everything=everything)
    return story(record, replay, everything=everything)


def _answers(replay: _Replays, namespace: str, name: str) -> list[str]:
    if isinstance(replay, QuotaReplay):
        workloads = workloads_named(replay, namespace, name)
        if not workloads:
            raise ReprieveError(
                f"{namespace}/{name} is no Workload that held quota in the cohorts of this or was "
                "at the head of a queue of them"
            )
        return [quota_answer_text(each) for each in workloads]
    if isinstance(replay, SchedulingReplay):
        pods = pods_named(replay, namespace, name)
        if not pods:
            raise ReprieveError(
                f"{namespace}/{name} is no pod that was waiting for this or had a node then, nor "
                "a group of such pods"
            )
        return [pod_answer_text(each, replay) for each in pods]
    found = answers_named(replay, namespace, name)
    if not found:
        raise ReprieveError(
            f"{namespace}/{name} is not among the workloads that were looked at, {_KEPT}: "
            "it was something else then, or not tracked"
        )
    return [answer_text(each, replay.decided_on.now) for each in found]


def _judged(record: Preemption) -> tuple[_Replays | None, str, bool]:
    """Return the decision made again, what is to be said of it, and whether all is well."""
    spec = record.spec
    if spec.input is None:
        if spec.revision == 0 and spec.plane == Plane.IDLE:
            return None, "Nothing was decided: it was found in Preempting, and finished", True
        return None, "Cannot be decided again: the record has no input", False
    replay: _Replays
    try:
        if spec.plane == Plane.SCHEDULING:
            policy, offered = unpacked(spec.input, SchedulingInput).policy, installed()
            plugins, scorers = load(offered, policy), load_scorers(offered, policy)
            replay = decide_scheduling_again(spec.input, plugins, scorers)
        elif spec.plane == Plane.QUOTA:
            replay = decide_quota_again(spec.input)
        else:
            replay = decide_again(spec.input)
    except (InputOmitted, SpoiltInput, PluginMissing) as failure:
        return None, f"Cannot be decided again: {failure}", False
    lead = f"Decided again from its stored input ({_size(replay)}): "
    differences = _differences(spec, replay)
    if not differences:
        return replay, f"{lead}the same plan", True
    program = replay.decided_on.program
    other = ""
    if program != reprieve.__version__:
        other = f"; it was recorded by reprieve {program}, this is {reprieve.__version__}"
    return replay, f"{lead}NOT the recorded plan, {differences}{other}", False


def _size(replay: _Replays) -> str:
    decided_on = replay.decided_on
    if isinstance(decided_on, QuotaInput):
        counts = len(decided_on.cluster_queues), len(decided_on.holders), len(decided_on.heads)
        return "{} ClusterQueues, {} workloads with quota, {} at the head".format(*counts)
    if isinstance(decided_on, SchedulingInput):
        return f"{len(decided_on.nodes)} nodes, {len(decided_on.pods.uids)} placed pods"
    return f"{len(decided_on.snapshot.workloads)} workloads"


def _differences(spec: PreemptionSpec, replay: _Replays) -> str:
    if isinstance(replay, SchedulingReplay | QuotaReplay):
        plan = replay.plan(spec.revision) if isinstance(replay, QuotaReplay) else replay.plan
        plans, now = [] if plan is None else [plan], Nanos(0)
    else:
        plan, now = replay.plan(spec.plan_id), replay.decided_on.now
        plans = list(replay.evaluation.plans)
    if plan is None or plan.id != spec.plan_id:
        return f"but {', '.join(each.id for each in plans) or 'none at all'}"
    again = _spec_again(spec, plan, now)
    if not isinstance(replay, Replay):
        # When it was written down is no part of the decision in these planes.
        again = msgspec.structs.replace(again, decided_at=spec.decided_at)
    names = zip(spec.__struct_fields__, spec.__struct_encode_fields__, strict=True)
    other = [name for field, name in names if getattr(spec, field) != getattr(again, field)]
    return f"other: {', '.join(other)}" if other else ""


def _spec_again(spec: PreemptionSpec, plan: Plan, now: Nanos) -> PreemptionSpec:
    # What to do to a root is its owner's word, not part of the decision.
    actions = {victim.root.uid: victim.action for victim in spec.victims}
    return intent_spec(
        plan,
        spec.attempt,
        now,
        actions=[actions.get(victim.root.uid, Action.DELETE) for victim in plan.victims],
        dry_run=spec.dry_run,
        decision_input=spec.input,
    )


async def _from_cluster(
    name: str, namespace: str, kubeconfig: str | None, context: str | None
) -> Preemption:
    clock = SystemClock()
    client = connect(await load_connection(kubeconfig, context, clock), clock)
    try:
        record = await client.get(PREEMPTIONS, namespace, name, Preemption)
        return await stored_whole(client, record)
    except NotFound as missing:
        if missing.details.get("name") != name:
            raise ReprieveError(
                "the cluster knows no Preemptions: Reprieve is not installed there"
            ) from None
        raise ReprieveError(
            f"no Preemption {name!r} in namespace {namespace!r}; "
            "those there are: kubectl get preemptions -A"
        ) from None
    finally:
        await client.close()


def _from_file(filename: str, name: str | None) -> Preemption:
    try:
        with click.open_file(filename, encoding="utf-8") as file:
            document = yaml.load(file, _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"-f {filename}: cannot be read: {error}") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise UsageError(f"-f {filename}: not YAML: {' '.join(str(error).split())}") from None
    found = _listed(document)
    if name is not None:
        found = [each for each in found if _name_of(each) == name]
    if len(found) != 1:
        which = f" named {name!r}" if name else ""
        several = "; name one: " + ", ".join(_name_of(each) for each in found) if found else ""
        raise UsageError(
            f"-f {filename}: {len(found)} Preemptions{which}; accepted: one, as "
            f"kubectl get preemption NAME -o yaml prints it{several}"
        )
    try:
        record = msgspec.convert(found[0], Preemption)
        names = {*record.spec.parts, *record.spec.input_parts}
        parts = [
            msgspec.convert(each, PreemptionPart).spec
            for each in _listed(document, "PreemptionPart")
            if _name_of(each) in names
        ]
    except msgspec.ValidationError as error:
        raise UsageError(f"-f {filename}: not a Preemption: {error}") from None
    try:
        return msgspec.structs.replace(record, spec=whole(record.spec, parts))
    except PartsMissing as missing:
        raise UsageError(
            f"-f {filename}: {missing}; accepted: the Preemption with its PreemptionParts, as "
            "kubectl get preemptions,preemptionparts -o yaml prints them"
        ) from None


def _listed(document: object, kind: str = "Preemption") -> list[dict[str, Any]]:
    items = [document]
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        items = document["items"]
    return [item for item in items if isinstance(item, dict) and item.get("kind") == kind]


def _name_of(item: dict[str, Any]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) else ""


class _Loader(yaml.SafeLoader):
    """Leaves instants as the text that they are in the API."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own form)
        first: [(tag, form) for tag, form in forms if not tag.endswith(":timestamp")]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _say(line: str) -> None:
    # A record may be anybody's file: nothing in it may steer the terminal.
    click.echo(
        "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    )
