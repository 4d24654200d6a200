"""Text of tenants becomes numbers, matches and structures in `units.untrusted` and nowhere else.

The sources are read for whatever takes text apart: numbers made of it, patterns, JSON, YAML, times.
A module that does so must stand below, with the reason why no tenant's text comes there unbounded;
everything else goes through the reader. Every pattern of the product is linear, wherever it stands.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

import kubeworld
import reprieve
from kubeworld.units.untrusted import Form

ROOTS: Final = {
    "": Path(reprieve.__file__).parent,
    "kubeworld/": Path(kubeworld.__file__).parent,
}

#: The reader, and what is built on it: each bounds the text before it looks at it.
READER: Final = (
    "units/bounded_yaml.py",
    *(
        f"kubeworld/units/{name}.py"
        for name in ("untrusted", "quantities", "durations", "instants", "canonical")
    ),
)

#: Rooms that no tenant's text comes to, or that are not the operator.
ROOMS: Final = {
    "kubeworld/controllers/": "numbers of the API's schema; texts go through the reader",
    "cli/": "what the person at the keyboard wrote",
    "scenarios/": "scenario files of the person who runs them",
    "engine/topology/": "elements of arrays",
}

#: Modules that read text by themselves: what, and why it is no tenant's, or bounded.
REVIEWED: Final = {
    "answers/conditions.py": "one message of a condition, of bounded length, by a linear pattern",
    "answers/preemptions/displacements.py": "records of the operator, by their schema",
    "answers/preemptions/record_sources.py": "files of the person who asks, and records",
    "answers/sources.py": "answers of the API server to the person who asks",
    "answers/preemptions/reported_disruptions.py": "Disruptions, by their schema",
    "answers/preemptions/known_notices.py": "PreemptionNotices, by their schema",
    "planes/idle/joint/foreign_queues.py": "ClusterQueues, which are no tenant's, by their schema",
    "web/history/prometheus.py": "answers of the page's own Prometheus, bounded, by their schema",
    "simulation/readers/kwok.py": "recordings of the person who studies, of bounded depth",
    "simulation/demand.py": "numbers of a study that was read already",
    "simulation/harm_budgets.py": "the study file of the person who runs it, by its schema",
    "simulation/reporting/figures.py": "pictures that were drawn here",
    "simulation/reporting/intervals.py": "elements of arrays",
    "simulation/readers/columns.py": "an instant, bounded there",
    "simulation/readers/gavel.py": "the table of rates of the person who runs it",
    "simulation/readers/lines.py": "the whole of a trace in JSON, of the person who runs it",
    "simulation/shards.py": "files of this command's own, in the folder of the person who runs it",
    "simulation/sources.py": "files of sums of the person who runs it, a line of bounded length",
    "simulation/stories.py": "decisions of the replay",
    "lab/cluster.py": "objects that were read and checked when the cluster was made",
    "simulation/study.py": "the study file of the person who runs it",
    "simulation/reporting/validation_figures.py": "the file of the person who runs it",
    "operator/notice_polls.py": "the head of a request, of at most 8 KiB, by a linear pattern",
    "operator/notice_server.py": "a body of at most 4 KiB, by its schema",
    "whatif/submitting/webhooks.py": "selectors that the API server gave, by their schema",
    "whatif/questions/afterwards.py": "truth as a number",
    "answers/evidence.py": "a number of the Workload's schema",
    "whatif/questions/asked.py": "pods by their schema, as the person asked gets them",
    "whatif/questions/beside.py": "numbers of the API's schema",
    "whatif/questions/declared_ends.py": "objects by their schema, as the person asked gets them",
    "whatif/snapshots/differences.py": "objects that were read already",
    "whatif/questions/estimating.py": "numbers of the schemas of pods and Workloads",
    "whatif/questions/fragility.py": "pods and nodes by their schema",
    "whatif/questions/similar.py": "pods and Workloads by their schema",
    "whatif/questions/judging.py": "records of the copy's own planes, by their schema",
    "whatif/snapshots/forms.py": "places that were written here",
    "whatif/copy/lists.py": "answers of the API server to the person who asks",
    "whatif/questions/displaced.py": "records of the copy's own planes, by their schema",
    "whatif/measured.py": "GpuWorkloads by their schema, as the person asked gets them",
    "whatif/copy/overlay.py": "bodies that the copy's own planes wrote",
    "whatif/controllers/namespace_index.py": "objects that were read already",
    "whatif/questions/emptied.py": "objects that were read already",
    "whatif/controllers/owned_pods.py": "pods by their schema, as the person asked gets them",
    "whatif/controllers/pod_templates.py": "PriorityClasses by their schema",
    "whatif/controllers/stand_ins.py": "objects that were read already",
    "whatif/submitting/fields.py": "documents of the person who asks, bounded when they were read",
    "whatif/snapshots/stored.py": "documents and snapshots of the person who asks",
    "whatif/submitting/submission.py": "answers of the API server to the person who asks",
    "whatif/snapshots/values.py": "snapshots of the person who asks",
    "whatif/copy/wire.py": "requests of the copy's own planes",
    "whatif/waited.py": "objects of the snapshot, as they were read from the API server",
    "api/crds/__init__.py": "YAML and JSON of the package's own files",
    "planes/common/foreign_decider.py": "seconds of a Lease, by its schema",
    "planes/common/mirrors/forms.py": "answers of the API server, guarded by kube/decoding.py",
    "planes/idle/evaluating/evaluation_lease.py": "seconds of a Lease",
    "operator/lease_keeper.py": "what the operator says to a process of its own",
    "operator/lease_process.py": "what the operator says to a process of its own",
    "operator/returned_memory.py": "what the kernel says of this process",
    "planes/idle/measures/metric_sources.py": "ports in URLs of the administrator",
    "planes/idle/measures/prometheus_answer.py": "answers of Prometheus, of bounded size",
    "planes/quota/pod_reconcilers/pod_bounds.py": "templates that the API server has validated",
    "planes/quota/job_reconciler/composing.py": "structures of the operator's own Workloads",
    "planes/quota/queue_status/meters.py": "a number of the Workload's schema",
    "planes/quota/watches.py": "structures that were decoded already",
    "planes/quota/pod_reconcilers/pod_templates.py": "structures that were decoded already",
    "planes/quota/webhooks/reviews.py": "bodies of the webhook server, bounded there",
    "planes/quota/webhooks/server.py": "the port in a URL of the administrator",
    "engine/placement/filters/dynamic/device_tokens.py": "CEL, whose length is bounded there",
    "engine/placement/filters/dynamic/device_values.py": "semantic versions, bounded by the schema",
    "engine/quota/waiting/queueing.py": "an instant, which is a number",
    "engine/quota/holdings/shares.py": "digits that a Form has matched",
    "engine/quota/holdings/state.py": "an instant, which is a number",
    "engine/diagnosis/scheduling_figures.py": "elements of arrays, members of an enum",
    "engine/scheduling/least_cost/alternatives.py": "elements of arrays",
    "engine/scheduling/least_cost/least_harm.py": "limits of numbers",
    "engine/scheduling/pod_preemption.py": "members of an enum",
    "engine/scheduling/victims/protection.py": "limits of numbers",
    "engine/scheduling/victims/room.py": "limits of numbers",
    "engine/scheduling/gangs/job_preemption.py": "members of an enum",
    "engine/scheduling/gangs/search.py": "elements of arrays",
    "engine/placement/filters/spread.py": "truth as a number",
    "engine/placement/scores/resources.py": "amounts, which are numbers",
    "engine/scheduling/victims/hierarchy.py": "elements of arrays",
    "engine/placement/filters/volume_limits.py": "elements of arrays",
    "records/plans/parts.py": "records, which the operator alone writes",
    "execution/pod_victims.py": "seconds of the API's schema",
    "execution/turns.py": "an annotation of nodes, which tenants cannot write",
    "intake/check_updates.py": "parts of Workloads that were decoded already, by their schema",
    "intake/exposition.py": "answers of exporters, of bounded size",
    "intake/owners.py": "parts of objects that were decoded already",
    "intake/quota.py": "a weight that was read as a quantity already",
    "jobs/table.py": "the package's own table",
    "kube/decoding.py": "answers of the API server; what is nested too deeply is skipped",
    "kube/errors.py": "answers of the API server",
    "operator/dated_wire.py": "dates of the API server's answers; what is no date is none",
    "kube/objects.py": "resource versions of the API server",
    "kube/transport.py": "answers of the API server",
    "settings/fields.py": "configuration files of the administrator",
    "settings/idle_values.py": "numbers of JSON or YAML that was read already",
    "settings/queries.py": "queries of the administrator",
    "settings/quota.py": "configuration of the administrator",
    "settings/quota_configuration_parts.py": "configuration of the administrator",
    "settings/quota_configuration_process.py": "configuration of the administrator",
    "settings/start_up.py": "flags of the administrator",
    "settings/vendors.py": "configuration of the administrator",
    "telemetry/compact.py": "numbers of our own metrics",
    "telemetry/decision_history.py": "the operator's own log",
    "records/beside.py": "records of the operator",
    "records/displacements.py": "records of the operator",
    "records/harm.py": "records of the operator",
    "records/harm_sums.py": "ConfigMaps of the operator",
    "execution/accounts/harm_refusals.py": "a ConfigMap of the operator",
    "web/pages/harm.py": "an instant, which is a number",
    "records/quota/record.py": "records of the operator",
    "records/idle/replay.py": "records of the operator",
    "records/victim_states.py": "records of the operator",
    "web/login/reviews.py": "answers of the API server",
    "web/server/application.py": "bodies of the page's readers, bounded there",
    "web/history/moments.py": "the page's own files, by their schema and bounded in size",
    "web/history/tiers.py": "the page's own file, by its schema",
    "web/server/objects.py": "answers of the API server to the person who asks, shown as text",
    "web/server/assets.py": "the package's own files",
    "wording/kube_scheduler.py": "counts that the engine made",
    "web/records/deciding.py": "a record of the operator, from the process that read it",
    "web/records/opening.py": "what a process of its own says, which was given a bounded record",
    "api/kueue_conversion.py": "the form of a value that `read_json` has read",
    "api/kueue_validation.py": "digits that a Form has matched",
    "api/kueue_validation_jobs.py": "numbers of the Job's schema",
}

_NUMBERS: Final = ("int", "float", "complex", "Fraction", "Decimal")
_OF_ARRAYS: Final = ("sum", "max", "min", "argmax", "argmin", "item", "total_seconds")
_TEXTS: Final = ("value", "values", "text", "label", "labels", "annotations", "key", "name")
_AHEAD: Final = 16  # characters that a pattern may look ahead
_DECODES: Final = ("load", "loads", "safe_load", "load_all", "safe_load_all", "convert", "Decoder")


@cache
def calls() -> tuple[tuple[str, str], ...]:
    """Return all calls that may take a text apart: the module, and the call."""
    found = []
    for room, root in ROOTS.items():
        for path in sorted(root.rglob("*.py")):
            name = f"{room}{path.relative_to(root).as_posix()}"
            if name not in READER and not name.startswith(tuple(ROOMS)):
                text = path.read_text(encoding="utf-8")
                found += [(name, call) for call in calls_that_read(ast.parse(text))]
    return tuple(found)


def calls_that_read(tree: ast.AST) -> Iterator[str]:
    """Yield the calls that may take a text apart, but those that surely are given no text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _dotted(node.func)
        module, _, last = name.rpartition(".")
        if name in _NUMBERS:
            if node.args and not _is_no_text(node.args[0]):
                yield ast.unparse(node)
        elif (
            module == "re"
            or module.split(".")[0] in ("cel", "cel_expr_python")
            or name == "float.fromhex"
            or last in ("fromisoformat", "strptime", "literal_eval")
            or (module.split(".")[0] in ("json", "orjson", "yaml", "msgspec") and last in _DECODES)
            or (module.startswith("msgspec") and last == "decode")
        ):
            yield ast.unparse(node)


