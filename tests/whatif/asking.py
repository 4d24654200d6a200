"""Asks what would happen, as `reprieve plan` does, of a cluster in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reprieve.cli.run import operator_options, run
from reprieve.kube.client import Client
from reprieve.kube.credentials import load_connection
from reprieve.kube.transport import Answer as WireAnswer
from reprieve.kube.transport import HttpWire, Request, Transport
from reprieve.whatif.copy.gathering import gather_for
from reprieve.whatif.copy.lists import discovered
from reprieve.whatif.copy.wire import ReadingWire
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.questions.answer import Answer
from reprieve.whatif.questions.planning import kinds_of, planned
from reprieve.whatif.submitting.pod_admission import dry_run_pods
from reprieve.whatif.submitting.submission import Document, dry_run, matched
from tests.virtual_time import LoopClock

Object = dict[str, Any]
ENVIRONMENT = {"GPU_PREEMPTION_OPERATOR_NAMESPACE": "reprieve-system"}


@dataclass
class Audited:
    """A wire that notes what goes over it."""

    inner: HttpWire
    sent: list[tuple[str, str, str]] = field(default_factory=list)

    async def send(self, request: Request, stream: bool, rejected: bool) -> WireAnswer:
        self.sent.append((request.method, request.path, request.query.get("dryRun", "")))
        return await self.inner.send(request, stream, rejected)

    async def close(self) -> None:
        await self.inner.close()


@dataclass
class Asked:
    """The answer, and what was sent to the API server for it: method, path and dry run."""

    answer: Answer
    sent: list[tuple[str, str, str]]


async def ask(
    kubeconfig: Path,
    *objects: Object,
    controllers: str = "quota",
    names: Sequence[str] = (),
    namespace: str = "team",
    without_server: bool = False,
    environment: Mapping[str, str] | None = None,
    asking: float = 0.0,
    config: Path | None = None,
    quota_config: Path | None = None,
) -> Asked:
    """Return what would happen if these objects were created now.

    `asking`: seconds for how narrowly it starts, and for ends of run times; `config`: what
    `--config` names.
    """
    clock = LoopClock()
    wire = Audited(HttpWire(await load_connection(str(kubeconfig))))
    client = Client(Transport(ReadingWire(wire), clock))
    flags = run.make_context("run", ["--controllers", controllers]).params
    flags |= {"scheduler_names": tuple(names), "config_file": config}
    if quota_config is not None:
        flags["quota_config"] = quota_config
    deciders = Deciders.of(operator_options({**ENVIRONMENT, **(environment or {})}, **flags))
    try:
        snapshot = await gather_for(client, deciders, clock, namespaces=[namespace])
        documents = [Document(each, "the test") for each in objects]
        submitted = matched(documents, discovered(snapshot.documents), namespace)
        notes: tuple[str, ...] = ()
        if not without_server:
            submitted = await dry_run(client, submitted)
            notes = await dry_run_pods(client, submitted, kinds_of(deciders))
        answer = await planned(client, snapshot, deciders, submitted, asking=asking)
        assert not any("the copy has none" in each for each in answer.warnings), answer.warnings
        return Asked(replace(answer, warnings=(*notes, *answer.warnings)), wire.sent)
    finally:
        await client.close()