def _dotted(function: ast.expr) -> str:
    """Return the name of what is called; nothing for what has none."""
    if isinstance(function, ast.Attribute):
        return f"{_dotted(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _is_no_text(given: ast.expr) -> bool:
    match given:
        case ast.Constant() | ast.Compare() | ast.BinOp():
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "math"))):
            return True
        case ast.Call(func=ast.Attribute(attr=attr)):
            return attr in _OF_ARRAYS
        case ast.Attribute(attr=attr):
            return attr.isupper()  # a member of an enum
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name not in _TEXTS  # an element of an array
    return False


def test_no_module_takes_a_tenants_text_apart_by_itself() -> None:
    found = {f"{name}: {call}" for name, call in calls() if name not in REVIEWED}
    assert found == set(), "read untrusted text with kubeworld.units.untrusted; else review it here"


def test_every_reviewed_module_still_reads_something() -> None:
    assert set(REVIEWED) - {name for name, _ in calls()} == set()


def test_the_search_finds_what_it_is_for() -> None:
    text = """
int(text); int(requirement.values[0]); int(labels["a"]); float(value or ""); Fraction(number)
re.compile("a"); re.fullmatch("a", b); json.loads(text); orjson.loads(text)
msgspec.json.decode(text, type=T); msgspec.json.Decoder(T); yaml.load(text)
datetime.fromisoformat(text); cel.compile(text); int(self.value)
"""
    assert len(list(calls_that_read(ast.parse(text)))) == 15
    fine = "int(slots[0]); int(mask.sum()); int(a * b); int(Rejection.FIT); json.dumps(a); int()"
    assert list(calls_that_read(ast.parse(fine))) == []


# Linear patterns.

#: Where a pattern may go back: what it reads is not a tenant's, or is bounded as said above.
NOT_LINEAR: Final = (
    "cli.",
    "scenarios.",
    "settings.",
    "engine.placement.filters.dynamic.device_tokens.",
    "engine.placement.filters.dynamic.device_values.",
)


def patterns() -> Iterator[tuple[str, str | bytes, int]]:
    """Yield every pattern that a module of the product holds: where, what, and its flags."""
    for module in (
        *pkgutil.walk_packages(reprieve.__path__, "reprieve."),
        *pkgutil.walk_packages(kubeworld.__path__, "kubeworld."),
    ):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            for each in value.values() if isinstance(value, dict) else (value,):
                if isinstance(each, Form):
                    yield f"{module.name}.{name}", each.pattern, re.ASCII
                elif isinstance(each, re.Pattern):
                    yield f"{module.name}.{name}", each.pattern, each.flags


def why_not_linear(tree: Any) -> str:
    """Return which part of a pattern may go back over what it has matched, empty for none."""
    for what, given in tree:
        word = str(what)
        if word in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = given
            # A repetition of a fixed number of single characters has one way to match.
            if (least, most) != (most, most) or why_not_linear(inner):
                return f"{word} {least} to {most}"
        elif word in ("GROUPREF", "GROUPREF_EXISTS"):
            return word
        elif word in ("ASSERT", "ASSERT_NOT"):
            if given[1].getwidth()[1] > _AHEAD:
                return f"{word} of any length"
            continue
        for inner in _inner(given):
            why = why_not_linear(inner)
            if why:
                return why
    return ""


def _inner(given: Any) -> Iterator[Any]:
    if isinstance(given, _parser.SubPattern):
        yield given
    elif isinstance(given, tuple | list):
        for each in given:
            yield from _inner(each)


def test_every_form_is_linear() -> None:
    found = list(patterns())
    assert len(found) > 20
    wrong = {
        f"{where}: {why}: {pattern!r}"
        for where, pattern, flags in found
        if not where.removeprefix("reprieve.").startswith(NOT_LINEAR)
        and (why := why_not_linear(_parser.parse(pattern, flags)))
    }
    assert wrong == set(), "make repetitions possessive: x++, x*+, x?+, x{1,3}+"


def test_a_pattern_that_goes_back_is_found() -> None:
    for pattern in ("a+", "(a|b)*", "a?b", "(?:a+)++", "(a)\\1", "(?=a++)b", "a{1,3}", "a*?"):
        assert why_not_linear(_parser.parse(pattern)), pattern
    for pattern in ("a++", "(?:a|b)*+", "a?+b", "[0-9]{4}", "(?:a++,)*+", "a{1,3}+"):
        assert not why_not_linear(_parser.parse(pattern)), pattern
